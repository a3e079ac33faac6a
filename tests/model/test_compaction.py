"""What a compaction records: canonical form, and what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore import canonical
from cpstore.errors import CorruptError
from cpstore.model.compaction import (
    CLAIMS,
    Compaction,
    Covered,
    EffectClaim,
    KeyClaim,
    TermClaim,
    claim_from_value,
    pointer_fault,
)

A, B = "ab" * 32, "0c" * 32
ITEMS = Covered("/messages", 0, 80, A, 91_000)
GONE = Covered("/plan~1b/a~0", None, None, B, 0)
TERM = TermClaim("timeout", "request timeout")
EFFECT = EffectClaim("refund", "order 17", "completed", 2)
KEY = KeyClaim("board", "task-b", 3, A)
SPARSE = Compaction(1, 1, (GONE,), "", A, 1)
WHOLE = Compaction(
    3, 9, (ITEMS, GONE), "/messages/0", B, 2, 91_000, 0, (TERM, EFFECT, KEY), (EFFECT,),
    (("board", "a", "/a"), ("board", "b", ""), ("desk", "a", "/a")), 12,
)  # fmt: skip

NAMES = st.text(st.characters(categories=["Lu", "Nd", "So"]), min_size=1, max_size=6)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
COUNTS = st.integers(1, canonical.MAX_INTEGER)
LABELS = st.none() | st.integers(0, canonical.MAX_INTEGER)
POINTERS = st.lists(NAMES | st.just("~0") | st.just(""), max_size=3).map(lambda parts: "".join("/" + p for p in parts))
RANGES = st.lists(st.integers(0, 99), min_size=2, max_size=2, unique=True).map(sorted) | st.just([None, None])
CLAIM = (
    st.builds(TermClaim, NAMES, NAMES)
    | st.builds(EffectClaim, NAMES, NAMES, NAMES, COUNTS)
    | st.builds(KeyClaim, NAMES, NAMES, COUNTS, DIGESTS)
)
COVERED = st.tuples(POINTERS, RANGES, DIGESTS, COUNTS).map(lambda part: Covered(part[0], *part[1], part[2], part[3]))
KEPT = st.dictionaries(st.tuples(NAMES, NAMES), POINTERS, max_size=3).map(
    lambda kept: tuple(sorted((ledger, key, path) for (ledger, key), path in kept.items()))
)


@st.composite
def compactions(draw: st.DrawFn) -> Compaction:
    first = draw(st.integers(1, 99))
    claims = tuple(draw(st.lists(CLAIM, max_size=3)))
    return Compaction(
        first=first,
        last=first + draw(st.integers(0, 99)),
        covers=tuple(draw(st.lists(COVERED, max_size=3))),
        path=draw(POINTERS),
        summary=draw(DIGESTS),
        level=draw(COUNTS),
        tokens_before=draw(LABELS),
        tokens_after=draw(LABELS),
        claims=claims,
        unbacked=claims[:1],
        kept=draw(KEPT),
        previous=draw(st.just(0) | COUNTS),
    )


@given(compactions() | CLAIM | COVERED)
def test_what_is_stored_reads_back_equal(record: Any) -> None:
    assert record.fault() == ""
    assert type(record).from_value(canonical.decode(canonical.encode(record.to_value()))) == record


@given(CLAIM)
def test_a_claim_is_read_by_its_tag(claim: Any) -> None:
    assert claim_from_value(claim.to_value()) == claim


def test_the_canonical_form_has_all_fields() -> None:
    assert WHOLE.to_value() == {
        "claims": [
            {"claim": "term", "definition": "request timeout", "symbol": "timeout"},
            {"claim": "effect", "key": "order 17", "name": "refund", "occurrence": 2, "state": "completed"},
            {"claim": "key", "digest": A, "key": "task-b", "ledger": "board", "revision": 3},
        ],
        "covers": [
            {"digest": A, "path": "/messages", "size": 91_000, "start": 0, "stop": 80},
            {"digest": B, "path": "/plan~1b/a~0", "size": 0, "start": None, "stop": None},
        ],
        "first": 3,
        "kept": [["board", "a", "/a"], ["board", "b", ""], ["desk", "a", "/a"]],
        "last": 9,
        "level": 2,
        "path": "/messages/0",
        "previous": 12,
        "summary": B,
        "tokens_after": 0,
        "tokens_before": 91_000,
        "unbacked": [{"claim": "effect", "key": "order 17", "name": "refund", "occurrence": 2, "state": "completed"}],
    }
    assert Compaction.from_value(WHOLE.to_value()) == WHOLE
    assert Compaction.from_value(SPARSE.to_value()) == SPARSE
    assert EffectClaim("refund", "17", "completed").occurrence == 1


@pytest.mark.parametrize(("claim", "text"), [
    (TERM, "term 'timeout'"),
    (EFFECT, "effect 'refund', key 'order 17', occurrence 2"),
    (KEY, "key 'task-b' of ledger 'board'"),
])  # fmt: skip
def test_a_claim_says_what_it_is_about(claim: Any, text: str) -> None:
    assert str(claim) == text


@pytest.mark.parametrize(
    ("path", "sound"),
    [("", True), ("/", True), ("/a/0", True), ("/~0~1", True), ("a", False), ("/~", False), ("/~2", False), (7, False),
     (None, False), ("/\ud800", False)],
)  # fmt: skip
def test_a_path_is_a_json_pointer(path: Any, sound: bool) -> None:
    assert (pointer_fault(path) == "") == sound


COUNT: list[Any] = [None, True, 0, -1, 1.0, 1 << 53, "9"]
LABEL: list[Any] = [True, -1, 1.0, 1 << 53, "9"]
DIGEST: list[Any] = [None, 7, "", A.upper(), A[:-1], A + "0"]
TEXT: list[Any] = [None, 7, "", " ", "\ud800", []]
WRONG: list[tuple[Any, str, Any]] = [
    *((ITEMS, "path", junk) for junk in (None, 7, "messages", "/~", "/\ud800")),
    *((ITEMS, "start", junk) for junk in (None, True, -1, 1.0, "0", 80, 81)),
    *((ITEMS, "stop", junk) for junk in (None, True, 0, -1, 1.0, "9")),
    (GONE, "start", 0),
    (GONE, "stop", 1),
    *((ITEMS, "size", junk) for junk in (None, *LABEL)),
    *((record, "digest", junk) for record in (ITEMS, KEY) for junk in DIGEST),
    *((TERM, name, junk) for name in ("symbol", "definition") for junk in TEXT),
    *((EFFECT, name, junk) for name in ("name", "key", "state") for junk in TEXT),
    *((KEY, name, junk) for name in ("ledger", "key") for junk in TEXT),
    *((EFFECT, "occurrence", junk) for junk in COUNT),
    *((KEY, "revision", junk) for junk in COUNT),
    *((claim, "claim", junk) for claim in (TERM, EFFECT, KEY) for junk in ("Term", "", None, 7)),
    *((WHOLE, name, junk) for name in ("first", "last", "level") for junk in COUNT),
    (WHOLE, "last", 2),
    (WHOLE, "first", 10),
    *((WHOLE, "path", junk) for junk in (None, 7, "messages", "/~")),
    *((WHOLE, "summary", junk) for junk in DIGEST),
    *((WHOLE, name, junk) for name in ("tokens_before", "tokens_after") for junk in LABEL),
    *((WHOLE, "previous", junk) for junk in (None, *LABEL)),
    *((WHOLE, name, junk) for name in ("covers", "claims", "unbacked", "kept") for junk in (None, {}, "x", [7], [[]])),
    (WHOLE, "covers", [ITEMS.to_value() | {"size": -1}]),
    (WHOLE, "claims", [ITEMS.to_value()]),
    (WHOLE, "claims", [TERM.to_value() | {"symbol": ""}]),
    (WHOLE, "kept", [["board", "a"]]),
    (WHOLE, "kept", [["board", "a", "/a", "/b"]]),
    (WHOLE, "kept", [["", "a", "/a"]]),
    (WHOLE, "kept", [["board", "", "/a"]]),
    (WHOLE, "kept", [["board", "a", "a"]]),
    (WHOLE, "kept", [["board", "a", "/a"], ["board", "a", "/b"]]),
    (WHOLE, "kept", [["desk", "a", "/a"], ["board", "b", "/b"]]),
]


@pytest.mark.parametrize(("record", "field", "junk"), WRONG)
def test_a_malformed_field_is_corrupt(record: Any, field: str, junk: Any) -> None:
    value = record.to_value() | {field: junk}

    with pytest.raises(CorruptError, match="stored"):
        type(record).from_value(value)
    if isinstance(record, CLAIMS):
        with pytest.raises(CorruptError):
            claim_from_value(value)


@pytest.mark.parametrize("record", [ITEMS, TERM, EFFECT, KEY, WHOLE])
def test_a_value_with_other_fields_is_corrupt(record: Any) -> None:
    whole = record.to_value()

    wrong: Any
    for wrong in (None, [], "x", {}, whole | {"more": 1}):
        with pytest.raises(CorruptError):
            type(record).from_value(wrong)
    for name in whole:
        with pytest.raises(CorruptError):
            type(record).from_value({other: part for other, part in whole.items() if other != name})


@pytest.mark.parametrize("claim", [TERM, EFFECT, KEY])
def test_a_claim_is_not_read_as_another_kind(claim: Any) -> None:
    for kind in CLAIMS:
        if kind is not type(claim):
            with pytest.raises(CorruptError):
                kind.from_value(claim.to_value())


def test_a_tag_does_not_make_a_claim_another_kind() -> None:
    with pytest.raises(CorruptError, match="another thing than a term"):
        TermClaim.from_value(TERM.to_value() | {"claim": "key"})
