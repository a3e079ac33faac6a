"""The glossary's lock and the record of a change: vectors, order, what cannot be read."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import attrs
import pytest

from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession
from cpstore.model.fork import Citation
from cpstore.model.glossary import Change, Glossary, Reread

TIMEOUT = Binding("timeout", "request timeout", "unit: milliseconds", authority=Authority.USER, established_at_step=1)
ZONE = Binding("Zone", "UTC", established_at_step=2)
LOCAL = Binding("n", "rows", scope=Scope.STEP_LOCAL, established_at_step=2)
ORDER = Directive(Authority.USER, "message 41", "seconds from now on")
HEX = "ab" * 32
CHANGE = Change(
    (LOCAL, TIMEOUT), (Supersession(ZONE, ORDER),), (Retirement("old", ORDER),), HEX, (("Zone", HEX), ("old", HEX))
)


def test_the_lock_is_the_digest_of_the_sorted_locked_bindings() -> None:
    array = json.dumps([ZONE.to_value(), TIMEOUT.to_value()], sort_keys=True, separators=(",", ":"))

    lock = Glossary((TIMEOUT, LOCAL, ZONE)).digest

    assert lock == sha256(b"cpstore/glossary/v1\n" + array.encode()).digest()
    assert Glossary().digest == sha256(b"cpstore/glossary/v1\n[]").digest()


@pytest.mark.parametrize(
    "change",
    [
        {"symbol": "t"},
        {"definition": "t"},
        {"constraint": ""},
        {"authority": Authority.AGENT},
        {"established_at_step": 0},
        {"established_at_step": None},
        {"verbatim": True},
        {"scope": Scope.STEP_LOCAL},
    ],
)
def test_every_field_is_under_the_lock(change: dict[str, Any]) -> None:
    assert Glossary((attrs.evolve(TIMEOUT, **change),)).digest != Glossary((TIMEOUT,)).digest


def test_a_glossary_is_sorted_found_by_symbol_and_equal_by_content() -> None:
    glossary = Glossary([TIMEOUT, LOCAL, ZONE], HEX)

    assert list(glossary) == [ZONE, LOCAL, TIMEOUT]
    assert glossary.task_wide == (ZONE, TIMEOUT)
    assert (glossary.get("n"), glossary.get("zone"), len(glossary)) == (LOCAL, None, 3)
    assert glossary == Glossary((ZONE, LOCAL, TIMEOUT))


@pytest.mark.parametrize("given", [bytes.fromhex(HEX), HEX, HEX.upper()])
def test_a_declared_digest_is_kept_beside_the_computed_one(given: bytes | str) -> None:
    glossary = Glossary((TIMEOUT,), given)

    assert glossary.declared == bytes.fromhex(HEX)
    assert glossary.digest == Glossary((TIMEOUT,)).digest
    assert attrs.evolve(glossary).declared == glossary.declared


@pytest.mark.parametrize("given", ["", "ab", "zz" * 32, b"", b"ab", 7, [1, 2]])
def test_what_is_no_digest_cannot_be_declared(given: Any) -> None:
    with pytest.raises(InvalidStateError, match="32 bytes or 64 hex digits"):
        Glossary((), given)


def test_a_glossary_holds_bindings_only() -> None:
    with pytest.raises(InvalidStateError, match="not str"):
        Glossary(("timeout",))  # type: ignore[arg-type]


def test_a_change_without_a_before_digest_cannot_be_read() -> None:
    value = CHANGE.to_value()
    del value["superseded"][0]["before"]

    with pytest.raises(CorruptError, match="before"):
        Change.from_value(value)


@pytest.mark.parametrize(
    "record",
    [
        CHANGE,
        attrs.evolve(CHANGE, before=(("Zone", ""), ("old", HEX))),
        Glossary((TIMEOUT, ZONE)),
        Reread("timeout", HEX, "", ORDER),
        Reread("timeout", HEX, HEX, ORDER),
        Citation("a", 3, HEX),
    ],
)
def test_what_is_stored_reads_back_equal_and_junk_is_corrupt(record: Any) -> None:
    whole = record.to_value()

    assert type(record).from_value(json.loads(json.dumps(whole))) == record
    for name in whole:
        texts = ("\ud800", " ") if name == "symbol" else ("x\x00", "\ud800", HEX.upper() + " ")
        for junk in (7.5, {}, [{}], True, 0, -1, *texts):
            with pytest.raises(CorruptError):
                type(record).from_value(whole | {name: junk})
        with pytest.raises(CorruptError):
            type(record).from_value({other: part for other, part in whole.items() if other != name})


def test_a_stored_glossary_keeps_its_declared_digest() -> None:
    assert Glossary.from_value(Glossary((TIMEOUT,), HEX).to_value()).declared == bytes.fromhex(HEX)


@pytest.mark.parametrize(
    "change",
    [
        {"established": (TIMEOUT, LOCAL)},
        {"established": (LOCAL, LOCAL)},
        {"established": (attrs.evolve(TIMEOUT, established_at_step=None),)},
        {"superseded": (Supersession(attrs.evolve(ZONE, established_at_step=None), ORDER),)},
        {"superseded": (Supersession(ZONE, ORDER), Supersession(ZONE, ORDER))},
        {"retired": (Retirement("old", ORDER), Retirement("Zone", ORDER))},
        {"retired": (Retirement("Zone", ORDER),)},
        {"digest": HEX[:-1]},
        {"before": (("Zone", "x"), ("old", HEX))},
    ],
)
def test_a_change_that_no_rule_makes_is_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptError):
        Change.from_value(attrs.evolve(CHANGE, **change).to_value())


@pytest.mark.parametrize("symbols", [("b", "a"), ("a", "a")])
def test_a_stored_glossary_out_of_order_is_corrupt(symbols: tuple[str, str]) -> None:
    value = Glossary((ZONE, TIMEOUT)).to_value()
    for part, symbol in zip(value["bindings"], symbols, strict=True):
        part["symbol"] = symbol

    with pytest.raises(CorruptError, match="not sorted"):
        Glossary.from_value(value)
