"""One record of the journal, and the bytes of it that are signed."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import attrs

from cpstore import canonical
from cpstore.digest import ZERO, digest

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
"""The version of everything this release writes: signed in each entry, kept in the file."""


class StreamKind(enum.Enum):
    """What a stream is about."""

    LINEAGE = "lineage"
    LEDGER = "ledger"
    STORE = "store"


class Kind(enum.IntEnum):
    """What an entry records. The numbers are stored; they are never reused."""

    CHECKPOINT = 1
    FORK = 2
    RESTORE = 3
    COMPACTION = 4
    IMPORT = 5
    REPACK = 6
    PRUNE = 7
    FORGET = 8
    EFFECT = 9
    ACKNOWLEDGEMENT = 10
    LEDGER = 11
    PEER = 12
    BROADCAST = 13
    KEY = 14
    ADOPT = 15

    @property
    def makes_revision(self) -> bool:
        """Whether an entry of this kind is a new revision of its lineage."""
        return self in REVISIONS


EPOCHS = frozenset({Kind.RESTORE, Kind.COMPACTION})
"""What voids the earlier reads of a lineage's writers."""
REVISIONS = frozenset({Kind.CHECKPOINT, Kind.FORK, Kind.RESTORE, Kind.COMPACTION, Kind.IMPORT})


@attrs.frozen
class StreamId:
    """The name of a stream. The same name in two namespaces is two streams."""

    namespace: str
    kind: StreamKind
    name: str
    incarnation: int = 1

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@attrs.frozen
class Entry:
    """One signed, chained record.

    ``seq`` counts from 1 in the stream; ``revision`` is the lineage's revision after this entry (0 in other
    streams); ``step`` the caller's own index; ``time`` a label in microseconds UTC since 1970; ``writer`` the
    32-byte Ed25519 public key; ``term`` the seq of the newest entry up to this one that changed the glossary (0:
    none), ``epoch`` that of the newest restore or compaction (0: none); ``state`` the 32-byte state root; ``packs``
    16 bytes that cover all stored bytes of the stream; ``detail`` what only this kind has, in the canonical JSON
    model, or None; ``leaf`` the index in the store's log (a cache: not signed, the log's root vouches for it).
    """

    stream: StreamId
    seq: int
    kind: Kind
    revision: int
    step: int
    time: int
    actor: str
    writer: bytes
    term: int
    state: bytes
    packs: bytes
    detail: Mapping[str, Any] | None
    signature: bytes = b""
    leaf: int = -1
    epoch: int = 0

    def body(self, origin: str, prev: bytes) -> bytes:
        """Return the canonical JSON that is signed.

        ``origin`` names the store, ``prev`` is ``link`` of the entry before it in the stream (32 zero bytes for
        the first).
        """
        fields: dict[str, Any] = {
            "actor": self.actor,
            "format": FORMAT,
            "kind": self.kind.name.lower(),
            "namespace": self.stream.namespace,
            "origin": origin,
            "packs": self.packs.hex(),
            "prev": prev.hex(),
            "revision": self.revision,
            "seq": self.seq,
            "state": self.state.hex(),
            "step": self.step,
            "stream": self.stream.name,
            "streamKind": self.stream.kind.value,
            "term": self.term,
            "time": self.time,
        }
        if self.stream.incarnation != 1:
            fields["incarnation"] = self.stream.incarnation
        if self.epoch:
            fields["epoch"] = self.epoch
        if self.detail is not None:
            fields["detail"] = self.detail
        return canonical.encode(fields)

    def signed(self, signature: bytes) -> Entry:
        """Return this entry with its signature."""
        return attrs.evolve(self, signature=signature)

    def at_leaf(self, leaf: int) -> Entry:
        """Return this entry with its place in the log."""
        return attrs.evolve(self, leaf=leaf)

    @property
    def link(self) -> bytes:
        """What the next entry of the stream cites as ``prev``: the SHA-256 of this one's signature."""
        return digest(self.signature)


def link_of(entry: Entry | None) -> bytes:
    """Return the ``prev`` of the entry that follows ``entry``; None stands for the start of the stream."""
    return ZERO if entry is None else entry.link
