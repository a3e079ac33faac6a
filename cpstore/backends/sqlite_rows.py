"""The port over one SQLite connection: rows to records and back. SQL is constant text with bound parameters."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from cpstore import canonical
from cpstore.backends import scripts
from cpstore.backends.link import PAGE_SIZE
from cpstore.backends.port import Position, StoreFacts
from cpstore.backends.sqlite_effects import EffectReader, EffectWriter
from cpstore.errors import CheckpointStoreError, CorruptError
from cpstore.model.entry import Entry, Kind, StreamId, StreamKind
from cpstore.snapshot.records import Segment, SegmentHead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.backends.link import Link

SEQ = (1 << 32) - 1
PAGE = 256
AUTH = 112

_KINDS = {"i": int, "t": str, "b": bytes}
"""Letters of a row's shape; a capital one stands for a column that may be empty."""

_ENTRY_SHAPE = "iiiiiiiiibBi"
_HEAD_SHAPE = "iiiibbb"
_ENTRY = "SELECT id, kind, leaf, lag, step, time, actor, writer, term, auth, detail, epoch FROM entry "
_HEAD = "SELECT id, count, number, base, parts, digest, frontier FROM segment "


class SqliteReader(EffectReader):
    """One read transaction on the connection of ``link``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._names = link.names
        self.open = True

    def _rows(self, sql: str, shape: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query. ``shape`` spells the types of its columns; see ``_KINDS``."""
        if not self.open:
            raise CheckpointStoreError("this transaction has ended")
        rows = self._link.rows(sql, values)
        wanted = _types(shape)
        for row in rows:
            if tuple(map(type, row)) != wanted:
                self._misshapen(sql, row, shape)
        return rows

    def _one(self, sql: str, shape: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query, as ``_rows`` does, or None."""
        rows = self._rows(sql, shape, *values)
        return rows[0] if rows else None

    def _misshapen(self, sql: str, row: tuple[Any, ...], shape: str) -> None:
        """Refuse a row unless its odd columns are ones that may be empty: a damaged page has values of any type."""
        for value, kind in zip(row, shape, strict=True):
            if type(value) is not _KINDS[kind.lower()] and not (kind.isupper() and value is None):
                table = sql.partition(" FROM ")[2].split(" ")[0]
                raise CorruptError(f"{self._link.target}: table {table} has a value of the wrong type; run verify")

    def facts(self) -> StoreFacts:
        row = self._one("SELECT origin, format, epoch FROM store", "tii")
        if row is None:
            raise CorruptError(f"{self._link.target}: the row that names the store is missing")
        return StoreFacts(*row)

    def stream(self, stream: StreamId) -> int | None:
        row = self._one(
            "SELECT s.no FROM stream s JOIN namespace n ON n.no = s.namespace "
            "WHERE n.name = ? AND s.kind = ? AND s.name = ? AND s.incarnation = ?", "i",
            stream.namespace, stream.kind.value, stream.name, stream.incarnation,
        )  # fmt: skip
        return None if row is None else row[0]

    def name(self, stream: int) -> StreamId:
        return self._names.stream(self, stream)

    def streams(self, kind: StreamKind, namespace: str | None = None) -> Iterator[tuple[int, StreamId]]:
        sql = (
            "SELECT s.no, n.name, s.name, s.incarnation FROM stream s JOIN namespace n ON n.no = s.namespace "
            "WHERE s.kind = ? AND (? IS NULL OR n.name = ?) ORDER BY n.name, s.name, s.incarnation"
        )
        for number, space, name, incarnation in self._rows(sql, "itti", kind.value, namespace, namespace):
            yield number, StreamId(space, kind, name, incarnation)

    # --- entries ---------------------------------------------------------------------------------------------

    def last(self, stream: int) -> Entry | None:
        low, high = _bounds(stream)
        return self._entry(
            self._one(_ENTRY + "WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", _ENTRY_SHAPE, low, high)
        )

    def some_entry(self, at: int, of: int) -> tuple[int, Entry] | None:
        low, high = "(SELECT min(id) FROM entry)", "(SELECT max(id) FROM entry)"
        # Each end by itself: the other one may lie on a damaged page.
        place = low if at == 0 else high if at == of else f"{low} + ({high} - {low}) / {of:d} * {at:d}"
        row = self._one(_ENTRY + f"WHERE id <= {place} ORDER BY id DESC LIMIT 1", _ENTRY_SHAPE)
        return None if row is None else (row[0] >> 32, self._made(row))

    def entry(self, stream: int, seq: int) -> Entry | None:
        if not 0 < seq <= SEQ:
            return None
        return self._entry(self._one(_ENTRY + "WHERE id = ?", _ENTRY_SHAPE, stream << 32 | seq))

    def entries(self, stream: int, first: int, last: int, *, newest_first: bool = False) -> Iterator[Entry]:
        low, high = stream << 32 | max(first, 1), stream << 32 | min(last, SEQ)
        order = "DESC" if newest_first else "ASC"
        while low <= high:
            rows = self._rows(
                _ENTRY + f"WHERE id BETWEEN ? AND ? ORDER BY id {order} LIMIT {PAGE}", _ENTRY_SHAPE, low, high
            )
            for row in rows:
                if not self.open:
                    raise CheckpointStoreError("this transaction has ended")
                yield self._made(row)
            if len(rows) < PAGE:
                return
            low, high = (low, rows[-1][0] - 1) if newest_first else (rows[-1][0] + 1, high)

    def revision(self, stream: int, revision: int) -> Entry | None:
        if revision < 1:
            return None
        # A revision never comes before the entry of the same number, and is that one as long as all are checkpoints.
        entry = self.entry(stream, revision)
        if entry is None or entry.revision == revision:
            return entry
        low, high = _bounds(stream)
        newest = self._one("SELECT id FROM entry WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", "i", low, high)
        left, right = revision, newest[0] & SEQ if newest else revision
        while left < right:
            middle = (left + right) // 2
            row = self._one("SELECT lag FROM entry WHERE id = ?", "i", stream << 32 | middle)
            if row is None:
                raise CorruptError(f"{self._link.target}: entry {middle} of stream {stream} is missing; run verify")
            left, right = (left, middle) if middle - row[0] >= revision else (middle + 1, right)
        entry = self.entry(stream, left)
        return entry if entry is not None and entry.revision == revision else None

    def leaves(self) -> Iterator[tuple[int, Entry]]:
        order = [row[0] for row in self._rows("SELECT id FROM entry ORDER BY leaf", "i")]
        for at in range(0, len(order), PAGE):
            page = order[at : at + PAGE]
            sql = _ENTRY + f"WHERE id IN ({', '.join('?' * len(page))})"
            rows = {row[0]: row for row in self._rows(sql, _ENTRY_SHAPE, *page)}
            for number in page:
                yield number >> 32, self._made(rows[number])

    def _entry(self, row: tuple[Any, ...] | None) -> Entry | None:
        return None if row is None else self._made(row)

    def _made(self, row: tuple[Any, ...]) -> Entry:
        number, kind, leaf, lag, step, time, actor, writer, term, auth, detail, epoch = row
        stream, seq = number >> 32, number & SEQ
        try:
            if len(auth) != AUTH:
                raise ValueError(f"{len(auth)} bytes of signature and digests")
            label = time + self._names.epoch(self)
            if min(leaf, lag, step, label, term, epoch) < 0 or max(step, label) > canonical.MAX_INTEGER:
                raise ValueError("a number that no entry can have")
            return Entry(
                stream=self._names.stream(self, stream),
                seq=seq,
                kind=Kind(kind),
                revision=seq - lag,
                step=step,
                time=label,
                actor=self._names.actor(self, actor),
                writer=self._names.writer(self, writer),
                term=term,
                state=auth[64:96],
                packs=auth[96:],
                detail=None if detail is None else _object(detail),
                signature=auth[:64],
                leaf=leaf,
                epoch=epoch,
            )
        except (ValueError, CorruptError) as error:
            raise CorruptError(
                f"{self._link.target}: entry {seq} of stream {stream} cannot be read: {error}"
            ) from error

    # --- bytes -----------------------------------------------------------------------------------------------

    def segments(self, stream: int, since: int = 0) -> list[SegmentHead]:
        low, high = _bounds(stream)
        start = self._one(
            "SELECT id FROM segment WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1",
            "i",
            low,
            stream << 32 | max(since, 1),
        )
        rows = self._rows(_HEAD + "WHERE id BETWEEN ? AND ? ORDER BY id", _HEAD_SHAPE, start[0] if start else low, high)
        return [head for head in map(_head, rows) if head.end > since]

    def end(self, stream: int) -> int:
        row = self._one(
            "SELECT max(coalesce((SELECT max(id) FROM tail WHERE id BETWEEN ? AND ?), 0), "
            "coalesce((SELECT id + count - 1 FROM segment WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1), 0))",
            "i",
            *_bounds(stream),
            *_bounds(stream),
        )
        return row[0] & SEQ if row else 0

    def last_segment(self, stream: int) -> SegmentHead | None:
        row = self._one(_HEAD + "WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1", _HEAD_SHAPE, *_bounds(stream))
        return None if row is None else _head(row)

    def segment(self, stream: int, first: int) -> Segment | None:
        sql = "SELECT id, count, number, base, parts, digest, frontier, ops, items FROM segment WHERE id = ?"
        row = self._one(sql, _HEAD_SHAPE + "bb", stream << 32 | first)
        return None if row is None else Segment(_head(row[:7]), row[7], row[8])

    def tail(self, stream: int) -> list[tuple[int, bytes]]:
        rows = self._rows("SELECT id, block FROM tail WHERE id BETWEEN ? AND ? ORDER BY id", "ib", *_bounds(stream))
        return [(number & SEQ, block) for number, block in rows]

    def blob(self, namespace: str, content: bytes) -> bytes | None:
        sql = "SELECT frame FROM blob WHERE namespace = (SELECT no FROM namespace WHERE name = ?) AND content = ?"
        row = self._one(sql, "b", namespace, content)
        return None if row is None else row[0]

    def blobs(self, namespace: str) -> Iterator[tuple[bytes, bytes]]:
        sql = (
            "SELECT no, content, frame FROM blob "
            "WHERE no > ? AND namespace = (SELECT no FROM namespace WHERE name = ?) ORDER BY no LIMIT 4"
        )
        rows = self._rows(sql, "ibb", -1, namespace)
        while rows:  # a cursor that is left half read would outlive the transaction and hold its snapshot
            for _, content, frame in rows:
                yield content, frame
            rows = self._rows(sql, "ibb", rows[-1][0], namespace)

    # --- the rest --------------------------------------------------------------------------------------------

    def landed(self, stream: int, key: str) -> int | None:
        row = self._one("SELECT seq FROM landed WHERE stream = ? AND key = ?", "i", stream, key)
        return None if row is None else row[0]

    def keys(self, stream: int) -> Iterator[tuple[str, int]]:
        yield from self._rows("SELECT key, seq FROM landed WHERE stream = ?", "ti", stream)

    def log(self) -> tuple[int, bytes]:
        row = self._one("SELECT size, frontier FROM log", "ib")
        if row is None:
            raise CorruptError(f"{self._link.target}: the row of the log is missing")
        return row[0], row[1]

    def notes(self) -> Iterator[tuple[int, bytes]]:
        yield from self._rows("SELECT size, text FROM note ORDER BY size", "ib")

    def last_note(self) -> tuple[int, bytes] | None:
        row = self._one("SELECT size, text FROM note ORDER BY size DESC LIMIT 1", "ib")
        return None if row is None else (row[0], row[1])

    def schema(self) -> list[str]:
        known = scripts.load("sqlite")
        applied = self._rows("SELECT name, checksum FROM schema_script ORDER BY name", "tt")
        missing = scripts.pending(known, applied, self._link.target)
        return scripts.differences(self._link.rows(scripts.SCHEMA), known[: len(known) - len(missing)])

    def integrity(self) -> list[str]:
        return [row[0] for row in self._rows("PRAGMA integrity_check(20)", "t") if row[0] != "ok"]

    def strays(self, streams: set[int]) -> Iterator[str]:
        # Row ids that have a stream's number in them, and what refers to a row of another table that is not there.
        for table, place in (("entry", "id"), ("tail", "id"), ("segment", "id"), ("effect", "entry")):
            for (number,) in self._rows(f"SELECT DISTINCT {place} >> 32 FROM {table}", "i"):  # noqa: S608 - constants
                if number not in streams:
                    yield f"table {table} has rows of a stream {number} that does not exist"
        sql = 'SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2'
        for table, parent, count in self._rows(sql, "tti"):
            yield f"table {table} has {count} rows of a {parent} that does not exist"
        for number in sorted(streams):
            last = self._one("SELECT max(id) FROM entry WHERE id BETWEEN ? AND ?", "I", *_bounds(number))
            top = (last[0] or 0) if last else 0
            row = self._one("SELECT count(*) FROM tail WHERE id > ? AND id <= ?", "i", top, number << 32 | SEQ)
            if row is not None and row[0]:
                yield f"stream {number} has {row[0]} blocks behind its last entry"


class SqliteWriter(SqliteReader, EffectWriter):
    """One write transaction, under the lock file. ``pages`` estimates what it adds to the write-ahead log."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.pages = 4

    def _add(self, *parts: bytes) -> None:
        self.pages += 1 + sum(map(len, parts)) // PAGE_SIZE

    def position(self, stream: int | None) -> Position:
        low, high = _bounds(stream or 0)
        row = self._one(
            "SELECT id, substr(auth, 1, 64), size, frontier FROM log LEFT JOIN (SELECT id, auth FROM entry "
            "WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1)", "IBib",
            low, high,
        )  # fmt: skip
        if row is None:
            raise CorruptError(f"{self._link.target}: the row of the log is missing")
        return Position((row[0] or 0) & SEQ, row[1] or b"", row[2], row[3])

    def add_stream(self, stream: StreamId) -> int:
        self._link.run("INSERT INTO namespace (name) VALUES (?) ON CONFLICT DO NOTHING", (stream.namespace,))
        cursor = self._link.run(
            "INSERT INTO stream (namespace, kind, name, incarnation) "
            "VALUES ((SELECT no FROM namespace WHERE name = ?), ?, ?, ?)",
            (stream.namespace, stream.kind.value, stream.name, stream.incarnation),
        )
        return int(cursor.lastrowid or 0)

    def add_entry(self, stream: int, entry: Entry) -> None:
        self._link.run(
            "INSERT INTO entry (id, kind, leaf, lag, step, time, actor, writer, term, auth, detail, epoch) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                stream << 32 | entry.seq,
                entry.kind.value,
                entry.leaf,
                entry.seq - entry.revision,
                entry.step,
                entry.time - self._names.epoch(self),
                self._names.number_of_actor(self, entry.actor),
                self._names.number_of_writer(self, entry.writer),
                entry.term,
                entry.signature + entry.state + entry.packs,
                None if entry.detail is None else canonical.spell(dict(entry.detail)),
                entry.epoch,
            ),
        )

    def add_block(self, stream: int, seq: int, block: bytes) -> None:
        self._add(block)
        self._link.run("INSERT INTO tail (id, block) VALUES (?, ?)", (stream << 32 | seq, block))

    def add_segment(self, stream: int, segment: Segment) -> None:
        head = segment.head
        self._add(segment.ops, segment.items)
        self._link.run(
            "INSERT INTO segment (id, count, number, base, digest, frontier, parts, ops, items) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                stream << 32 | head.first, head.count, head.index, head.base, head.digest, head.frontier, head.parts,
                segment.ops, segment.items,
            ),
        )  # fmt: skip
        low, high = stream << 32 | head.first, stream << 32 | (head.end - 1)
        self._link.run("DELETE FROM tail WHERE id BETWEEN ? AND ?", (low, high))

    def add_blob(self, namespace: str, content: bytes, frame: bytes) -> bool:
        self._add(frame)
        cursor = self._link.run(
            "INSERT INTO blob (namespace, content, frame) VALUES ((SELECT no FROM namespace WHERE name = ?), ?, ?) "
            "ON CONFLICT DO NOTHING",
            (namespace, content, frame),
        )
        return cursor.rowcount == 1

    def add_key(self, stream: int, key: str, seq: int) -> None:
        sql = "INSERT INTO landed (stream, key, seq) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self._link.run(sql, (stream, key, seq)).rowcount != 1:
            raise CorruptError(f"{self._link.target}: key {key!r} is filed already, for no entry of it; run verify")

    def set_log(self, size: int, frontier: bytes) -> None:
        self._link.run("UPDATE log SET size = ?, frontier = ?", (size, frontier))

    def add_note(self, size: int, text: bytes) -> None:
        self._add(text)
        self._link.run("INSERT INTO note (size, text) VALUES (?, ?)", (size, text))


@functools.cache
def _types(shape: str) -> tuple[type, ...]:
    """Return the types of a row none of whose columns is empty."""
    return tuple(_KINDS[kind.lower()] for kind in shape)


def _bounds(stream: int) -> tuple[int, int]:
    return stream << 32, stream << 32 | SEQ


def _object(detail: bytes) -> dict[str, Any]:
    value = canonical.decode(detail)
    if not isinstance(value, dict):
        raise CorruptError("its detail is not an object")
    return value


def _head(row: tuple[Any, ...]) -> SegmentHead:
    number, count, index, base, parts, digest, frontier = row
    return SegmentHead(number & SEQ, count, index, base, parts, digest, frontier)
