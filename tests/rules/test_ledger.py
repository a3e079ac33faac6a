"""The shared ledger: what a write cites, what a peer has to read again, and properties of any history."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import (
    CheckpointStoreError,
    ConflictError,
    InvalidStateError,
    PeerReadOnlyError,
    SemanticDriftError,
    StaleWriteError,
)
from cpstore.model.ledger import ABSENT, Held, Member, Seen, Status, member_id
from cpstore.rules import ledger
from cpstore.rules.ledger import Put

A, B, C = "aa" * 32, "bb" * 32, "cc" * 32
LOCK = (("range", B), ("timeout", A))
SCOUT = Member("peer:scout", "scout", None)
ME = Member("lineage:invoice-42", "executor", "invoice-42", void=5, keys=("a", "b"), lock=LOCK)
OTHER = Member("lineage:plan", "planner", "plan", lock=LOCK)
READ_ONLY = attrs.evolve(ME, status=Status.READ_ONLY, cause="compaction")
SUSPECT = attrs.evolve(ME, status=Status.SUSPECT, cause="uncited write")
HELD = {"a": Held(3, A, 4), "b": Held(1, B, 2)}
NEW = Put("n", ABSENT, C)


def seen(key: str = "a", revision: int = 3, digest: str = A, position: int = 6, board: str = "board") -> Seen:
    return Seen(board, key, revision, digest, position)


def write(*puts: Put, member: Member = ME, held: Any = HELD, others: Any = ()) -> tuple[dict[str, int], Member]:
    return ledger.write("board", member, puts, held, others)


# --- write ------------------------------------------------------------------------------------------------------------


def test_a_write_raises_the_revision_of_each_key_and_the_member_knows_them() -> None:
    revisions, member = write(Put("a", seen(), C), Put("n", ABSENT, C), Put("m", None, C))

    assert revisions == {"a": 4, "n": 1, "m": 1}
    assert member == attrs.evolve(ME, keys=("a", "b", "m", "n"))
    assert write(Put("b", seen("b", 1, B), A)) == ({"b": 2}, ME)


def test_a_citation_counts_that_was_read_just_after_the_void() -> None:
    assert write(Put("a", seen(position=6), C))[0] == {"a": 4}
    assert write(Put("a", seen(position=1), C), member=attrs.evolve(ME, void=0))[0] == {"a": 4}


def test_an_empty_batch_and_one_key_twice_are_refused() -> None:
    with pytest.raises(InvalidStateError, match="no keys"):
        write()
    with pytest.raises(InvalidStateError, match="'n' stands twice"):
        write(NEW, Put("a", seen(), C), NEW)


@pytest.mark.parametrize("key", ["", " a", "a\n", 7, None])
def test_a_key_is_a_name(key: Any) -> None:
    with pytest.raises(InvalidStateError, match="key"):
        ledger.check_key(key)
    with pytest.raises(InvalidStateError, match="key"):
        write(Put(key, ABSENT, C))
    assert ledger.check_key("task b") == "task b"


def test_who_left_writes_nothing() -> None:
    with pytest.raises(InvalidStateError, match=r"'board'.*'executor'.*join first"):
        write(NEW, member=attrs.evolve(ME, present=False))


@pytest.mark.parametrize("member", [READ_ONLY, SUSPECT])
def test_a_member_that_is_not_active_writes_nothing_not_even_a_new_key(member: Member) -> None:
    for put in (NEW, Put("a", seen(), C), Put("a", None, C)):
        with pytest.raises(PeerReadOnlyError) as caught:
            write(put, member=member)
        error = caught.value
        assert (error.ledger, error.peer, error.status) == ("board", "executor", member.status.value)
        assert (error.keys, error.problem) == (("a", "b"), member.cause)


@pytest.mark.parametrize(
    ("citation", "said"),
    [
        (3, "no citation"),
        (A, "no citation"),
        (("board", "a", 3, A, 6), "no citation"),
        (False, "no citation"),
        (Held(3, A, 4), "no citation"),
        (seen(board="desk"), "of ledger 'desk'"),
        (seen("b", 1, B), "of key 'b'"),
        (seen(revision=3.0), "malformed"),  # type: ignore[arg-type]
        (seen(position="6"), "malformed"),  # type: ignore[arg-type]
        (seen(position=True), "malformed"),
        (seen(digest=b"a"), "malformed"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_citation_of_this_key_is_refused(citation: Any, said: str) -> None:
    with pytest.raises(InvalidStateError, match=said) as caught:
        write(NEW, Put("a", citation, C))
    assert "'board'" in str(caught.value)


def test_no_citation_of_a_key_that_exists_is_refused_with_suspicion() -> None:
    with pytest.raises(StaleWriteError, match="suspect now") as caught:
        write(Put("a", None, C), NEW, Put("b", None, C))

    assert caught.value.suspect
    assert caught.value.stale == (
        ("a", "nothing", "revision 3 (aaaaaaaa…)"),
        ("b", "nothing", "revision 1 (bbbbbbbb…)"),
    )


@pytest.mark.parametrize(
    ("citation", "cited"),
    [
        (seen(revision=2), "revision 2 (aaaaaaaa…)"),
        (seen(revision=2, digest=B), "revision 2 (bbbbbbbb…)"),
        (seen(digest=B), "revision 3 (bbbbbbbb…)"),
        (seen(revision=4), "revision 4 (aaaaaaaa…)"),
        (seen(revision=4, digest=B), "revision 4 (bbbbbbbb…)"),
        (ABSENT, "that there is none"),
    ],
)
def test_a_citation_of_another_value_is_stale(citation: Any, cited: str) -> None:
    with pytest.raises(StaleWriteError) as caught:
        write(NEW, Put("a", citation, C))

    assert not caught.value.suspect
    assert caught.value.stale == (("a", cited, "revision 3 (aaaaaaaa…)"),)


@pytest.mark.parametrize("position", [1, 4, 5])
def test_what_was_read_before_the_void_is_stale_although_nothing_changed(position: int) -> None:
    with pytest.raises(StaleWriteError) as caught:
        write(Put("a", seen(position=position), C))

    assert not caught.value.suspect
    [(key, cited, current)] = caught.value.stale
    assert (key, current) == ("a", "revision 3 (aaaaaaaa…)")
    assert f"as read at {position}, before" in cited
    assert "at 5" in cited


def test_a_citation_of_a_key_that_does_not_exist_is_stale() -> None:
    with pytest.raises(StaleWriteError) as caught:
        write(Put("n", seen("n", 1, C), C))

    assert caught.value.stale == (("n", "revision 1 (cccccccc…)", "nothing"),)


def test_all_stale_keys_are_listed_and_the_sound_ones_are_not() -> None:
    held = HELD | {"c": Held(2, C, 3)}

    with pytest.raises(StaleWriteError) as caught:
        write(
            Put("c", ABSENT, A), Put("a", seen(), C), Put("b", seen("b", 1, B, 5), C), Put("x", seen("x"), C), held=held
        )

    assert [key for key, _, _ in caught.value.stale] == ["c", "b", "x"]


STALE = Put("a", seen(revision=2), C)
BLIND = Put("a", None, C)
FOREIGN = Put("b", seen("b", 1, B, board="desk"), C)
CLASHING = (attrs.evolve(OTHER, lock=(("timeout", C),)),)


@pytest.mark.parametrize(
    ("puts", "member", "kind", "said"),
    [
        ([BLIND, BLIND], attrs.evolve(ME, present=False), InvalidStateError, "twice"),
        ([BLIND], attrs.evolve(READ_ONLY, present=False), InvalidStateError, "join first"),
        ([BLIND, FOREIGN], READ_ONLY, PeerReadOnlyError, "read_only"),
        ([BLIND, FOREIGN], ME, InvalidStateError, "'desk'"),
        ([Put("b", seen("b", 9, B), C), BLIND], ME, StaleWriteError, "suspect"),
        ([STALE], ME, StaleWriteError, "decide again"),
        ([NEW], ME, SemanticDriftError, "timeout"),
    ],
)
def test_the_refusals_have_an_order(puts: list[Put], member: Member, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said):
        write(*puts, member=member, others=CLASHING)


# --- the glossaries of members ----------------------------------------------------------------------------------------


def test_two_meanings_of_one_symbol_are_refused_naming_only_those() -> None:
    others = (ME, OTHER, attrs.evolve(OTHER, id="lineage:x", peer="x", lock=(("new", C), ("range", B), ("timeout", C))))

    with pytest.raises(SemanticDriftError, match="supersede it in one of the lineages") as caught:
        write(NEW, others=others)

    assert caught.value.where == "ledger 'board'"
    assert caught.value.differences == (("timeout", "executor: aaaaaaaa", "x: cccccccc"),)


@pytest.mark.parametrize(
    "lock",
    [LOCK, (), (("timeout", A),), (("other", C),), (("other", C), ("range", B), ("timeout", A))],
)
def test_equal_and_unshared_symbols_do_not_clash(lock: tuple[tuple[str, str], ...]) -> None:
    assert ledger.clashes(ME, [attrs.evolve(OTHER, lock=lock)]) == ()


def test_every_clash_is_listed_in_order() -> None:
    one = attrs.evolve(OTHER, id="lineage:z", peer="z", lock=(("range", C), ("timeout", B)))
    two = attrs.evolve(OTHER, id="lineage:y", peer="y", lock=(("timeout", B),))

    assert ledger.clashes(ME, [one, two]) == (
        ("range", "executor: bbbbbbbb", "z: cccccccc"),
        ("timeout", "executor: aaaaaaaa", "y: bbbbbbbb"),
        ("timeout", "executor: aaaaaaaa", "z: bbbbbbbb"),
    )


def test_a_member_does_not_clash_with_itself_or_with_who_left() -> None:
    clashing = (("timeout", C),)

    assert ledger.clashes(ME, [attrs.evolve(ME, lock=clashing)]) == ()
    assert ledger.clashes(ME, [attrs.evolve(OTHER, lock=clashing, present=False)]) == ()
    assert ledger.clashes(ME, [attrs.evolve(OTHER, lock=clashing)]) != ()


# --- read, join, leave ------------------------------------------------------------------------------------------------


def test_a_read_is_remembered_once() -> None:
    assert ledger.read(ME, ["c", "a", "0"]) == attrs.evolve(ME, keys=("0", "a", "b", "c"))
    assert ledger.read(ME, ["b", "a"]) is None
    assert ledger.read(ME, []) is None
    assert ledger.read(attrs.evolve(READ_ONLY, kept=("k",)), ["k"]) is None


def join(member: Member | None = None, *present: Member, **more: Any) -> Member:
    given: dict[str, Any] = {
        "peer": "executor",
        "lineage": "invoice-42",
        "lock": LOCK,
        "compacted": False,
        "position": 9,
    }
    return ledger.join("board", member, present=present, **given | more)


def test_a_new_member_is_active() -> None:
    assert join(lock=reversed(LOCK)) == Member("lineage:invoice-42", "executor", "invoice-42", lock=LOCK)
    assert join(peer="scout", lineage=None, lock=()) == SCOUT


def test_a_new_member_whose_lineage_compacted_is_suspect_and_has_to_read() -> None:
    joined = join(compacted=True)

    assert (joined.status, joined.cause, joined.void) == (Status.SUSPECT, "compaction", 9)
    assert join(compacted=False).void == 0


@pytest.mark.parametrize("known", [ME, READ_ONLY, SUSPECT, attrs.evolve(READ_ONLY, kept=("k",))])
@pytest.mark.parametrize("compacted", [True, False])
def test_leaving_rejoining_and_renaming_clear_nothing(known: Member, compacted: bool) -> None:
    left = ledger.leave(known)
    new = (("timeout", C),)

    assert left == attrs.evolve(known, present=False)
    rejoined = join(left, peer="again", compacted=compacted, lock=new)
    assert rejoined == attrs.evolve(known, peer="again", present=True, lock=new)


def test_two_present_members_do_not_have_one_name() -> None:
    with pytest.raises(ConflictError, match=r"'board'.*'planner'"):
        join(None, OTHER, peer="planner")
    assert join(None, ledger.leave(OTHER), peer="planner").peer == "planner"
    assert join(None, OTHER).peer == "executor"
    assert join(ME, ME, OTHER) == ME


@pytest.mark.parametrize("peer", ["", " a", "a\n", None, 7])
def test_a_peer_has_a_name(peer: Any) -> None:
    with pytest.raises(InvalidStateError, match="peer name"):
        join(peer=peer)


def test_who_means_something_else_does_not_join() -> None:
    with pytest.raises(SemanticDriftError) as caught:
        join(None, OTHER, lock=(("range", B), ("timeout", C)))
    assert caught.value.differences == (("timeout", "executor: cccccccc", "planner: aaaaaaaa"),)
    with pytest.raises(SemanticDriftError):
        join(ME, ME, OTHER, lock=(("timeout", C),))
    assert join(None, ledger.leave(OTHER), lock=(("timeout", C),)).lock == (("timeout", C),)


# --- demote, suspected, revalidate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", [ME, SUSPECT, READ_ONLY, ledger.leave(ME)])
def test_a_compaction_voids_every_read_but_saves_presenting_what_is_kept(member: Member) -> None:
    demoted = ledger.demote(member, 9, "restore")

    assert demoted == attrs.evolve(member, status=Status.READ_ONLY, cause="restore", void=9)
    kept = ledger.demote(member, 9, "compaction", {"b": HELD["b"], "unread": HELD["a"]})
    assert (kept.keys, kept.kept) == (("a",), ("b",))
    assert (kept.status, kept.cause, kept.void) == (Status.READ_ONLY, "compaction", 9)


def test_the_next_compaction_asks_again_for_what_was_kept_before() -> None:
    once = ledger.demote(ME, 9, "compaction", {"a": HELD["a"]})

    assert ledger.demote(once, 11, "compaction", {"b": HELD["b"]}) == attrs.evolve(
        once, void=11, keys=("a",), kept=("b",)
    )
    assert ledger.suspected(once, 11, "shrunk") == attrs.evolve(once, void=11, keys=("a", "b"), kept=())


def test_doubt_makes_a_member_suspect_but_never_frees_a_read_only_one() -> None:
    doubted = attrs.evolve(ME, status=Status.SUSPECT, cause="shrunk", void=9)

    assert ledger.suspected(ME, 9, "shrunk") == doubted
    assert ledger.suspected(SUSPECT, 9, "shrunk") == doubted
    assert ledger.suspected(READ_ONLY, 9, "shrunk") == attrs.evolve(READ_ONLY, void=9)


BOTH = (seen(), seen("b", 1, B))


def revalidate(*shown: Any, member: Member = READ_ONLY, held: Any = HELD) -> Member:
    return ledger.revalidate("board", member, shown, held)


@pytest.mark.parametrize("member", [READ_ONLY, SUSPECT])
def test_who_presents_all_it_had_read_is_active_again(member: Member) -> None:
    assert revalidate(*BOTH, member=member) == ME
    more = revalidate(seen("c", 2, C), *BOTH, member=member, held=HELD | {"c": Held(2, C, 3)})
    assert more == attrs.evolve(ME, keys=("a", "b", "c"))


def test_who_had_read_nothing_presents_nothing() -> None:
    assert revalidate(member=attrs.evolve(SUSPECT, keys=())) == attrs.evolve(ME, keys=())


def test_kept_keys_are_known_again_without_being_presented() -> None:
    kept = ledger.demote(attrs.evolve(ME, keys=("a", "b", "c")), 9, "compaction", {"a": HELD["a"], "c": HELD["a"]})

    assert revalidate(seen("b", 1, B, 10), member=kept) == attrs.evolve(ME, void=9, keys=("a", "b", "c"))


@pytest.mark.parametrize(("shown", "missing"), [((), ("a", "b")), ((BOTH[1],), ("a",)), ((seen("c"),), ("a", "b"))])
@pytest.mark.parametrize("member", [READ_ONLY, SUSPECT])
def test_what_is_not_presented_is_named(shown: tuple[Seen, ...], missing: tuple[str, ...], member: Member) -> None:
    with pytest.raises(PeerReadOnlyError) as caught:
        revalidate(*shown, member=member)
    error = caught.value
    assert (error.ledger, error.peer, error.status) == ("board", "executor", member.status.value)
    assert (error.keys, error.problem) == (missing, "not presented")


@pytest.mark.parametrize(
    "stale",
    [seen(revision=2), seen(digest=B), seen(revision=4), seen(position=5), seen(position=1)],
)
def test_a_presented_read_that_is_stale_is_refused_by_every_status(stale: Seen) -> None:
    for member in (READ_ONLY, SUSPECT, ME):
        with pytest.raises(StaleWriteError) as caught:
            revalidate(stale, BOTH[1], member=member)
        assert caught.value.ledger == "board"
        assert [key for key, _, _ in caught.value.stale] == ["a"]
        assert not caught.value.suspect


def test_all_stale_reads_are_listed() -> None:
    with pytest.raises(StaleWriteError) as caught:
        revalidate(seen(position=5), seen("b", 2, B), seen("x", 1, C))

    assert [(key, current) for key, _, current in caught.value.stale] == [
        ("a", "revision 3 (aaaaaaaa…)"), ("b", "revision 1 (bbbbbbbb…)"), ("x", "nothing"),
    ]  # fmt: skip


def test_an_active_member_presents_what_it_likes() -> None:
    assert revalidate(BOTH[0], member=ME) == ME
    assert revalidate(member=ME) == ME
    added = revalidate(seen("c", 2, C), member=ME, held=HELD | {"c": Held(2, C, 3)})
    assert added == attrs.evolve(ME, keys=("a", "b", "c"))


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (ABSENT, "what read"),
        (None, "what read"),
        ("a", "what read"),
        (HELD["a"], "what read"),
        (seen(board="desk"), "'desk'"),
        (seen(position="6"), "malformed"),  # type: ignore[arg-type]
    ],
)
def test_only_reads_of_this_ledger_are_presented(shown: Any, said: str) -> None:
    with pytest.raises(InvalidStateError, match=said):
        revalidate(*BOTH, shown)


def test_who_left_does_not_revalidate() -> None:
    with pytest.raises(InvalidStateError, match="join first"):
        revalidate(*BOTH, member=ledger.leave(READ_ONLY))


# --- ack --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "cursor", "delivered", "after"),
    [(7, 5, 7, 7), (6, 5, 7, 6), (5, 5, None, 5), (3, 5, 7, 5), (0, 0, None, 0), (-1, 0, None, 0), (5, 5, 3, 5)],
)
def test_an_ack_moves_the_cursor_forward_only(position: int, cursor: int, delivered: int | None, after: int) -> None:
    assert ledger.acked("board", position, cursor=cursor, delivered=delivered) == after


@pytest.mark.parametrize(("position", "delivered"), [(8, 7), (6, None), (6, 5)])
def test_an_ack_of_what_was_not_delivered_is_refused(position: int, delivered: int | None) -> None:
    with pytest.raises(InvalidStateError, match=f"'board'.*{position} is not delivered yet.*poll first"):
        ledger.acked("board", position, cursor=5, delivered=delivered)


@pytest.mark.parametrize("position", [True, False, "6", 6.0, None, SCOUT])
def test_a_position_is_an_integer(position: Any) -> None:
    with pytest.raises(InvalidStateError, match="integer"):
        ledger.acked("board", position, cursor=5, delivered=7)


# --- any history ------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from("abc")
STEPS = st.lists(
    st.tuples(st.just("read"), KEYS)
    | st.tuples(st.just("write"), KEYS, st.sampled_from(["last", "none", "absent"]))
    | st.tuples(st.just("foreign write"), KEYS)
    | st.tuples(st.just("demote"), st.frozensets(KEYS))
    | st.tuples(st.just("shrink"))
    | st.tuples(st.just("revalidate"), st.booleans())
    | st.tuples(st.just("rejoin"), st.sampled_from(["executor", "again"])),
    max_size=25,
)


class World:
    """One member among others, and what it has truly read since its context was last voided."""

    def __init__(self) -> None:
        self.member = join()
        self.position = 1
        self.held: dict[str, Held] = {}
        self.reads: dict[str, Seen] = {}
        self.fresh: set[str] = set()

    def put(self, key: str) -> None:
        self.position += 1
        revision = self.held[key].revision + 1 if key in self.held else 1
        # Sometimes the same value again: a digest alone does not say that nothing happened.
        self.held[key] = Held(revision, A if self.position % 2 else B, self.position)

    def read(self, key: str) -> None:
        value = self.held.get(key)
        if value is not None:
            self.reads[key] = Seen("board", key, value.revision, value.digest, self.position)
            self.member = ledger.read(self.member, [key]) or self.member
            self.fresh.add(key)

    def void(self, member: Member) -> None:
        self.member = member
        self.fresh.clear()
        self.position += 1

    def write(self, key: str, how: str) -> None:
        cited: Any = {"last": self.reads.get(key), "none": None, "absent": ABSENT}[how]
        before = self.held.get(key)
        try:
            revisions, member = ledger.write("board", self.member, [Put(key, cited, C)], self.held, [self.member])
        except StaleWriteError as error:
            if error.suspect:
                self.void(ledger.suspected(self.member, self.position, "uncited write"))
            return
        except CheckpointStoreError:
            return
        assert self.member.active
        assert before is None or (how == "last" and key in self.fresh and self.reads[key].revision == before.revision)
        self.put(key)
        assert revisions == {key: self.held[key].revision}
        self.member = member
        self.fresh.discard(key)

    def revalidate(self, *, anew: bool) -> None:
        if anew:
            for key in sorted(self.member.keys):
                self.read(key)
        needed = set(self.member.keys)
        try:
            self.member = ledger.revalidate("board", self.member, self.reads.values(), self.held)
        except (StaleWriteError, PeerReadOnlyError):
            # A stale citation of another key that is presented along is refused too.
            assert not anew or set(self.reads) - needed
            return
        assert self.member.active
        assert set(self.reads) <= self.fresh
        assert needed <= set(self.member.keys)


@given(STEPS)
def test_nothing_is_written_over_what_was_not_read_since_the_context_was_voided(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    ever: set[str] = set()
    for name, *rest in steps:
        if name == "read":
            world.read(rest[0])
        elif name == "write":
            world.write(*rest)
        elif name == "foreign write":
            world.put(rest[0])
        elif name == "demote":
            world.void(ledger.demote(world.member, world.position, "compaction", dict.fromkeys(rest[0], A)))
            assert world.member.known == ever
        elif name == "shrink":
            world.void(ledger.suspected(world.member, world.position, "shrunk"))
        elif name == "rejoin":
            world.member = join(ledger.leave(world.member), peer=rest[0])
        else:
            world.revalidate(anew=rest[0])
        ever |= world.member.known
        assert world.member.known == ever
        assert Member.from_value(world.member.to_value()) == world.member


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 9)), max_size=20))
def test_a_cursor_never_falls_and_never_passes_what_was_delivered(acks: list[tuple[int, int | None]]) -> None:
    cursor = 0
    for position, delivered in acks:
        before = cursor
        try:
            cursor = ledger.acked("board", position, cursor=cursor, delivered=delivered)
        except InvalidStateError:
            continue
        assert before <= cursor <= max(before, delivered or 0)


def test_the_members_of_these_tests_can_be_stored() -> None:
    for member in (SCOUT, ME, OTHER, READ_ONLY, SUSPECT):
        assert member.fault() == ""
        assert member.id == member_id(member.peer, member.lineage)
