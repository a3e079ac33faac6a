"""What the encoder refuses, with its place: nesting, counted alike on every way, foreign types, zones none can find."""

from __future__ import annotations

import datetime as dt
import importlib.resources
import io
import zoneinfo
from typing import TYPE_CHECKING, Any

import msgspec
import ormsgpack
import pytest

from cpstore.errors import CorruptError, HostLimitError, InvalidStateError
from cpstore.snapshot import values
from cpstore.snapshot.values import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable

WRAPS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda value: [value],
    "mappings": lambda value: {"a": value},
    "tuples": lambda value: (value,),
    "sets": lambda value: frozenset((value,)),
}


def nested(depth: int, wrap: Callable[[Any], Any], leaf: Any = 1) -> Any:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


def by_turns(depth: int, leaf: Any = 1) -> Any:
    for at in range(depth):
        leaf = {"a": leaf} if at % 3 == 0 else [leaf] if at % 3 == 1 else (leaf,)
    return leaf


@pytest.mark.parametrize("leaf", [1, "\ud800", ()], ids=["number", "broken text", "empty tuple"])
@pytest.mark.parametrize("above", [0, 1, 60, MAX_DEPTH - 1])
@pytest.mark.parametrize("wrap", [*WRAPS.values(), None], ids=[*WRAPS, "by turns"])
def test_nesting_is_counted_exactly_from_the_top_of_the_state(
    wrap: Callable[[Any], Any] | None, above: int, leaf: Any
) -> None:
    path, own = "/a" * above, 1 if leaf == () else 0
    make = by_turns if wrap is None else lambda depth, leaf: nested(depth, wrap, leaf)
    deepest = make(MAX_DEPTH - above - own, leaf)

    assert values.decode(values.encode(deepest, path)) == deepest
    with pytest.raises(InvalidStateError, match="deep") as refused:
        values.encode(make(MAX_DEPTH - above - own + 1, leaf), path)
    assert refused.value.path.startswith(path)
    assert refused.value.path.count("/") == MAX_DEPTH


def test_what_is_far_too_deep_or_a_cycle_is_refused_with_its_place() -> None:
    loop: list[Any] = []
    loop.append({"again": (loop,)})
    for value in (nested(100_000, WRAPS["lists"]), nested(5_000, WRAPS["tuples"]), loop):
        with pytest.raises(InvalidStateError, match="deep, or a cycle") as refused:
            values.encode({"x": value})
        assert refused.value.path.startswith("/x/")


class Foreign(msgspec.Struct):
    a: int = 1


@pytest.mark.parametrize(
    "value",
    [
        ormsgpack.Ext(99, b"abc"),
        ormsgpack.Ext(values.SHARED, bytes(72)),
        ormsgpack.Fragment(b"\x01"),
        msgspec.Raw(b"\x01"),
        msgspec.msgpack.Ext(1, b"\x90"),
        Foreign(),
        memoryview(b"abcdef")[::2],
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
@pytest.mark.parametrize(
    ("around", "place"),
    [(lambda v: v, ""), (lambda v: {"a": [0, v]}, "/a/1"), (lambda v: ([v],), "/0/0"), (lambda v: ["\ud800", v], "/1")],
    ids=["bare", "in a list", "in a tuple", "beside broken text"],
)
def test_types_that_are_not_the_stores_are_refused_with_their_place(
    value: Any, around: Callable[[Any], Any], place: str
) -> None:
    with pytest.raises(InvalidStateError) as refused:
        values.encode(around(value), "/here")

    assert refused.value.path == "/here" + place


def zone(key: str) -> zoneinfo.ZoneInfo:
    data = importlib.resources.files("tzdata.zoneinfo").joinpath("Europe", "Paris").read_bytes()
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(data), key=key)


def test_a_zone_is_accepted_if_a_reader_finds_the_same_under_its_name() -> None:
    pytest.importorskip("tzdata")
    paris = dt.datetime(2020, 7, 1, 12, tzinfo=zone("Europe/Paris"))
    known = dt.datetime(2020, 10, 25, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))

    assert values.decode(values.encode([paris, known])) == [paris, known]
    for tz, said in ((zone("Corp/HQ"), "Corp/HQ"), (zone("America/New_York"), "not the one"), (zone("../x"), "x")):
        with pytest.raises(InvalidStateError, match=said) as refused:
            values.encode({"when": (dt.datetime(2020, 1, 1, tzinfo=tz),)})
        assert refused.value.path == "/when/0"


def test_a_zone_that_this_machine_has_not_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = values.encode([dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))])

    def lacks(key: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(f"No time zone found with key {key}")

    monkeypatch.setattr(values, "ZoneInfo", lacks)

    with pytest.raises(HostLimitError, match=r"Europe/Paris.*tzdata"):
        values.decode(stored)


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        (values.DATETIME, ["2020-01-01T00:00:00", "../../etc/passwd", 0]),
        (values.DATETIME, ["2020-01-01T00:00:00", 5, 0]),
        (values.DATETIME, ["2020-01-01T00:00:00"]),
        (values.DATETIME, [1, "", 0]),
        (values.TIME, ["12:00", 7]),
        (values.DURATION, [10**12, 0, 0]),
        (values.SET, [[1]]),
        (values.TUPLE, 5),
    ],
)
def test_bodies_that_no_value_has_are_corrupt(tag: int, body: Any) -> None:
    with pytest.raises(CorruptError):
        values.decode(ormsgpack.packb(ormsgpack.Ext(tag, ormsgpack.packb(body))))


@pytest.mark.parametrize("body", [b"\xff", b"1e", b"\xed\xa0"])
@pytest.mark.parametrize("tag", [values.DATE, values.DECIMAL, values.UUID, values.TUPLE, 77])
def test_bytes_that_no_value_has_are_corrupt(tag: int, body: bytes) -> None:
    with pytest.raises(CorruptError):
        values.decode(ormsgpack.packb(ormsgpack.Ext(tag, body)))


def test_only_what_is_new_is_looked_at_for_its_nesting(monkeypatch: pytest.MonkeyPatch) -> None:
    from strand import MiniLineage

    lineage, looked = MiniLineage("a"), []
    messages = [{"content": "m" * 300, "tags": [n]} for n in range(500)]
    lineage.commit({"messages": messages})
    check = values.check

    def counted(value: Any, path: str) -> None:
        looked.append(len(value) if type(value) is list else 1)
        check(value, path)

    monkeypatch.setattr(values, "check", counted)
    messages.append({"content": "new"})
    lineage.commit({"messages": messages})

    assert looked == [1]
