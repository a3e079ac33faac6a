"""Numbers stand for names in rows: streams, actors and writers, remembered as long as their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import CorruptError
from cpstore.model.entry import StreamId, StreamKind

if TYPE_CHECKING:
    from cpstore.backends.sqlite_rows import SqliteReader, SqliteWriter


class Names:
    """Numbers and names of streams, actors and writers, as read on one connection. Dropped after a rollback."""

    def __init__(self) -> None:
        self._streams: dict[int, StreamId] = {}
        self._actors: dict[int, str] = {}
        self._writers: dict[int, bytes] = {}
        self._numbers: dict[str | bytes, int] = {}
        self._epoch: int | None = None

    def forget(self) -> None:
        """Read everything anew."""
        self.__init__()  # type: ignore[misc]

    def epoch(self, tx: SqliteReader) -> int:
        """Return the zero of the store's times."""
        if self._epoch is None:
            self._epoch = tx.facts().epoch
        return self._epoch

    def stream(self, tx: SqliteReader, number: int) -> StreamId:
        """Return the name of a stream. Raises CorruptError."""
        if number not in self._streams:
            row = tx._one(  # noqa: SLF001
                "SELECT n.name, s.kind, s.name, s.incarnation FROM stream s JOIN namespace n ON n.no = s.namespace "
                "WHERE s.no = ?",
                "ttti",
                number,
            )
            if row is None:
                raise CorruptError(f"stream {number} has no name")
            self._streams[number] = StreamId(row[0], StreamKind(row[1]), row[2], row[3])
        return self._streams[number]

    def actor(self, tx: SqliteReader, number: int) -> str:
        """Return the name of an actor. Raises CorruptError."""
        if number not in self._actors:
            self._actors[number] = _known(tx._one("SELECT name FROM actor WHERE no = ?", "t", number), "actor")  # noqa: SLF001
        return self._actors[number]

    def writer(self, tx: SqliteReader, number: int) -> bytes:
        """Return a writer's public key. Raises CorruptError."""
        if number not in self._writers:
            self._writers[number] = _known(tx._one("SELECT public FROM writer WHERE no = ?", "b", number), "writer")  # noqa: SLF001
        return self._writers[number]

    def number_of_actor(self, tx: SqliteWriter, name: str) -> int:
        """Return the number of an actor, a new one if it has none. The first is 0, which costs an entry no byte."""
        if name not in self._numbers:
            tx._link.run(  # noqa: SLF001
                "INSERT INTO actor (no, name) SELECT coalesce(max(no) + 1, 0), ? FROM actor "
                "WHERE true ON CONFLICT (name) DO NOTHING",
                (name,),
            )
            self._numbers[name] = _known(tx._one("SELECT no FROM actor WHERE name = ?", "i", name), "actor")  # noqa: SLF001
        return self._numbers[name]

    def number_of_writer(self, tx: SqliteWriter, public: bytes) -> int:
        """Return the number of a public key, a new one if it has none."""
        if public not in self._numbers:
            tx._link.run(  # noqa: SLF001
                "INSERT INTO writer (no, public) SELECT coalesce(max(no) + 1, 0), ? FROM writer "
                "WHERE true ON CONFLICT (public) DO NOTHING",
                (public,),
            )
            self._numbers[public] = _known(tx._one("SELECT no FROM writer WHERE public = ?", "i", public), "writer")  # noqa: SLF001
        return self._numbers[public]


def _known(row: tuple[Any, ...] | None, what: str) -> Any:
    if row is None:
        raise CorruptError(f"the {what} that an entry names is missing")
    return row[0]
