"""Laws that every backend keeps, for authors of backends.

Subclass ``BackendContract`` in a test module and give it a fixture ``backend`` that returns a fresh, empty
``cpstore.backends.port.Backend``; pytest runs the laws. They need nothing but pytest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from cpstore.digest import ZERO
from cpstore.errors import CheckpointStoreError
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
