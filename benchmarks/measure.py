"""Timing by turns, medians with their spread, and the table."""

from __future__ import annotations

import gc
import os
import platform
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs


@attrs.frozen
class Sample:
    """Repeated measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.seconds)

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and the 90th percentile."""
        ordered = sorted(self.seconds)
        last = len(ordered) - 1
        return ordered[round(last * 0.1)], ordered[round(last * 0.9)]

    def __str__(self) -> str:
        low, high = self.spread
        return f"{_duration(self.median)} ({_duration(low)} to {_duration(high)})"


@attrs.frozen
class Row:
    """A line of the table. ``good`` is None where there is no bar, or no peer to hold it against."""

    measure: str
    ours: str
    peer: str = "–"
    ratio: str = "–"
    bar: str = "–"
    good: bool | None = None
    figures: dict[str, Any] = attrs.field(factory=dict)

    @property
    def verdict(self) -> str:
        """The verdict in a word."""
        return "–" if self.good is None else "reached" if self.good else "**missed**"

    def to_value(self) -> dict[str, Any]:
        """Return the row in the JSON model."""
        return {**attrs.asdict(self, filter=lambda field, _: field.name != "figures"), **self.figures}


def by_turns(
    rounds: int, calls: Sequence[Callable[[Any], object]], prepare: Sequence[Callable[[], Any]] | None = None
) -> list[Sample]:
    """Run each call once a round, in an order drawn anew for each round, and return a sample of each.

    ``prepare`` makes each call's argument, outside the time. The order is drawn (from a fixed seed) so that no call
    always runs in the wake of the same other one, whose writes and cache lines it would pay for.
    """
    taken: list[list[float]] = [[] for _ in calls]
    order, draw = list(range(len(calls))), random.Random(rounds)
    gc.collect()
    for _ in range(rounds):
        draw.shuffle(order)
        for which in order:
            argument = prepare[which]() if prepare else None
            began = time.perf_counter()
            result = calls[which](argument)
            taken[which].append(time.perf_counter() - began)
            del result
    return [Sample(tuple(each)) for each in taken]


def machine() -> str:
    """Return one line on what the numbers were measured with."""
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}, load {os.getloadavg()[0]:.2f}"
    )


def table(rows: Iterable[Row]) -> str:
    """Return the rows as an aligned Markdown table."""
    lines = [("measure", "ours", "peer", "ratio", "bar", "verdict")]
    lines += [(row.measure, row.ours, row.peer, row.ratio, row.bar, row.verdict) for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(6)]
    shown = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([shown[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *shown[1:]])


def times(ratio: float) -> str:
    """Return a ratio as text."""
    return f"{ratio:,.0f} ×" if ratio >= 100 else f"{ratio:.2f} ×" if ratio < 10 else f"{ratio:.1f} ×"


def size(count: float) -> str:
    """Return a number of bytes as text."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("KB", 1e4)):
        if count >= least:
            return f"{count / (1e3 if unit == 'KB' else least):,.2f} {unit}"
    return f"{count:,.0f} B"


def _duration(seconds: float) -> str:
    return (
        f"{seconds * 1e6:,.0f} µs"
        if seconds < 1e-3
        else f"{seconds * 1e3:,.2f} ms"
        if seconds < 1
        else f"{seconds:.1f} s"
    )
