"""Records of a shared ledger: canonical form, and what cannot be read."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore import canonical
from cpstore.errors import CorruptError
from cpstore.model.ledger import ABSENT, EVENT_KINDS, Absent, Event, Held, Member, Seen, Status, member_id

A, B = "ab" * 32, "0c" * 32
SEEN = Seen("board", "task-b", 3, A, 7)
HELD = Held(3, A, 5)
PLAIN = Member("peer:scout", "scout", None)
WHOLE = Member(
    "lineage:invoice-42", "executor", "invoice-42", Status.READ_ONLY, "compaction", 9, ("a", "b"),
    (("range", B), ("timeout", A)), present=False, kept=("c", "d"),
)  # fmt: skip
EVENT = Event("board", 9, "compacted", "executor", "invoice-42", 4, "executor compacted 1 to 3", 17, {"first": 1})

NAMES = st.text(st.characters(categories=["Lu", "Nd", "So"]), min_size=1, max_size=6)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
COUNTS = st.integers(1, canonical.MAX_INTEGER)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
KEYS = st.frozensets(NAMES, max_size=4).map(lambda keys: tuple(sorted(keys)))
LOCKS = st.dictionaries(TEXTS, DIGESTS, max_size=3).map(lambda lock: tuple(sorted(lock.items())))


@st.composite
def members(draw: st.DrawFn) -> Member:
    peer, lineage, status = draw(NAMES), draw(st.none() | NAMES), draw(st.sampled_from(Status))
    keys, known = draw(KEYS), draw(KEYS)
    return Member(
        id=member_id(peer, lineage),
        peer=peer,
        lineage=lineage,
        status=status,
        cause="" if status is Status.ACTIVE else draw(TEXTS),
        void=draw(st.just(0) | COUNTS),
        keys=keys,
        lock=draw(LOCKS),
        present=draw(st.booleans()),
        kept=() if status is Status.ACTIVE else tuple(key for key in known if key not in keys),
    )


RECORDS = (
    members()
    | st.builds(Seen, NAMES, NAMES, COUNTS, DIGESTS, COUNTS)
    | st.builds(Held, COUNTS, DIGESTS, COUNTS)
    | st.builds(
        Event, NAMES, COUNTS, st.sampled_from(EVENT_KINDS), NAMES, st.none() | NAMES, st.none() | COUNTS, TEXTS, COUNTS,
        st.dictionaries(st.sampled_from("ab"), st.none() | TEXTS, max_size=2),
    )
)  # fmt: skip


@given(RECORDS)
def test_what_is_stored_reads_back_equal(record: Any) -> None:
    assert record.fault() == ""
    assert type(record).from_value(canonical.decode(canonical.encode(record.to_value()))) == record


def test_the_canonical_form_of_a_member_has_all_fields() -> None:
    assert WHOLE.to_value() == {
        "cause": "compaction",
        "id": "lineage:invoice-42",
        "kept": ["c", "d"],
        "keys": ["a", "b"],
        "lineage": "invoice-42",
        "lock": [["range", B], ["timeout", A]],
        "peer": "executor",
        "present": False,
        "status": "read_only",
        "void": 9,
    }
    assert set(PLAIN.to_value()) == {field.name for field in attrs.fields(Member)}


def test_the_words_of_the_ledger_are_those_of_the_design() -> None:
    assert [status.value for status in Status] == ["active", "suspect", "read_only"]
    assert EVENT_KINDS == ("compacted", "shrunk", "superseded", "restored")
    assert list(Absent) == [ABSENT]


def test_a_membership_belongs_to_the_lineage_or_to_the_name() -> None:
    assert member_id("executor", "invoice-42") == "lineage:invoice-42"
    assert member_id("scout", None) == "peer:scout"


def test_a_member_knows_what_it_has_to_present_and_what_was_kept() -> None:
    assert WHOLE.known == {"a", "b", "c", "d"}
    assert PLAIN.active
    assert not WHOLE.active
    assert not attrs.evolve(WHOLE, status=Status.SUSPECT).active


JUNK: list[Any] = [None, True, 0, -1, 1.0, 1 << 53, "", " x", "x\n", "\ud800", A.upper(), A[:-1], A + "0", b"a", [], {}]
WRONG: list[tuple[Any, str, Any]] = [
    *((SEEN, name, junk) for name in ("ledger", "key") for junk in JUNK if junk not in (A.upper(), A[:-1], A + "0")),
    *((record, "digest", junk) for record in (SEEN, HELD) for junk in JUNK),
    *((record, "revision", junk) for record in (SEEN, HELD) for junk in JUNK),
    *((SEEN, "position", junk) for junk in JUNK),
    *((HELD, "seq", junk) for junk in JUNK),
    *((WHOLE, name, junk) for name in ("peer", "lineage") for junk in (True, 0, "", " x", "\ud800", [])),
    (PLAIN, "peer", "other"),
    (PLAIN, "lineage", "scout"),
    (WHOLE, "lineage", None),
    (WHOLE, "id", "lineage:invoice-43"),
    (WHOLE, "id", "peer:executor"),
    (WHOLE, "id", None),
    *((WHOLE, "status", junk) for junk in (None, "READ_ONLY", "idle", [], 0)),
    *((WHOLE, "cause", junk) for junk in (None, 7, [], "\ud800")),
    *((WHOLE, "void", junk) for junk in (None, True, -1, 1.0, 1 << 53, "9")),
    *((WHOLE, "present", junk) for junk in (None, 0, 1, "false")),
    *((WHOLE, name, junk) for name in ("keys", "kept") for junk in (None, "ab", {}, [7], [""], ["x", "x"], ["y", "x"])),
    (WHOLE, "keys", ["a", "b", "c"]),
    *((WHOLE, "lock", junk) for junk in (None, {}, ["ab"], [["a"]], [["a", A, A]], [["a", "b"]], [[7, A]])),
    (WHOLE, "lock", [["\ud800", A]]),
    (WHOLE, "lock", [["b", A], ["a", A]]),
    (WHOLE, "lock", [["a", A], ["a", B]]),
    (PLAIN, "cause", "compaction"),
    (PLAIN, "kept", ["a"]),
    *((EVENT, name, junk) for name in ("ledger", "peer", "lineage") for junk in (True, 7, "", " x", "\ud800", [])),
    (EVENT, "ledger", None),
    (EVENT, "peer", None),
    *((EVENT, name, junk) for name in ("position", "revision") for junk in (True, 0, -1, 1.0, 1 << 53, "9")),
    (EVENT, "position", None),
    *((EVENT, "kind", junk) for junk in (None, "Compacted", "", [], 7)),
    *((EVENT, "text", junk) for junk in (None, 7, "\ud800", [])),
    *((EVENT, "time", junk) for junk in (None, True, -1, 1.0, 1 << 53)),
    *((EVENT, "detail", junk) for junk in (None, [], "x", {"a": 1.0}, {"ä": 1}, {"a": "\ud800"}, {7: 1})),
]


@pytest.mark.parametrize(("record", "field", "junk"), WRONG)
def test_a_malformed_field_is_corrupt(record: Any, field: str, junk: Any) -> None:
    with pytest.raises(CorruptError, match="stored"):
        type(record).from_value(record.to_value() | {field: junk})


def test_the_lineage_of_a_member_is_a_name() -> None:
    for junk in ("", " x", "\ud800"):
        with pytest.raises(CorruptError, match="lineage id"):
            Member.from_value(WHOLE.to_value() | {"lineage": junk, "id": f"lineage:{junk}"})


@pytest.mark.parametrize("record", [SEEN, HELD, PLAIN, WHOLE, EVENT])
def test_a_value_with_other_fields_is_corrupt(record: Any) -> None:
    whole = record.to_value()

    wrong: Any
    for wrong in (None, [], "x", {}, whole | {"more": 1}):
        with pytest.raises(CorruptError):
            type(record).from_value(wrong)
    for name in whole:
        with pytest.raises(CorruptError):
            type(record).from_value({other: part for other, part in whole.items() if other != name})


def test_the_first_position_and_revision_are_1() -> None:
    first = Seen("board", "a", 1, A, 1)

    assert Seen.from_value(first.to_value()) == first
    assert Held.from_value(Held(1, A, 1).to_value()) == Held(1, A, 1)
    assert Member.from_value(PLAIN.to_value()).void == 0
    made = attrs.evolve(EVENT, position=1, revision=1, time=0)
    assert Event.from_value(made.to_value()) == made
