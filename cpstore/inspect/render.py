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

    from rich.console import Console, RenderableType

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
    if kind is list:
        return [in_json(child) for child in value]
    if kind is dict and "$type" not in value:
        return {key: in_json(child) for key, child in value.items()}
    if kind in _TAGGED:
        return {"$type": kind.__name__, "value": _TAGGED[kind](value)}
    return _not_finite(value) if kind is float and not math.isfinite(value) else value


def _not_finite(value: float) -> dict[str, str]:
    return {"$type": "float", "value": repr(value)}


_TAGGED: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: [[key, in_json(child)] for key, child in value.items()],
    tuple: lambda value: [in_json(child) for child in value],
    set: lambda value: sorted(map(in_json, value), key=json.dumps),
    frozenset: lambda value: sorted(map(in_json, value), key=json.dumps),
    bytes: lambda value: base64.b64encode(value).decode("ascii"),
    dt.timedelta: lambda value: [value.days, value.seconds, value.microseconds],
    dt.datetime: dt.datetime.isoformat,
    dt.date: dt.date.isoformat,
    dt.time: dt.time.isoformat,
    Decimal: str,
    uuid.UUID: str,
}


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
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def moment(microseconds: int) -> str:
    """Return a time label (microseconds UTC since 1970) as text; one that no calendar has, as a number."""
    try:
        at = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=microseconds)
    except OverflowError:
        return f"{microseconds} us"
    return at.isoformat(sep=" ", timespec="seconds") + "Z"


def print_json(value: Any) -> None:
    """Write a value of the JSON model to standard output: ASCII, so nothing in it can act on a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def console(*, stderr: bool = False) -> Console:
    """Return a rich console that takes every text literally."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def say(*lines: str) -> None:
    """Print lines for people; the caller has made any text from a store visible."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def _print(shape: RenderableType) -> None:
    """Print what rich lays out, without the blanks that it fills lines with."""
    out = console()
    with out.capture() as laid:
        out.print(shape)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in laid.get().splitlines()))


def fields(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values, aligned."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(name, _cell(value))
    _print(grid)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = (), whole: Iterable[str] = ()
) -> None:
    """Print a table; columns named in ``right`` are numbers. Long cells are folded, never cut, ``whole`` ones last."""
    from rich import box
    from rich.table import Table

    numbers = frozenset(right)
    unfolded = numbers.union(whole)
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for name in columns:
        grid.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=name in unfolded)
    for row in rows:
        grid.add_row(*map(_cell, row))
    _print(grid)


def _cell(text: str) -> Any:
    from rich.text import Text

    return Text(text)


@contextlib.contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how far long work is, on standard error if it is a terminal; yields ``report(done, total)`` or None."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)
