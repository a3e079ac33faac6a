"""Compaction: what may stand as a summary, and which of its claims hold."""

from __future__ import annotations

import itertools
import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import CompactionConsistencyError, InvalidStateError
from cpstore.model.binding import Binding
from cpstore.model.compaction import Covered, EffectClaim, KeyClaim, TermClaim
from cpstore.model.ledger import Held, Member, Status
from cpstore.rules import compaction

A, B, C = "aa" * 32, "bb" * 32, "cc" * 32
TEXT = "The gateway was asked twice; the refund is done."

# --- the summary ------------------------------------------------------------------------------------------------------


def summary(value: Any, size: int = 60, covered_size: int = 9000) -> str:
    return compaction.check_summary(value, size, covered_size, "/messages/0")


def parts(*texts: str, kind: str = "text") -> list[dict[str, str]]:
    return [{"type": kind, "text": text} for text in texts]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (TEXT, TEXT),
        (f"\n {TEXT} ", TEXT),
        ("x" * 16, "x" * 16),
        ({"role": "assistant", "content": TEXT}, TEXT),
        ({"role": "user", "content": TEXT, "tool_calls": [], "function_call": None, "type": "message"}, TEXT),
        ({"content": parts(TEXT)}, TEXT),
        ({"content": tuple(parts(TEXT, kind="input_text"))}, TEXT),
        ({"content": parts(TEXT, kind="output_text")}, TEXT),
        ({"content": [{"type": "image", "text": "no"}, *parts(" ", TEXT, "", "end")]}, f"{TEXT}\nend"),
        ({"content": parts("12345678", " 12345678 ")}, "12345678\n12345678"),
        ('{"goal": "refund", "type": "summary", "done": ["order 17"]}',) * 2,
        ("[1, 2, 3, 4, 5, 6, 7]",) * 2,
        ('{"tool_calls": [], "content": "all is done"}',) * 2,
        ("The tool_use block and the tool_calls were handled.",) * 2,
        ('{"type": ["tool_use"], "role": 7, "content": 3}',) * 2,
    ],
)
def test_a_text_or_a_message_is_a_summary(value: Any, text: str) -> None:
    assert summary(value) == text


@pytest.mark.parametrize(
    "value",
    [None, 7, True, b"The gateway was asked twice", [TEXT], parts(TEXT), {}, {"text": TEXT}, {"content": None},
     {"content": 7}, {"content": {"text": TEXT}}],
)  # fmt: skip
def test_what_is_no_text_and_no_message_is_refused(value: Any) -> None:
    with pytest.raises(InvalidStateError, match="a text, or a message") as caught:
        summary(value)
    assert caught.value.path == "/messages/0"


@pytest.mark.parametrize(
    "value",
    ["", " \n\t", {"content": ""}, {"content": []}, {"content": parts("", " ")}, {"content": [TEXT]},
     {"content": [{"type": "image", "text": TEXT}, {"text": TEXT}, {"type": "text"}, {"type": "text", "text": 7}]}],
)  # fmt: skip
def test_a_summary_says_something(value: Any) -> None:
    with pytest.raises(InvalidStateError, match="has no text") as caught:
        summary(value)
    assert caught.value.path == "/messages/0"


@pytest.mark.parametrize("value", ["x", "x" * 15, f" {'x' * 15}\n", {"content": parts("1234567", "12345678")}])
def test_a_summary_of_fewer_than_16_characters_is_refused(value: Any) -> None:
    with pytest.raises(InvalidStateError, match="at least 16") as caught:
        summary(value)
    assert caught.value.path == "/messages/0"


PROTOCOL: list[dict[str, Any]] = [
    {"role": "assistant", "content": TEXT, "tool_calls": [{"id": "1"}]},
    {"role": "assistant", "content": TEXT, "function_call": {"name": "pay"}},
    {"role": "tool", "content": TEXT},
    {"role": "function", "content": TEXT},
    *(
        {"type": kind, "content": TEXT}
        for kind in (
            "tool_use", "tool_result", "tool_call", "function_call", "function_call_output", "reasoning", "thinking",
            "tool", "function",
        )
    ),
    {"content": [*parts(TEXT), {"type": "tool_use", "name": "pay", "input": {}}]},
    {"content": [{"type": "thinking", "thinking": "hm"}, *parts(TEXT)]},
]  # fmt: skip


@pytest.mark.parametrize("value", PROTOCOL)
def test_tool_protocol_and_reasoning_are_no_summary(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidStateError, match="a tool call, a tool result or reasoning") as caught:
        summary(value)
    assert caught.value.path == "/messages/0"


@pytest.mark.parametrize("value", PROTOCOL)
def test_the_json_of_tool_protocol_is_no_summary(value: dict[str, Any]) -> None:
    spelled = json.dumps(value, indent=1)
    for shown in (spelled, f" {spelled}\n", json.dumps([value]), {"content": spelled}):
        with pytest.raises(InvalidStateError, match="the JSON of a tool call") as caught:
            summary(shown)
        assert caught.value.path == "/messages/0"
    half = len(spelled) // 2
    for texts in ((TEXT, spelled), (spelled, TEXT)):
        with pytest.raises(InvalidStateError, match="the JSON of a tool call"):
            summary({"content": parts(*texts)})
    assert summary(spelled[:half]) == spelled[:half].strip()


def test_json_cut_into_two_parts_is_read_as_one() -> None:
    with pytest.raises(InvalidStateError, match="the JSON of a tool call"):
        summary({"content": parts('{"type": "tool_use",', '"input": {"order": 17}}')})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[" * 900 + "]" * 900, '{"content":' * 900 + "1" + "}" * 900, "9" * 9000]
)
def test_a_text_of_any_depth_is_looked_at(text: str) -> None:
    assert summary(text, covered_size=10**6) == text


@pytest.mark.parametrize(
    ("size", "covered", "passes"), [(60, 61, True), (60, 60, False), (61, 60, False), (1, 0, False)]
)
def test_a_summary_is_smaller_than_what_it_covers(size: int, covered: int, passes: bool) -> None:
    if passes:
        assert summary(TEXT, size, covered) == TEXT
    else:
        with pytest.raises(InvalidStateError, match=f"takes {size} bytes, what it covers {covered}") as caught:
            summary(TEXT, size, covered)
        assert caught.value.path == "/messages/0"


# --- its place --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("covered", "level"), [((), 1), ((1,), 2), ((1, 3, 2), 4)])
def test_a_summary_is_one_level_above_those_it_covers(covered: tuple[int, ...], level: int) -> None:
    assert compaction.level(covered) == level


@pytest.mark.parametrize(
    ("head", "previous", "span"), [(1, None, (1, 1)), (9, None, (1, 9)), (9, 0, (1, 9)), (9, 4, (4, 9)), (9, 9, (9, 9))]
)
def test_a_compaction_goes_on_where_the_one_before_it_ended(head: int, previous: int | None, span: Any) -> None:
    assert compaction.span(head, previous) == span


@pytest.mark.parametrize(("head", "previous"), [(0, None), (0, 0), (3, 4)])
def test_there_is_something_to_compact(head: int, previous: int | None) -> None:
    with pytest.raises(InvalidStateError, match="to compact"):
        compaction.span(head, previous)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_compactions_tile_the_revisions_without_hole_or_overlap(acts: list[bool]) -> None:
    head, made, spans = 1, None, []
    for compacts in acts:
        if compacts:
            spans.append(compaction.span(head, made))
            made = head + 1
        head += 1

    covered = [revision for first, last in spans for revision in range(first, last + 1)]
    assert covered == list(range(1, spans[-1][1] + 1 if spans else 1))
    assert all(first <= last for first, last in spans)
    assert all(first == last + 1 for (_, last), (first, _) in itertools.pairwise(spans))


# --- what it covers ---------------------------------------------------------------------------------------------------

ITEMS = Covered("/messages", 0, 80, A, 91_000)
MORE = Covered("/messages", 85, 90, C, 100)
GONE = Covered("/plan", None, None, B, 3000)
COMPUTED = (ITEMS, MORE, GONE)
UNSAID = tuple(attrs.evolve(covered, digest="", size=0) for covered in COMPUTED)


@pytest.mark.parametrize("claimed", [None, COMPUTED, COMPUTED[::-1], UNSAID, (UNSAID[0], *COMPUTED), iter(COMPUTED)])
def test_what_is_claimed_as_computed_passes(claimed: Any) -> None:
    compaction.check_covers(claimed, COMPUTED)


@pytest.mark.parametrize(
    "claimed",
    [
        (),
        (ITEMS, GONE),
        (*COMPUTED, Covered("/other", None, None, A, 1)),
        (attrs.evolve(ITEMS, stop=79), MORE, GONE),
        (attrs.evolve(ITEMS, start=1), MORE, GONE),
        (attrs.evolve(ITEMS, path="/mail"), MORE, GONE),
        (attrs.evolve(ITEMS, digest=B), MORE, GONE),
        (ITEMS, MORE, attrs.evolve(GONE, digest=A)),
        (ITEMS, MORE, attrs.evolve(GONE, start=0, stop=1)),
        (attrs.evolve(ITEMS, digest=B), *COMPUTED),
    ],
)
def test_another_range_or_digest_than_computed_is_refused_with_both(claimed: tuple[Covered, ...]) -> None:
    with pytest.raises(CompactionConsistencyError) as caught:
        compaction.check_covers(claimed, COMPUTED)

    said, _, found = str(caught.value).partition("what the previous state held")
    assert "/messages[0:80] (aaaaaaaa…), /messages[85:90] (cccccccc…), /plan (bbbbbbbb…)" in found
    for covered in claimed:
        assert covered.path in said
    assert claimed or "covers nothing;" in said


def test_a_range_is_shown_without_a_digest_that_was_not_claimed() -> None:
    with pytest.raises(CompactionConsistencyError, match=r"covers /messages\[0:79\], the whole state; what"):
        compaction.check_covers([Covered("/messages", 0, 79, "", 0), Covered("", None, None, "", 0)], COMPUTED)


def test_nothing_covered_is_no_compaction() -> None:
    for claimed in (None, (), COMPUTED):
        with pytest.raises(InvalidStateError, match=r"nothing was compacted.*use commit"):
            compaction.check_covers(claimed, ())


@pytest.mark.parametrize("junk", [None, "/messages", ("/messages", 0, 80)])
def test_what_is_no_range_is_refused(junk: Any) -> None:
    with pytest.raises(InvalidStateError, match="Covered"):
        compaction.check_covers([*COMPUTED, junk], COMPUTED)


# --- its claims -------------------------------------------------------------------------------------------------------

TERM = TermClaim("timeout", "request timeout")
EFFECT = EffectClaim("refund", "17", "completed")
KEY = KeyClaim("board", "task-b", 3, A)
TERMS = {"timeout": Binding("timeout", "request timeout", "unit: ms")}
EFFECTS = {("refund", "17", 1): "completed", ("refund", "17", 2): "started", ("refund", "18", 1): ""}
VALUES = {("board", "task-b"): Held(3, A, 9)}


def unbacked(*claims: Any) -> tuple[Any, ...]:
    return compaction.check_claims(
        claims,
        terms=TERMS,
        effects=lambda claim: EFFECTS.get((claim.name, claim.key, claim.occurrence)),
        keys=lambda claim: VALUES.get((claim.ledger, claim.key)),
    )


def test_claims_that_hold_are_backed() -> None:
    assert unbacked() == ()
    assert unbacked(TERM, EFFECT, KEY, attrs.evolve(EFFECT, occurrence=2, state="started")) == ()


def test_claims_without_a_source_are_told() -> None:
    term, key = attrs.evolve(TERM, symbol="retries"), attrs.evolve(KEY, key="task-c")
    effect = attrs.evolve(EFFECT, occurrence=3)

    assert unbacked(key, TERM, term, EFFECT, effect, KEY) == (key, term, effect)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (
            attrs.evolve(TERM, definition="retry timeout"),
            "'timeout': claimed 'retry timeout', recorded 'request timeout'",
        ),
        (attrs.evolve(TERM, definition="Request timeout"), "claimed 'Request timeout'"),
        (attrs.evolve(EFFECT, state="failed"), "claimed 'failed', recorded 'completed'"),
        (attrs.evolve(EFFECT, occurrence=2), "occurrence 2: claimed 'completed', recorded 'started'"),
        (attrs.evolve(EFFECT, key="18"), "recorded ''"),
        (attrs.evolve(KEY, revision=2), r"claimed revision 2 \(aaaaaaaa…\), recorded revision 3 \(aaaaaaaa…\)"),
        (attrs.evolve(KEY, revision=4), "claimed revision 4"),
        (attrs.evolve(KEY, digest=B), r"claimed revision 3 \(bbbbbbbb…\)"),
    ],
)
def test_a_claim_that_says_another_thing_than_its_source_is_refused(claim: Any, said: str) -> None:
    with pytest.raises(CompactionConsistencyError, match=said):
        unbacked(TERM, claim, attrs.evolve(TERM, symbol="retries"))


def test_all_mismatches_are_told_at_once_and_nothing_else() -> None:
    with pytest.raises(CompactionConsistencyError) as caught:
        unbacked(
            attrs.evolve(TERM, definition="x"),
            EFFECT,
            attrs.evolve(EFFECT, state="failed"),
            attrs.evolve(KEY, revision=1),
        )

    said = str(caught.value)
    assert said.count("claimed") == 3
    assert all(word in said for word in ("'timeout'", "'failed'", "'task-b' of ledger 'board'", "correct the summary"))


@pytest.mark.parametrize(
    "junk",
    [None, "timeout", ("timeout", "x"), attrs.evolve(TERM, symbol=""), attrs.evolve(TERM, definition=7),
     attrs.evolve(EFFECT, occurrence=True), attrs.evolve(KEY, revision=0), attrs.evolve(KEY, digest="aa")],
)  # fmt: skip
def test_what_is_no_claim_is_refused(junk: Any) -> None:
    with pytest.raises(InvalidStateError, match="claim"):
        unbacked(TERM, junk)


# --- what is kept -----------------------------------------------------------------------------------------------------

MEMBERS = {
    "board": Member("lineage:x", "x", "x", keys=("a", "b")),
    "desk": Member("lineage:x", "x", "x", Status.READ_ONLY, "compaction", 4, ("b", "d"), kept=("c",)),
}
HELD = {
    ("board", "a"): Held(1, A, 1),
    ("board", "b"): Held(2, B, 2),
    ("desk", "b"): Held(3, C, 3),
    ("desk", "c"): Held(4, C, 4),
    ("board", "c"): Held(9, C, 9),
}
STATE = {"/a": A, "/b": B, "/c": C, "": A}


def kept(given: Any, members: Any = MEMBERS) -> dict[str, dict[str, str]]:
    return compaction.check_kept(given, members, lambda ledger, key: HELD.get((ledger, key)), STATE.get)


def test_a_key_whose_value_stands_whole_is_kept() -> None:
    assert kept({}) == {}
    assert kept({"a": "/a", "c": "/c"}) == {"board": {"a": "/a"}, "desk": {"c": "/c"}}
    assert kept({("board", "b"): "/b", ("desk", "b"): "/c", "a": ""}) == {
        "board": {"b": "/b", "a": ""}, "desk": {"b": "/c"},
    }  # fmt: skip
    assert kept({"b": "/b"}, {"board": MEMBERS["board"]}) == {"board": {"b": "/b"}}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("b", "'board', 'desk' all have a key 'b'.*name one"),
        ("x", "no ledger of this lineage has a key 'x'"),
        (("shelf", "b"), "no peer of ledger 'shelf'; it is of 'board', 'desk'"),
        (("board", "c"), "no key 'c' of ledger 'board'"),
        (("board", "a", 1), "not \\('board'"),
        (("board",), "not \\('board'"),
        (7, "not 7"),
        (None, "not None"),
        (("board", 7), "key"),
        ((7, "a"), "ledger"),
    ],
)
def test_a_key_belongs_to_exactly_one_ledger(named: Any, said: str) -> None:
    with pytest.raises(InvalidStateError, match=said):
        kept({named: "/b"})


def test_a_lineage_of_no_ledger_keeps_no_key() -> None:
    with pytest.raises(InvalidStateError, match="it is of none"):
        kept({("board", "a"): "/a"}, {})
    with pytest.raises(InvalidStateError, match="no ledger"):
        kept({"a": "/a"}, {})


@pytest.mark.parametrize("path", ["a", "/~", None, 7])
def test_the_value_stands_at_a_json_pointer(path: Any) -> None:
    with pytest.raises(InvalidStateError, match=r"path|Pointer"):
        kept({"a": path})


def test_a_key_is_named_once() -> None:
    with pytest.raises(InvalidStateError, match="'a' of ledger 'board' twice"):
        kept({"a": "/a", ("board", "a"): "/a"})


def test_every_value_that_does_not_stand_is_told_and_nothing_else() -> None:
    with pytest.raises(CompactionConsistencyError) as caught:
        kept({"a": "/b", ("board", "b"): "/b", "c": "/nowhere", "d": "/c"})

    said = str(caught.value)
    assert "key 'a' of ledger 'board': the ledger has revision 1 (aaaaaaaa…), at /b stands another value (bbb" in said
    assert "key 'c' of ledger 'desk': the ledger has revision 4 (cccccccc…), at /nowhere stands nothing" in said
    assert "key 'd' of ledger 'desk': the ledger has nothing, at /c stands another value (cccccccc…)" in said
    assert "key 'b'" not in said


def test_nothing_does_not_stand_for_nothing() -> None:
    with pytest.raises(CompactionConsistencyError, match="the ledger has nothing, at /nowhere stands nothing"):
        kept({"d": "/nowhere"})
