"""Laws that every backend keeps, for authors of backends.

Subclass ``BackendContract`` in a test module and give it a fixture ``backend`` that returns a fresh, empty
``cpstore.backends.port.Backend``; pytest runs the laws. They need nothing but pytest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from cpstore.backends.port import EffectRow, Kin
from cpstore.digest import ZERO
from cpstore.errors import CheckpointStoreError, CorruptError
from cpstore.model.entry import Entry, Kind, StreamId, StreamKind
from cpstore.snapshot.records import Segment, SegmentHead

if TYPE_CHECKING:
    from cpstore.backends.port import Backend, Writer

STREAM = StreamId("default", StreamKind.LINEAGE, "a")


def entry(seq: int, stream: StreamId = STREAM, **changed: Any) -> Entry:
    """Return an entry that is well formed, whatever it says."""
    fields: dict[str, Any] = {
        "kind": Kind.CHECKPOINT,
        "revision": seq,
        "step": seq,
        "time": 1_790_000_000_000_000 + seq,
        "actor": "tester",
        "writer": bytes(range(32)),
        "term": 0,
        "state": seq.to_bytes(32, "big"),
        "packs": seq.to_bytes(16, "big"),
        "detail": None,
        "signature": seq.to_bytes(64, "big"),
        "leaf": seq - 1,
    }
    return Entry(stream=stream, seq=seq, **{**fields, **changed})


def add(tx: Writer, number: int, *entries: Entry) -> None:
    """Write entries with a block each."""
    for one in entries:
        tx.add_entry(number, one)
        tx.add_block(number, one.seq, b"block %d" % one.seq)


def family(tx: Writer, forks: dict[str, tuple[str, int]], *roots: str) -> dict[str, int]:
    """Add lineages without a parent, and forks (child: parent and place in the log); returns their numbers."""
    numbers = {name: tx.add_stream(StreamId("default", StreamKind.LINEAGE, name)) for name in (*roots, *forks)}
    origin = {name: name for name in roots}
    for child, (parent, leaf) in forks.items():
        origin[child] = origin[parent]
        tx.add_kin(numbers[child], Kin(numbers[parent], numbers[origin[child]], leaf))
    return numbers


def effect(number: int, stream: int, seq: int, **changed: Any) -> EffectRow:
    """Return the row of effect ``number`` (below 256), by default settled, of a family with the root 1."""
    fields: dict[str, Any] = {"root": 1, "name": "pay", "policy": 3, "kind": 2, "settled": True, **changed}
    return EffectRow(identity=bytes([number]) * 32, stream=stream, seq=seq, **fields)


def put(tx: Writer, *rows: EffectRow) -> None:
    """File rows, each over what is there of its effect."""
    for row in rows:
        tx.put_effect(row, tx.effect(row.identity))


class BackendContract:
    """The laws. Each test is one."""

    def test_what_is_committed_is_read_back_equal(self, backend: Backend) -> None:
        made = [entry(1, detail={"key": {"name": "é"}}), entry(2, term=1, step=7), entry(3, kind=Kind.FORK)]
        with backend.write() as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, *made)

        with backend.read() as reader:
            assert made == list(reader.entries(number, 1, 9))
            assert made[::-1] == list(reader.entries(number, 1, 9, newest_first=True))
            assert (made[2], made[0]) == (reader.last(number), reader.entry(number, 1))
            assert reader.tail(number) == [(1, b"block 1"), (2, b"block 2"), (3, b"block 3")]
            assert reader.end(number) == 3
            assert [(number, made[0]), (number, made[2])] == [reader.some_entry(at, 4) for at in (0, 4)]
            assert all(reader.some_entry(at, 4) in [(number, one) for one in made] for at in (1, 2, 3))

    def test_a_failed_transaction_leaves_nothing_and_no_lock(self, backend: Backend) -> None:
        with pytest.raises(ZeroDivisionError), backend.write() as tx:
            add(tx, tx.add_stream(STREAM), entry(1, actor="nobody"))
            raise ZeroDivisionError

        with backend.read() as reader:
            assert reader.stream(STREAM) is None
        with backend.write() as tx:
            add(tx, tx.add_stream(STREAM), entry(1, actor="nobody"))
        with backend.read() as reader:
            assert reader.last(reader.stream(STREAM) or 0) == entry(1, actor="nobody")

    def test_a_reader_sees_one_moment(self, backend: Backend) -> None:
        with backend.write() as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, entry(1))

        def go_on() -> None:
            with backend.write() as writer:
                add(writer, number, entry(2))

        with backend.read() as reader:
            assert reader.last(number) == entry(1)
            thread = threading.Thread(target=go_on)
            thread.start()
            thread.join()
            assert reader.last(number) == entry(1)
        with backend.read() as reader:
            assert reader.last(number) == entry(2)

    def test_a_transaction_that_has_ended_answers_no_more(self, backend: Backend) -> None:
        with backend.read() as reader:
            pass
        with backend.write() as writer:
            number = writer.add_stream(STREAM)

        with pytest.raises(CheckpointStoreError):
            reader.facts()
        with pytest.raises(CheckpointStoreError):
            writer.last(number)

    def test_the_position_tells_where_stream_and_log_stand(self, backend: Backend) -> None:
        with backend.write() as tx:
            before = tx.position(None)
            number = tx.add_stream(STREAM)
            add(tx, number, entry(1))
            tx.set_log(1, ZERO)
            after = tx.position(number)

        assert (before.seq, before.signature, before.size, before.frontier) == (0, b"", 0, b"")
        assert (1, entry(1).signature, 1, ZERO) == (after.seq, after.signature, after.size, after.frontier)

    def test_a_seq_is_taken_once(self, backend: Backend) -> None:
        with backend.write() as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, entry(1))

        with pytest.raises(CheckpointStoreError), backend.write() as tx:
            tx.add_entry(number, entry(1, step=9))
        with backend.read() as reader:
            assert reader.last(number) == entry(1)

    def test_streams_are_told_apart_by_namespace_kind_name_and_incarnation(self, backend: Backend) -> None:
        names = [
            StreamId(space, kind, name, incarnation)
            for space in ("default", "x")
            for kind in (StreamKind.LINEAGE, StreamKind.LEDGER)
            for name in ("a", "b", "A")
            for incarnation in (1, 2)
        ]
        with backend.write() as tx:
            numbers = {name: tx.add_stream(name) for name in names}

        assert len(set(numbers.values())) == len(names)
        with backend.read() as reader:
            assert numbers == {name: reader.stream(name) for name in names}
            listed = list(reader.streams(StreamKind.LINEAGE, "x"))
        wanted = [name for name in names if name.namespace == "x" and name.kind is StreamKind.LINEAGE]
        assert sorted(wanted, key=lambda s: (s.name, s.incarnation)) == [name for _, name in listed]

    def test_a_revision_is_found_though_other_entries_lie_between(self, backend: Backend) -> None:
        revision, made = 0, []
        for seq in range(1, 60):
            checkpoint = seq % 3 == 1
            revision += checkpoint
            made.append(entry(seq, revision=revision, kind=Kind.CHECKPOINT if checkpoint else Kind.EFFECT))
        with backend.write() as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, *made)

        with backend.read() as reader:
            found = [reader.revision(number, wanted) for wanted in range(1, revision + 1)]
            assert reader.revision(number, 0) is None
            assert reader.revision(number, revision + 1) is None
        assert [one for one in made if one.kind is Kind.CHECKPOINT] == found

    def test_sealing_replaces_the_blocks_it_covers(self, backend: Backend) -> None:
        head = SegmentHead(1, 2, 0, 1, b"parts", b"d" * 32, b"f" * 32)
        with backend.write() as tx:
            number, other = tx.add_stream(STREAM), tx.add_stream(StreamId("default", StreamKind.LINEAGE, "b"))
            add(tx, number, entry(1))
            add(tx, other, entry(1, StreamId("default", StreamKind.LINEAGE, "b"), leaf=1))
            tx.add_entry(number, entry(2, leaf=2))
            tx.add_segment(number, Segment(head, b"ops", b"items"))
            add(tx, number, entry(3))

        with backend.read() as reader:
            assert reader.tail(number) == [(3, b"block 3")]
            assert reader.tail(other) == [(1, b"block 1")]
            assert Segment(head, b"ops", b"items") == reader.segment(number, 1)
            assert ([head], [], head) == (
                reader.segments(number, 2),
                reader.segments(number, 3),
                reader.last_segment(number),
            )
            assert reader.end(number) == 3

    def test_a_shared_value_is_stored_once_a_namespace(self, backend: Backend) -> None:
        with backend.write() as tx:
            tx.add_stream(STREAM)
            assert tx.add_blob("default", b"c" * 32, b"frame")
            assert not tx.add_blob("default", b"c" * 32, b"another")

        with backend.read() as reader:
            assert reader.blob("default", b"c" * 32) == b"frame"
            assert reader.blob("other", b"c" * 32) is None
            assert list(reader.blobs("default")) == [(b"c" * 32, b"frame")]

    def test_keys_belong_to_their_stream(self, backend: Backend) -> None:
        with backend.write() as tx:
            number, other = tx.add_stream(STREAM), tx.add_stream(StreamId("x", StreamKind.LINEAGE, "a"))
            tx.add_key(number, "k", 4)

        with backend.read() as reader:
            assert (
                reader.landed(number, "k"),
                reader.landed(other, "k"),
                reader.landed(number, "K"),
            ) == (4, None, None)
            assert list(reader.keys(number)) == [("k", 4)]

    def test_notes_are_kept_in_order_of_size(self, backend: Backend) -> None:
        with backend.write() as tx:
            tx.add_note(2000, b"later")
            tx.add_note(1000, b"sooner")

        with backend.read() as reader:
            assert list(reader.notes()) == [(1000, b"sooner"), (2000, b"later")]
            assert reader.last_note() == (2000, b"later")

    # --- families and effects

    def test_an_entry_keeps_its_epoch(self, backend: Backend) -> None:
        made = [entry(1), entry(2, epoch=2, kind=Kind.RESTORE), entry(3, epoch=2)]
        with backend.write() as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, *made)

        with backend.read() as reader:
            assert [one.epoch for one in reader.entries(number, 1, 9)] == [0, 2, 2]
            assert reader.last(number) == made[2]

    def test_a_stream_is_named_by_its_number(self, backend: Backend) -> None:
        other = StreamId("x", StreamKind.LEDGER, "A", 2)
        with backend.write() as tx:
            numbers = {one: tx.add_stream(one) for one in (STREAM, other)}

        with backend.read() as reader:
            assert {one: reader.name(number) for one, number in numbers.items()} == {STREAM: STREAM, other: other}
            with pytest.raises(CorruptError):
                reader.name(max(numbers.values()) + 1)

    def test_a_family_is_its_first_lineage_and_all_forks(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5), "c": ("b", 7), "d": ("a", 9), "z": ("y", 8)}, "a", "y")

        with backend.read() as reader:
            assert (reader.kin(at["a"]), reader.kin(at["c"])) == (None, Kin(at["b"], at["a"], 7))
            assert [number for number, _ in reader.kins()] == sorted(at[name] for name in "bcdz")
            assert dict(reader.kins())[at["z"]] == Kin(at["y"], at["y"], 8)
            assert reader.family(at["a"])[0] == at["a"]
            assert sorted(reader.family(at["a"])) == sorted(at[name] for name in "abcd")
            assert reader.family(at["y"]) == [at["y"], at["z"]]

    def test_descendants_are_the_forks_of_an_interval_and_all_forks_of_theirs(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5), "c": ("b", 70), "d": ("a", 9), "e": ("c", 80), "z": ("y", 6)}, "a", "y")

        def found(stream: str, since: int, upto: int) -> str:
            numbers = reader.descendants(at[stream], since, upto)
            return "".join(sorted(name for name in at if at[name] in numbers))

        with backend.read() as reader:
            assert [found("a", *span) for span in ((4, 5), (5, 9), (0, 99), (5, 8), (9, 99))] == [
                "bce",
                "d",
                "bcde",
                "",
                "",
            ]
            assert (found("b", 0, 99), found("c", 79, 80), found("e", 0, 99), found("y", 0, 99)) == ("ce", "e", "", "z")

    def test_an_effect_is_found_by_its_identity_as_it_was_filed_last(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5)}, "a")
            put(
                tx, effect(1, at["a"], 2, root=at["a"], settled=False), effect(2, at["a"], 3, root=at["a"], name="mail")
            )
            put(tx, effect(1, at["b"], 4, root=at["a"], policy=0, kind=4))

        with backend.read() as reader:
            # The policy is that of the first entry about an effect; all else is that of the newest.
            assert reader.effect(b"\1" * 32) == effect(1, at["b"], 4, root=at["a"], kind=4)
            assert reader.effect(b"\2" * 32) == effect(2, at["a"], 3, root=at["a"], name="mail")
            assert reader.effect(b"\3" * 32) is None
            assert reader.number_of_effect(b"\3" * 32) == 0
            assert 0 < reader.number_of_effect(b"\1" * 32) < reader.number_of_effect(b"\2" * 32)
            assert list(reader.all_effects()) == [
                (effect(1, at["b"], 4, root=at["a"], kind=4), [(at["a"], 2, 2), (at["b"], 4, 4)]),
                (effect(2, at["a"], 3, root=at["a"], name="mail"), [(at["a"], 3, 3)]),
            ]

    def test_what_was_filed_before_and_is_gone_is_not_filed_over(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {}, "a")

        with pytest.raises(CorruptError), backend.write() as tx:
            tx.put_effect(effect(1, at["a"], 3, root=at["a"]), effect(1, at["a"], 2, root=at["a"]))
        with pytest.raises(CheckpointStoreError), backend.write() as tx:
            tx.put_effect(effect(2, at["a"], 3, root=at["a"]), None)
            tx.put_effect(effect(2, at["a"], 4, root=at["a"]), None)
        with backend.read() as reader:
            assert list(reader.all_effects()) == []

    def test_effects_are_paged_in_the_order_of_their_first_mention(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {}, "a", "y")
            rows = [
                effect(n, at["a"], n + 1, root=at["a"], name="pay" if n % 3 else "mail", settled=n % 2 == 0)
                for n in range(9, 0, -1)
            ]
            put(tx, *rows, effect(10, at["y"], 2, root=at["y"]))
            put(tx, effect(9, at["a"], 40, root=at["a"], name="mail", settled=False))

        def page(name: str | None = None, *, unsettled: bool = False, after: int = 0, limit: int = 99) -> list[int]:
            return [r.identity[0] for r in reader.effects(at["a"], name, unsettled=unsettled, after=after, limit=limit)]

        with backend.read() as reader:
            assert page() == list(range(9, 0, -1))
            third = reader.number_of_effect(bytes([7]) * 32)
            assert (page(after=third), page(after=third, limit=2)) == ([6, 5, 4, 3, 2, 1], [6, 5])
            assert (page("mail"), page("no such")) == ([9, 6, 3], [])
            assert (page(unsettled=True), page("pay", unsettled=True, limit=2)) == ([9, 7, 5, 3, 1], [7, 5])
            assert [r.identity[0] for r in reader.effects(at["y"], None, unsettled=False, after=0, limit=9)] == [10]

    def test_the_first_effect_of_a_name_fixes_its_policy_in_its_family(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {}, "a", "y")
            put(tx, effect(1, at["a"], 2, root=at["a"], policy=1), effect(2, at["a"], 3, root=at["a"], policy=3))
            put(tx, effect(3, at["y"], 2, root=at["y"], policy=2))

        with backend.read() as reader:
            assert (reader.first_policy(at["a"], "pay"), reader.first_policy(at["y"], "pay")) == (1, 2)
            assert (reader.first_policy(at["a"], "Pay"), reader.first_policy(at["a"], "mail")) == (None, None)

    def test_an_interval_is_crossed_by_what_has_an_entry_after_it_began(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5)}, "a")
            root = at["a"]
            put(tx, *(effect(kind + 1, root, kind + 2, root=root, kind=kind) for kind in range(5)))  # seqs 2 to 6
            put(tx, effect(1, root, 10, root=root, kind=0), effect(3, at["b"], 3, root=root, settled=False))
            put(tx, effect(6, root, 11, root=root, name="mail"))

        def crossed(since: int, upto: int) -> dict[int, int]:
            rows = reader.traced(root, since, upto, classes=(0, 1, 2, 3, 4), name=None, limit=99)
            found = reader.crossed(root, since, upto)
            assert sum(found.values()) == len(rows)
            return found

        with backend.read() as reader:
            assert crossed(0, 99) == {0: 1, 1: 1, 2: 2, 3: 1, 4: 1}
            assert crossed(5, 99) == {0: 1, 2: 1, 4: 1}
            assert crossed(6, 99) == {0: 1, 2: 1}
            assert crossed(3, 5) == {0: 1, 2: 1, 3: 1}  # it began before, and went on after
            assert crossed(11, 99) == {}
            assert reader.crossed(at["b"], 0, 99) == {2: 1}

    def test_traced_effects_are_asked_by_class_and_name_up_to_a_limit(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5)}, "a")
            root = at["a"]
            put(tx, *(effect(n, root, n + 1, root=root, kind=n % 5, name=("pay", "mail")[n % 2]) for n in range(20)))
            put(tx, effect(2, root, 50, root=root, kind=2, settled=False))

        def traced(since: int = 0, limit: int = 99, name: str | None = None, *classes: int) -> list[int]:
            rows = reader.traced(root, since, 99, classes=classes, name=name, limit=limit)
            return sorted(row.identity[0] for row in rows)

        with backend.read() as reader:
            assert traced(0, 99, None, 3, 4) == [3, 4, 8, 9, 13, 14, 18, 19]
            assert traced(0, 99, "pay", 2, 3) == [2, 8, 12, 18]
            assert traced(15, 99, None, 2) == [2, 17]
            assert len(traced(0, 3, None, 2)) == 3
            assert reader.traced(at["b"], 0, 99, classes=(2,), name=None, limit=9) == []

    def test_an_effect_whose_class_changes_is_traced_under_the_new_one_everywhere(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5)}, "a")
            put(tx, effect(1, at["a"], 2, root=at["a"], kind=1), effect(1, at["b"], 2, root=at["a"], kind=2))

        with backend.read() as reader:
            assert (reader.crossed(at["a"], 0, 9), reader.crossed(at["b"], 0, 9)) == ({2: 1}, {2: 1})

    def test_unsettled_effects_are_those_of_a_stream_since_that_may_not_be_repeated(self, backend: Backend) -> None:
        with backend.write() as tx:
            at = family(tx, {"b": ("a", 5)}, "a", "y")
            root = at["a"]
            put(tx, *(effect(n, root, n + 2, root=root, kind=n, settled=False) for n in range(5)))
            put(tx, effect(5, root, 9, root=root), effect(6, at["b"], 2, root=root, settled=False))
            put(tx, effect(7, at["y"], 2, root=at["y"], settled=False))
            put(tx, effect(3, root, 20, root=root, kind=3))

        def unsettled(family: str, stream: str, since: int) -> list[int]:
            return [row.identity[0] for row in reader.unsettled(at[family], at[stream], since)]

        with backend.read() as reader:
            assert unsettled("a", "a", 0) == [2, 4]
            assert (unsettled("a", "a", 4), unsettled("a", "a", 6)) == ([4], [])
            assert (unsettled("a", "b", 1), unsettled("a", "b", 2), unsettled("y", "y", 0)) == ([6], [], [7])
            assert unsettled("y", "a", 0) == []

    def test_a_durable_write_is_a_write(self, backend: Backend) -> None:
        with backend.write(durable=True) as tx:
            number = tx.add_stream(STREAM)
            add(tx, number, entry(1))
        with pytest.raises(ZeroDivisionError), backend.write(durable=True) as tx:
            add(tx, number, entry(2))
            raise ZeroDivisionError
        with backend.write() as tx:
            assert tx.last(number) == entry(1)
