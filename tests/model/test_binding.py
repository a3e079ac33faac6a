"""Bindings and the orders that change them: order of authorities, canonical form, what cannot be read."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore import canonical
from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
BINDINGS = st.builds(
    Binding,
    symbol=TEXTS,
    definition=TEXTS,
    constraint=st.just("") | TEXTS,
    scope=st.sampled_from(Scope),
    authority=st.sampled_from(Authority),
    established_at_step=st.none() | st.integers(0, canonical.MAX_INTEGER),
    verbatim=st.booleans(),
)
DIRECTIVES = st.builds(Directive, st.sampled_from(Authority), TEXTS, TEXTS)
RECORDS = (
    BINDINGS | DIRECTIVES | st.builds(Supersession, BINDINGS, DIRECTIVES) | st.builds(Retirement, TEXTS, DIRECTIVES)
)
TIMEOUT = Binding("timeout", "request timeout", "unit: milliseconds", authority=Authority.USER, established_at_step=1)
ORDER = Directive(Authority.USER, "message 41", "seconds from now on")


def test_authorities_rise_from_agent_to_system() -> None:
    agent, user, developer, system = Authority

    assert agent < user < developer < system
    assert sorted([system, agent, developer, user]) == [agent, user, developer, system]
    assert user >= user and not user < user and not user > developer
    assert [authority.value for authority in Authority] == ["agent", "user", "developer", "system"]


def test_an_authority_does_not_compare_with_its_text() -> None:
    with pytest.raises(TypeError):
        assert Authority.AGENT < "user"


def test_the_canonical_form_of_a_binding_has_all_fields() -> None:
    assert canonical.encode(TIMEOUT.to_value()) == (
        b'{"authority":"user","constraint":"unit: milliseconds","definition":"request timeout",'
        b'"established_at_step":1,"scope":"TaskWide","symbol":"timeout","verbatim":false}'
    )
    assert TIMEOUT.digest.hex() == "592eecf0ba6e7925873c0d1a18beab895738ff477fae41d0271353ea9b302362"


@given(RECORDS)
def test_what_is_stored_reads_back_equal(record: Any) -> None:
    stored = canonical.decode(canonical.encode(record.to_value()))

    assert type(record).from_value(stored) == record


@given(BINDINGS, BINDINGS)
def test_bindings_have_one_digest_only_if_they_are_equal(one: Binding, other: Binding) -> None:
    assert (one.digest == other.digest) == (one == other)


@pytest.mark.parametrize(
    "change",
    [
        {"symbol": ""},
        {"symbol": 7},
        {"definition": "  "},
        {"definition": "\ud800"},
        {"constraint": "\n"},
        {"scope": "TaskWide"},
        {"authority": None},
        {"established_at_step": True},
        {"established_at_step": 1 << 53},
        {"verbatim": 0},
    ],
)
def test_a_malformed_binding_has_no_canonical_form(change: dict[str, Any]) -> None:
    wrong = attrs.evolve(TIMEOUT, **change)

    with pytest.raises(InvalidStateError, match=next(iter(change))):
        wrong.to_value()
    with pytest.raises(InvalidStateError):
        Supersession(wrong, ORDER).to_value()


@pytest.mark.parametrize("record", [Retirement("", ORDER), Retirement("a", None), Directive(Authority.USER, "", "x")])  # type: ignore[arg-type]
def test_a_malformed_order_has_no_canonical_form(record: Any) -> None:
    with pytest.raises(InvalidStateError, match="cannot be stored"):
        record.to_value()


@pytest.mark.parametrize("record", [TIMEOUT, ORDER, Supersession(TIMEOUT, ORDER), Retirement("a", ORDER)])
@pytest.mark.parametrize("junk", [None, [], {}, 7, "x", " ", -1, "Somewhere", {"a": 1}])
def test_a_malformed_value_is_corrupt(record: Any, junk: Any) -> None:
    whole = record.to_value()
    allowed = {"established_at_step": (None, 7), "constraint": ("x", "Somewhere"), "text": ("x", "Somewhere")}
    texts = ("x", "Somewhere")

    wrong: Any
    for wrong in (junk, whole | {"more": junk}, {}):
        with pytest.raises(CorruptError):
            type(record).from_value(wrong)
    for name in whole:
        with pytest.raises(CorruptError):
            type(record).from_value({other: part for other, part in whole.items() if other != name})
        plain = ("definition", "symbol", "reference")
        if junk not in allowed.get(name, texts if name in plain else ()):
            with pytest.raises(CorruptError):
                type(record).from_value(whole | {name: junk})
