"""The command line: ``python -m cpstore``, also installed as ``cpstore``."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cpstore import __version__, demo, replay
from cpstore.errors import CheckpointStoreError
from cpstore.inspect import (
    diff,
    doctor,
    effects,
    events,
    exits,
    glossary,
    ledger,
    log,
    overview,
    render,
    show,
    verify,
    why,
)
from cpstore.inspect.exits import Phase, Stopped, during, exit_code
from cpstore.inspect.open import Asked, file_of, look, signer_of
from cpstore.inspect.render import revealed, say, visible
from cpstore.signing.keyring import short
from cpstore.signing.keys import Signer, create_key, default_key_path
from cpstore.store import Store, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEY_VARIABLE = "CPSTORE_KEY"

_COMMANDS: dict[str, Any] = {
    "overview": overview,
    "log": log,
    "show": show,
    "diff": diff,
    "glossary": glossary,
    "effects": effects,
    "ledger": ledger,
    "events": events,
    "why": why,
    "verify": verify,
    "doctor": doctor,
}

_CODES = """exit codes:
  0 good               1 damaged (diff: differs)   2 usage
  3 could not verify   4 rolled back               5 input refused
  10 no store          11 busy                     12 key              130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Defaults stand here, since one on a parser would overrule an option given before the command.
        args = _parser().parse_args(argv, argparse.Namespace(key=None, json=False, namespace=None))
    except SystemExit as stop:
        return int(stop.code or 0)
    args.key = args.key or os.environ.get(KEY_VARIABLE) or None
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except Stopped as stopped:
        return _told(stopped.error, stopped.code)
    except CheckpointStoreError as error:
        return _told(error, exit_code(error, Phase.ACT))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the interpreter's last flush is quiet
        return exits.GOOD
    except KeyboardInterrupt:
        sys.stderr.write("cpstore: interrupted\n")
        return exits.INTERRUPTED
    return code


def _told(error: CheckpointStoreError, code: int) -> int:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sys.stderr.write(f"cpstore: {revealed('; '.join(lines) or type(error).__name__)}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--key", metavar="FILE", help=f"key file (default: ${KEY_VARIABLE}, else this user's key)")
    common.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(
        prog="cpstore",
        description="A transactional checkpoint store for agents.",
        epilog=_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"cpstore {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Any, text: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[common, *parents], allow_abbrev=False)
        made.set_defaults(run=run)
        return made

    command("init", _init, "make a store").add_argument("path", metavar="PATH")
    command("keygen", _keygen, "make a key file; never overwrites one").add_argument(
        "--out", metavar="FILE", help="where (default: this user's key)"
    )
    command("demo", _demo, "play a short agent run that shows what is refused").add_argument(
        "path", nargs="?", default=demo.PATH, metavar="PATH", help=f"a new file (default {demo.PATH})"
    )
    _replay_arguments(command("replay", _replay, "replay agent trajectories and check every revision"))
    where = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    where.add_argument("--namespace", metavar="NAME", help="namespace (default 'default'; the overview: all)")
    _inspect_arguments(command("inspect", _inspect, "look into a store; changes nothing", where), [common, where])
    return parser


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="trajectories, JSON lines, plain or zstd")
    parser.add_argument("--into", metavar="STORE", help="keep the store (default: a temporary one for each file)")
    parser.add_argument("--namespace", default="default", metavar="NAME", help="namespace of the lineages")
    parser.add_argument("--edit", action="store_true", help="state changes by path instead of whole states")
    parser.add_argument("--interleave", type=_count, default=1, metavar="N", help="N lineages in turn (default 1)")
    parser.add_argument("--floor", action="store_true", help="compare with zstd -19 --long of the messages (slow)")


def _inspect_arguments(parser: argparse.ArgumentParser, parents: list[argparse.ArgumentParser]) -> None:
    parser.add_argument("store", metavar="STORE")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=False)
    for name, module in _COMMANDS.items():
        text = (module.__doc__ or "").strip()
        module.add(commands.add_parser(name, help=text, description=text, parents=parents, allow_abbrev=False))


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _inspect(args: argparse.Namespace) -> int:
    module = _COMMANDS[args.command or "overview"]
    store, key, writer = look(args.store, args.key)
    with store:
        value, code = module.answer(Asked(store, args.store, key, writer, args))
    if args.json:
        render.print_json(value)
    else:
        module.show(value)
    return int(code)


def _init(args: argparse.Namespace) -> int:
    path = Path(file_of(args.path))
    made = not path.exists()
    signer, key = signer_of(args.key, create=True)
    with during(Phase.OPEN), open_store(args.path, signer=signer) as store:
        value = {"store": args.path, "origin": store.origin, "made": made, "key": key, "writer": short(signer.writer)}
    if args.json:
        render.print_json(value)
    else:
        say(
            f"{'made' if made else 'was a store already'}: {visible(args.path)}, origin {visible(store.origin)}",
            f"signed with key {value['writer']} ({visible(key)})",
        )
    return exits.GOOD


def _keygen(args: argparse.Namespace) -> int:
    path = args.out or args.key or default_key_path()
    with during(Phase.KEY):
        signer = create_key(path)
    value = {"file": str(path), "writer": short(signer.writer), "store": short(signer.store)}
    if args.json:
        render.print_json(value)
    else:
        say(f"made {visible(str(path))}: writer key {value['writer']}, store key {value['store']}")
        say("keep a copy off this machine")
    return exits.GOOD


def _demo(args: argparse.Namespace) -> int:
    lines: list[str] = []
    tell = lines.append if args.json else _print
    signer, _ = signer_of(args.key, create=True)
    with during(Phase.OPEN):
        good = demo.run(file_of(args.path), tell, signer)
    if args.json:
        render.print_json({"store": args.path, "good": good, "lines": lines})
    return exits.GOOD if good else exits.DAMAGED


def _print(line: str) -> None:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    width = shutil.get_terminal_size().columns
    parts = textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
    if not parts or line.startswith("Look inside"):  # a command is copied whole
        parts = [line]
    sys.stdout.write("".join(revealed(part) + "\n" for part in parts))


def _replay(args: argparse.Namespace) -> int:
    manner = replay.Manner(args.namespace, edit=args.edit, abreast=args.interleave, floor=args.floor)
    signer = signer_of(args.key, create=True)[0] if args.into else Signer.generate()
    results = []
    for file in args.files:
        with _place(args.into) as path:
            results.append(_replayed(file, path, signer, manner))
    values = [result.to_value() for result in results]
    if args.json:
        render.print_json({"files": values})
    else:
        _replay_table(values)
    return exits.GOOD if all(result.good for result in results) else exits.DAMAGED


@contextlib.contextmanager
def _place(into: str | None) -> Iterator[str]:
    if into is not None:
        yield file_of(into)
        return
    with tempfile.TemporaryDirectory(prefix="cpstore-replay-") as folder:
        yield str(Path(folder, "replay.db"))


def _replayed(file: str, path: str, signer: Signer, manner: replay.Manner) -> replay.Result:
    trajectories = _read(file)  # the first is read before a store is made
    first = next(trajectories, None)
    result, before = replay.Result(Path(file).name), _size(path)
    name = visible(result.file)
    with _opened(path, signer) as store, render.progress(f"commit {name}") as report:
        replay.commit_all(itertools.chain([first] if first else [], trajectories), store, manner, result, report)
    result.disk = _size(path) - before
    with _opened(path, signer, read_only=True) as store, render.progress(f"compare {name}") as report:
        replay.compare_all(_read(file), store, manner, result, report)
    return result


def _read(file: str) -> Iterator[replay.Trajectory]:
    trajectories = replay.read_trajectories(file)
    while True:
        with during(Phase.INPUT):
            found = next(trajectories, None)
        if found is None:
            return
        yield found


@contextlib.contextmanager
def _opened(path: str, signer: Signer, *, read_only: bool = False) -> Iterator[Store]:
    with during(Phase.OPEN):
        store = open_store(path, create=not read_only, read_only=read_only, signer=signer)
    with store:
        yield store


def _size(path: str) -> int:
    """Return the bytes of a store as it lies on disk, its write-ahead log included."""
    files = (Path(path), Path(path + "-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _replay_table(values: list[dict[str, Any]]) -> None:
    amount = render.amount
    rows: tuple[tuple[str, Any], ...] = (
        ("trajectories", lambda one: f"{one['trajectories']:,}"),
        ("checkpoints", lambda one: f"{one['checkpoints']:,}"),
        ("full states", lambda one: amount(one["full_bytes"])),
        ("unique messages", lambda one: amount(one["unique_bytes"])),
        ("on disk", lambda one: amount(one["disk_bytes"])),
        ("bytes/checkpoint", lambda one: _number(one["bytes_per_checkpoint"], 0)),
        ("full/disk", lambda one: _number(one["full_to_disk"], 1)),
        ("floor", lambda one: "" if one["floor_bytes"] is None else amount(one["floor_bytes"])),
        ("disk/floor", lambda one: _number(one["disk_to_floor"], 2)),
        ("commits/s", lambda one: _number(one["commits_per_second"], 0)),
        ("loads/s", lambda one: _number(one["loads_per_second"], 0)),
        ("loaded equal", lambda one: f"{one['verified']:,}" if one["good"] else f"{one['verified']:,} NOT ALL"),
    )
    shown = [row for row in rows if any(row[1](one) for one in values)]
    for at in range(0, len(values), 4):
        part = values[at : at + 4]
        names = [visible(one["file"].removesuffix(".zst").removesuffix(".jsonl")) for one in part]
        render.table(("", *names), [(name, *map(cell, part)) for name, cell in shown], right=names)
    for one in values:
        say(*(f"wrong: {visible(text)}" for text in one["wrong"]))


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


if __name__ == "__main__":
    sys.exit(main())
