"""What a process keeps of the lineages it writes to, with bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from cpstore.model.glossary import Glossary

if TYPE_CHECKING:
    from cpstore.journal import Reading
    from cpstore.model.entry import Entry, StreamId
    from cpstore.snapshot.writer import SnapshotWriter

CACHE_BYTES = 64 << 20
"""Memory that the writing ends of a store's open lineages may hold together; the least recently used give way."""


class OpenLineage:
    """What a process keeps of a lineage between two acts. Dropped after anything that failed."""

    __slots__ = ("__weakref__", "glossary", "last", "lock", "number", "reading", "stream", "writer")

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.lock = threading.RLock()
        self.reading: Reading | None = None
        self.forget()

    def forget(self) -> None:
        """Go back to knowing nothing: the next act reads the store."""
        self.number: int | None = None
        self.last: Entry | None = None
        self.glossary = Glossary(())
        self.writer: SnapshotWriter | None = None


class OpenLineages:
    """The open lineages of one store, by name, with the memory they hold bounded."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._held = 0
        self._all: WeakValueDictionary[StreamId, OpenLineage] = WeakValueDictionary()
        self._writing: OrderedDict[StreamId, tuple[OpenLineage, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, stream: StreamId) -> OpenLineage:
        """Return the one object that this process has for a lineage."""
        with self._lock:
            found = self._all.get(stream)
            if found is None:
                found = self._all[stream] = OpenLineage(stream)
            return found

    def used(self, lineage: OpenLineage) -> None:
        """Note what a lineage holds now, and drop the writing ends of those that were not used for longest."""
        with self._lock:
            self._forget(lineage.stream)
            if lineage.writer is not None:
                weight = lineage.writer.weight
                self._writing[lineage.stream] = (lineage, weight)
                self._held += weight
            if self._held > self._limit:
                self._shrink(lineage)

    def _shrink(self, spared: OpenLineage) -> None:
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
