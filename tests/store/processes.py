"""Other processes with a store, spoken to line by line; what they can do is in peer.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class PeerError(Exception):
    """A command that another process refused: the name of its error, and its text."""


class Process:
    """Another process with a store; see peer.py."""

    def __init__(self) -> None:
        env = dict(os.environ, PYTHONPATH=str(ROOT))
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "peer.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, verb: str, *args: Any, **options: Any) -> None:
        print(json.dumps([verb, args, options]), file=self.process.stdin, flush=True)

    def line(self) -> Any:
        return json.loads(self.process.stdout.readline() or '{"error": "Gone", "text": "the process has ended"}')

    def reply(self) -> Any:
        found = self.line()
        if "error" in found:
            raise PeerError(found["error"], found["text"])
        return found["value"]

    def __call__(self, verb: str, *args: Any, **options: Any) -> Any:
        self.send(verb, *args, **options)
        return self.reply()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
