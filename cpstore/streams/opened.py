"""What a process keeps of the streams it writes to, with bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cpstore.snapshot.writer import SnapshotWriter

if TYPE_CHECKING:
    from cpstore.journal import Reading
    from cpstore.model.entry import Entry, StreamId
    from cpstore.model.glossary import Glossary
    from cpstore.snapshot.state import States

CACHE_BYTES = 64 << 20
"""Memory that the writing ends of a store's open streams may hold together; the least recently used give way."""


class OpenStream:
    """What a process keeps of a stream between two acts. Dropped after anything that failed.

    ``glossary`` is that of a lineage as of its newest entry, ``root`` number and name of its family's first lineage;
    None where they have to be read.
    """

    __slots__ = ("__weakref__", "glossary", "last", "lock", "number", "reading", "root", "stream", "writer")

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self.reading: Reading | None = None
        self.forget()

    def forget(self) -> None:
        """Go back to knowing nothing: the next act reads the store."""
        self.number: int | None = None
        self.last: Entry | None = None
        self.glossary: Glossary | None = None
        self.writer: SnapshotWriter | None = None
        self.root: tuple[int, str] | None = None

    def refresh(self, reading: Reading) -> None:
        """Learn the newest entry from the store; what is kept stays if that is still the same."""
        found = reading.last(self.stream)
        if found is None:
            self.forget()
            return
        number, last = found
        if self.last is None or (self.last.seq, self.last.signature) != (last.seq, last.signature):
            self.forget()
        self.number, self.last = number, last

    def writing(self, reading: Reading) -> SnapshotWriter:
        """Return the writing end, made from the stored bytes where there is none."""
        self.reading = reading
        if self.writer is None:
            if self.last is None:
                self.writer = SnapshotWriter.start(self._states, self._blob)
            else:
                self.writer = SnapshotWriter.reopen(self.last.seq, self._states, self._blob)
        return self.writer

    def family(self, reading: Reading) -> tuple[int, str]:
        """Return number and name of the first lineage of the family."""
        if self.number is None:
            raise RuntimeError("a lineage that does not exist has no family")
        if self.root is None:
            kin = reading.tx.kin(self.number)
            root = self.number if kin is None else kin.root
            self.root = root, reading.tx.name(root).name
        return self.root

    def _states(self) -> States:
        if self.reading is None:
            raise RuntimeError("no act is under way")
        return self.reading.states(self.stream)

    def _blob(self, content: bytes) -> bytes | None:
        return None if self.reading is None else self.reading.blob(content)


class OpenStreams:
    """The open streams of one store, by name, with the memory they hold bounded."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._held = 0
        self._all: WeakValueDictionary[StreamId, OpenStream] = WeakValueDictionary()
        self._writing: OrderedDict[StreamId, tuple[OpenStream, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, stream: StreamId) -> OpenStream:
        """Return the one object that this process has for a stream."""
        with self._lock:
            found = self._all.get(stream)
            if found is None:
                found = self._all[stream] = OpenStream(stream)
            return found

    def used(self, opened: OpenStream) -> None:
        """Note what a stream holds now, and drop the writing ends of those that were not used for longest."""
        with self._lock:
            self._forget(opened.stream)
            if opened.writer is not None:
                weight = opened.writer.weight
                self._writing[opened.stream] = (opened, weight)
                self._held += weight
            if self._held > self._limit:
                self._shrink(opened)

    def _shrink(self, spared: OpenStream) -> None:
        for stream, (other, _) in list(self._writing.items()):
            if self._held <= self._limit or other is spared:
                return
            if other.lock.acquire(blocking=False):
                try:
                    other.writer = None
                finally:
                    other.lock.release()
                self._forget(stream)

    def _forget(self, stream: StreamId) -> None:
        self._held -= self._writing.pop(stream, (None, 0))[1]

    @property
    def writers(self) -> int:
        """How many writing ends are held."""
        return len(self._writing)
