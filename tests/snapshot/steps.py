"""What something costs, counted: no machine's speed and no other process changes these numbers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def steps(act: Callable[[], object]) -> int:
    """Return how many bytecodes Python executes to carry something out."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def calls(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[tuple[Any, ...]]:
    """Return a list that takes in the arguments of each call of ``where.name`` from now on."""
    seen: list[tuple[Any, ...]] = []
    function = getattr(where, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return function(*args, **kwargs)

    monkeypatch.setattr(where, name, counted)
    return seen
