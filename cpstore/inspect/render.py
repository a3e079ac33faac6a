"""Output: tables for people, JSON for programs. Text from a store is never trusted to be harmless on a terminal."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import math
import sys
import unicodedata
import uuid
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move the cursor, reorder the line, or cannot be seen."""


def visible(text: str) -> str:
    r"""Return one line in which every hidden character is spelled (``\x1b``, ``\u202e``) and a backslash is ``\\``."""
    return revealed(text.replace("\\", "\\\\"))


def revealed(text: str) -> str:
    """The same for text in which a backslash already starts an escape, such as JSON."""
    return text if text.isascii() and text.isprintable() else "".join(map(_spell, text))


def _spell(char: str) -> str:
    if unicodedata.category(char) not in _HIDDEN:
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_json(value: Any) -> Any:
    """Return a state value in the JSON model.

    What JSON has no word for becomes ``{"$type": name, "value": …}``; a mapping that has the key ``$type`` itself is
    wrapped too, as pairs, so that the two cannot be confused.
    """
    kind = type(value)
    if kind is dict:
        if "$type" in value:
            return _tagged("dict", [[key, in_json(child)] for key, child in value.items()])
        return {key: in_json(child) for key, child in value.items()}
    if kind is list:
        return [in_json(child) for child in value]
    if kind is tuple:
        return _tagged("tuple", [in_json(child) for child in value])
    if kind in (set, frozenset):
        return _tagged(kind.__name__, sorted((in_json(child) for child in value), key=json.dumps))
    if kind is float and not math.isfinite(value):
        return _tagged("float", repr(value))
    if kind is bytes:
        return _tagged("bytes", base64.b64encode(value).decode("ascii"))
    if kind is dt.timedelta:
        return _tagged("timedelta", [value.days, value.seconds, value.microseconds])
    if kind in (dt.datetime, dt.date, dt.time):
        return _tagged(kind.__name__, value.isoformat())
    if kind in (Decimal, uuid.UUID):
        return _tagged(kind.__name__, str(value))
    return value


def _tagged(name: str, value: Any) -> dict[str, Any]:
    return {"$type": name, "value": value}


def brief(value: Any, limit: int = 60) -> str:
    """Return a value of the JSON model as one harmless line of at most about ``limit`` characters."""
    if isinstance(value, str) and len(value) > limit:
        value = value[:limit] + "…"
    if isinstance(value, (list, dict)) and len(value) > limit:
        return f"{'list' if isinstance(value, list) else 'mapping'} of {len(value)}"
    text = revealed(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def amount(count: int) -> str:
    """Return a number of bytes for people, in decimal units."""
    if count < 1000:
        return f"{count} B"
    size = float(count)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.5:
            break
    return f"{size:.1f} {unit}"


def moment(microseconds: int) -> str:
    """Return a time label (microseconds UTC since 1970) as text; one that no calendar has, as a number."""
    try:
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)  # noqa: DTZ001  (printed as UTC)
    except OverflowError:
        return f"{microseconds} us"
    return at.isoformat(sep=" ", timespec="seconds") + "Z"


def print_json(value: Any) -> None:
    """Write a value of the JSON model to standard output: ASCII, so nothing in it can act on a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that takes every text literally."""
    from rich.console import Console  # noqa: PLC0415  (only where output goes to people)

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def say(*lines: str) -> None:
    """Print lines for people; the caller has made any text from a store visible."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def fields(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values, aligned."""
    from rich.table import Table  # noqa: PLC0415

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, _cell(value))
    console().print(grid)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = ()) -> None:
    """Print a table; the columns named in ``right`` are numbers. Long cells are folded, never cut."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    numbers = frozenset(right)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        grid.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=name in numbers)
    for row in rows:
        grid.add_row(*map(_cell, row))
    console().print(grid)


def _cell(text: str) -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(text)


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far long work is, on standard error if it is a terminal; yields ``report(done, total)`` or None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
