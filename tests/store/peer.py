"""Another process with a store: reads a command as a JSON line, carries it out, answers with a JSON line."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import cpstore
from cpstore.errors import CheckpointStoreError, RevisionConflictError
from cpstore.snapshot import writer


class Peer:
    def __init__(self) -> None:
        self.store: Any = None
        self.handles: dict[str, Any] = {}
        self.held: Any = None
        self.effects: dict[str, Any] = {}

    def open(self, path: str, segment: int = 128, **options: Any) -> str:
        writer.SEGMENT_RECORDS = segment
        self.store = cpstore.open(path, **options)
        return self.store.origin

    def lineage(self, name: str) -> Any:
        if name not in self.handles:
            self.handles[name] = self.store.lineage(name)
        return self.handles[name]

    def commit(self, name: str, state: Any, step: int, expected: int | None = None) -> int:
        return self.lineage(name).commit(state, step=step, expected_revision=expected).revision

    def append(self, name: str, path: str, item: Any, step: int) -> int:
        with self.lineage(name).edit(step=step) as edit:
            edit.append(path, item)
        return edit.result.revision

    def load(self, name: str, revision: int | None = None) -> Any:
        return self.lineage(name).load(revision)

    def head(self, name: str) -> int:
        return self.lineage(name).head().revision

    def own(self, name: str, count: int) -> int:
        """Append ``count`` times to a lineage that nobody else writes."""
        task = self.lineage(name)
        task.commit({"items": []}, step=0)
        for at in range(1, count):
            with task.edit(step=at) as edit:
                edit.append("/items", f"{name} {at}")
        return task.head().revision

    def shared(self, name: str, who: str, count: int) -> list[int]:
        """Append ``count`` times to a lineage that others write too: look again and decide again after a conflict."""
        task, made = self.lineage(name), []
        while len(made) < count:
            head = task.head().revision
            with contextlib.suppress(RevisionConflictError):
                with task.edit(step=1, expected_revision=head) as edit:
                    edit.append("/items", f"{who} {len(made)}")
                made.append(edit.result.revision)
        return made

    def endless(self, name: str) -> None:
        """Commit until killed; each revision is told only after it was acknowledged."""
        task = self.lineage(name)
        state: dict[str, Any] = {"items": []}
        for at in range(1, 1_000_000):
            state["items"].append(f"item {at}")
            print(json.dumps(task.commit(state, step=at).revision), flush=True)

    def begin(self, name: str, effect: str, args: Any, policy: str = "at_most_once", **options: Any) -> Any:
        """Begin an effect and keep its handle; answer (fresh, forwarded key, outcome)."""
        handle = self.lineage(name).begin(effect, args, policy=cpstore.EffectPolicy(policy), **options)
        self.effects[effect] = handle
        return [handle.fresh, handle.key, None if handle.fresh else handle.outcome]

    def complete(self, effect: str, result: Any) -> str:
        self.effects[effect].complete(result)
        return "completed"

    def let_go(self, effect: str) -> str:
        del self.effects[effect]
        return "let go"

    def restore(self, name: str, revision: int) -> int:
        return self.lineage(name).restore(revision).revision

    def restored(self, name: str, revision: int) -> None:
        """Restore, tell, and wait to be killed: nothing is closed."""
        print(json.dumps(self.lineage(name).restore(revision).revision), flush=True)
        time.sleep(600)

    def effects_endless(self, name: str, trace: str) -> None:
        """Carry effects out until killed: each leaves a line in a file, the world, between start and outcome."""
        task = self.lineage(name)
        with Path(trace).open("a") as world:
            for at in range(1_000_000):
                handle = task.begin("send", {"at": at}, policy=cpstore.EffectPolicy.AT_MOST_ONCE)
                if handle.fresh:
                    print(at, file=world, flush=True)
                    handle.complete({"sent": at})
                print(json.dumps(at), flush=True)

    def hold(self) -> str:
        """Take the write lock and keep it."""
        self.held = contextlib.ExitStack()
        self.held.enter_context(self.store._journal.backend.write())
        return "held"

    def release(self) -> str:
        self.held.close()
        return "released"

    def verify(self) -> Any:
        return self.store.verify().to_value()

    def close(self) -> str:
        self.store.close()
        self.handles.clear()
        return "closed"


def main() -> None:
    peer = Peer()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        verb, args, options = json.loads(line)
        try:
            reply = {"value": getattr(peer, verb)(*args, **options)}
        except CheckpointStoreError as error:
            reply = {"error": type(error).__name__, "text": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
