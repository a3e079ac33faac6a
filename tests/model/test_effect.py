"""Effects: policies, identity, canonical form, and what cannot be read."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore import canonical
from cpstore.errors import CorruptError
from cpstore.model.effect import TEXT_MAX, Effect, EffectId, EffectPolicy, EffectState, Owner, Place

A, B = "ab" * 32, "0c" * 32
READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE = EffectPolicy
ID = EffectId("default", "family", "invoice-42", "refund", "order-17")
PLAIN = Effect(ID, keyed=True, policy=AT_MOST_ONCE, arguments=A, state=EffectState.STARTED, attempt=1)
WHOLE = Effect(
    EffectId("default", "lineage", "invoice-42/worker", "refund", A, 3), keyed=False, policy=RECONCILABLE, arguments=A,
    state=EffectState.COMPENSATED, attempt=2, owner=Owner("m/1", "p", 7, 100), result=B,
    argued=Place("invoice-42/worker", 3), resulted=Place("invoice-42", 9), recorded=True, evidence=4, who="ada",
    why="refunded by hand", error="timeout",
)  # fmt: skip

NAMES = st.text(st.characters(categories=["Lu", "Nd", "So"]), min_size=1, max_size=6)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
STEPS = st.integers(0, canonical.MAX_INTEGER)
COUNTS = st.integers(1, canonical.MAX_INTEGER)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
PLACES = st.builds(Place, NAMES, COUNTS)


@st.composite
def effects(draw: st.DrawFn) -> Effect:
    keyed, arguments = draw(st.booleans()), draw(DIGESTS)
    scope = draw(st.sampled_from(["family", "lineage"]))
    key = draw(NAMES) if keyed else arguments
    return Effect(
        id=EffectId("default", scope, draw(NAMES), draw(NAMES), key, draw(COUNTS)),
        keyed=keyed,
        policy=draw(st.sampled_from(EffectPolicy)),
        arguments=arguments,
        state=draw(st.sampled_from(EffectState)),
        attempt=draw(STEPS),
        owner=draw(st.none() | st.builds(Owner, TEXTS, TEXTS, STEPS, STEPS)),
        result=draw(st.none() | DIGESTS),
        argued=draw(st.none() | PLACES),
        resulted=draw(st.none() | PLACES),
        recorded=draw(st.booleans()),
        evidence=draw(STEPS),
        who=draw(TEXTS),
        why=draw(TEXTS),
        error=draw(TEXTS),
    )


@given(effects())
def test_what_is_stored_reads_back_equal(record: Effect) -> None:
    value = canonical.decode(canonical.encode(record.to_value()))
    assert Effect.from_value(value, "default") == record


@given(effects(), effects())
def test_two_effects_with_one_spelling_are_one(one: Effect, other: Effect) -> None:
    assert (one.to_value() == other.to_value()) is (one == other)


def test_the_canonical_form_leaves_out_what_is_as_usual() -> None:
    assert PLAIN.to_value() == {
        "arguments": A,
        "attempt": 1,
        "key": "order-17",
        "lineage": "invoice-42",
        "name": "refund",
        "policy": "at_most_once",
        "state": "started",
    }
    assert WHOLE.to_value() == {
        "argued": ["invoice-42/worker", 3],
        "arguments": A,
        "attempt": 2,
        "error": "timeout",
        "evidence": 4,
        "lineage": "invoice-42/worker",
        "name": "refund",
        "occurrence": 3,
        "owner": ["m/1", "p", 7, 100],
        "policy": "reconcilable",
        "recorded": True,
        "result": B,
        "resulted": ["invoice-42", 9],
        "scope": "lineage",
        "state": "compensated",
        "who": "ada",
        "why": "refunded by hand",
    }


# --- words ------------------------------------------------------------------------------------------------------------


def test_policies_are_ordered_from_weak_to_strong() -> None:
    policies = [READ_ONLY, IDEMPOTENT, RECONCILABLE, AT_MOST_ONCE]
    assert [policy.value for policy in policies] == ["read_only", "idempotent", "reconcilable", "at_most_once"]
    assert [policy.rank for policy in policies] == [0, 1, 2, 3]
    for policy in policies:
        for other in policies:
            assert (policy < other) is (policy.rank < other.rank)
            assert (policy >= other) is (policy.rank >= other.rank)
    assert [policy.repeatable for policy in policies] == [True, True, False, False]
    with pytest.raises(TypeError):
        _ = READ_ONLY < "idempotent"


def test_what_the_states_say() -> None:
    assert [(state.value, state.settled, state.happened) for state in EffectState] == [
        ("started", False, False),
        ("completed", True, True),
        ("failed", True, False),
        ("happened", True, True),
        ("not_happened", True, False),
        ("compensated", True, False),
        ("cancelled", True, False),
    ]


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("scope", ["family", "lineage"])
@pytest.mark.parametrize("policy", EffectPolicy)
def test_the_class_by_which_a_restore_judges_an_effect(
    policy: EffectPolicy, scope: str, keyed: bool, recorded: bool
) -> None:
    effect = attrs.evolve(PLAIN, id=attrs.evolve(ID, scope=scope), policy=policy, keyed=keyed, recorded=recorded)
    others = {("family", True): 2, ("lineage", True): 4, ("family", False): 3, ("lineage", False): 3}
    usual = {"family": 2, "lineage": 4}[scope]
    judged = others[scope, keyed] if recorded else usual
    assert effect.kind == {READ_ONLY: 0, IDEMPOTENT: 1}.get(policy, judged)


# --- identity ---------------------------------------------------------------------------------------------------------


def test_the_digest_of_an_identity_is_that_of_its_canonical_form() -> None:
    spelled = b'{"key":"order-17","lineage":"invoice-42","name":"refund","namespace":"default","occurrence":1,'
    spelled += b'"scope":"family"}'
    assert ID.digest == hashlib.sha256(b"cpstore/effect/v1\n" + spelled).digest()
    forwarded = hashlib.sha256(b"cpstore/effect-key/v1\nstore-1\n" + ID.digest).hexdigest()
    assert ID.forwarded("store-1") == forwarded


IDS = st.builds(EffectId, NAMES, st.sampled_from(["family", "lineage"]), NAMES, NAMES, NAMES, COUNTS)


@given(IDS, IDS)
def test_identities_and_keys_are_equal_exactly_where_all_fields_are(one: EffectId, other: EffectId) -> None:
    assert (one.digest == other.digest) is (one == other)
    assert (one.forwarded("s") == other.forwarded("s")) is (one == other)
    assert one.forwarded("s") != one.forwarded("t")


@pytest.mark.parametrize("field", [field.name for field in attrs.fields(EffectId)])
def test_every_field_tells_effects_apart(field: str) -> None:
    other = attrs.evolve(ID, **{field: 2 if field == "occurrence" else "other"})
    assert other.digest != ID.digest
    assert other.forwarded("s") != ID.forwarded("s")


def test_an_effect_is_named_so_that_a_person_knows_it() -> None:
    assert str(ID) == "'refund' (key order-17)"
    assert str(attrs.evolve(ID, occurrence=2)) == "'refund' #2 (key order-17)"
    assert str(attrs.evolve(ID, key=A)) == f"'refund' (key {A[:20]})"
    assert str(Owner("m/1", "p", 7, 100)) == "process 7"


# --- what cannot be read ----------------------------------------------------------------------------------------------

NUMBERS: tuple[Any, ...] = (True, False, -1, 1.0, "1", 1 << 53, [], None)
WORDS: tuple[Any, ...] = (True, 0, 7, [], {}, None, "\ud800", "x" * (TEXT_MAX + 1))
HEX: tuple[Any, ...] = (True, 0, "", "x", A.upper(), A[:-1], A + "0", [], b"a")
NAMED: tuple[Any, ...] = (True, 0, " x", "x\n", "\ud800", "x" * 256, [], {})
WRONG: list[tuple[str, Any]] = [
    *(("arguments", junk) for junk in (*HEX, None)),
    *(("result", junk) for junk in (*HEX, None)),
    *((name, junk) for name in ("lineage", "name") for junk in (*NAMED, "", None)),
    *(("key", junk) for junk in (*NAMED, "", None)),
    *((name, junk) for name in ("attempt", "evidence", "occurrence") for junk in NUMBERS),
    ("evidence", 0),
    ("occurrence", 0),
    ("occurrence", 1),
    *(("policy", junk) for junk in (None, "AT_MOST_ONCE", "", 3, [], {}, True)),
    *(("state", junk) for junk in (None, "STARTED", "in_doubt", "", 0, [], {}, True)),
    *(("scope", junk) for junk in (None, "family", "namespace", "", 0, [], {})),
    *((name, junk) for name in ("who", "why", "error") for junk in (*WORDS, "")),
    *(("recorded", junk) for junk in (False, None, 0, 1, "true", [])),
    *(("owner", junk) for junk in (None, True, 7, "", "abcd", [], {}, ["m", "p", 7], ["m", "p", 7, 100, 1])),
    *(("owner", ["m", "p", junk, 100]) for junk in NUMBERS),
    *(("owner", ["m", "p", 7, junk]) for junk in NUMBERS),
    *(("owner", [junk, "p", 7, 100]) for junk in WORDS),
    *(("owner", ["m", junk, 7, 100]) for junk in WORDS),
    ("owner", ("m", "p", 7, 100)),
    ("owner", {"m": 1, "p": 2, "q": 3, "r": 4}),
    *(
        (name, junk)
        for name in ("argued", "resulted")
        for junk in (None, True, 7, "", "ab", [], {}, ["a"], ["a", 1, 2], ("a", 1))
    ),
    *((name, ["a", junk]) for name in ("argued", "resulted") for junk in (*NUMBERS, 0)),
    *((name, [junk, 3]) for name in ("argued", "resulted") for junk in (*NAMED, "", None)),
]
KEYED = attrs.evolve(WHOLE, keyed=True, id=attrs.evolve(WHOLE.id, key="order-17"))


@pytest.mark.parametrize(("field", "junk"), WRONG)
def test_a_malformed_field_is_corrupt(field: str, junk: Any) -> None:
    value = KEYED.to_value()
    assert Effect.from_value(dict(value), "default") == KEYED
    with pytest.raises(CorruptError, match="stored effect"):
        Effect.from_value(value | {field: junk}, "default")


@pytest.mark.parametrize("wrong", [None, [], "x", 7, True, {}, [PLAIN.to_value()], PLAIN.to_value() | {"more": 1}])
def test_a_value_with_other_fields_is_corrupt(wrong: Any) -> None:
    with pytest.raises(CorruptError, match="stored effect"):
        Effect.from_value(wrong, "default")


@pytest.mark.parametrize("name", ["arguments", "attempt", "lineage", "name", "policy", "state"])
def test_a_value_without_a_field_that_every_effect_has_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptError):
        Effect.from_value({key: part for key, part in PLAIN.to_value().items() if key != name}, "default")


def test_the_least_and_the_most_can_be_read() -> None:
    first = attrs.evolve(PLAIN, attempt=0, argued=Place("a", 1), who="x" * TEXT_MAX, owner=Owner("", "", 0, 0))
    assert Effect.from_value(first.to_value(), "default") == first
    last = attrs.evolve(PLAIN, attempt=canonical.MAX_INTEGER, evidence=canonical.MAX_INTEGER)
    assert Effect.from_value(last.to_value(), "default") == last
    assert Effect.from_value(PLAIN.to_value(), "other").id.namespace == "other"
