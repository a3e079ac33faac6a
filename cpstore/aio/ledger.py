"""A shared ledger and its peers, for coroutines."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from cpstore.aio.pool import Items
from cpstore.errors import InvalidStateError
from cpstore.ledger.peer import PAUSE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping

    from cpstore.aio.pool import Pool
    from cpstore.ledger import peer as blocking
    from cpstore.ledger import shared
    from cpstore.ledger.desk import LineageHandle, Read
    from cpstore.model.ledger import Absent, Event, Member, Seen, Status


class SharedLedger:
    """Keyed values that several agents read and write, each with its own revision. Make it with ``Store.ledger``."""

    def __init__(self, pool: Pool, ledger: shared.SharedLedger) -> None:
        self._pool = pool
        self._ledger = ledger

    def __repr__(self) -> str:
        return f"<aio.SharedLedger {self.namespace}/{self.id}>"

    @property
    def id(self) -> str:
        """The ledger's name."""
        return self._ledger.id

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._ledger.namespace

    @property
    def exists(self) -> Coroutine[Any, Any, bool]:
        """Whether anybody has joined it, to be awaited."""
        return self._pool.run(lambda: self._ledger.exists)

    async def join(self, name: str, *, lineage: LineageHandle | None = None) -> Peer:
        """Become a peer, or take a membership up again. ``lineage`` is a handle of ``cpstore.aio`` or a blocking one.

        Raises ConflictError, SemanticDriftError, NotFoundError, InvalidStateError, BusyError, StorageError.
        """
        return Peer(self._pool, await self._pool.run(self._ledger.join, name, lineage=lineage))

    async def peers(self) -> list[Member]:
        """Return the memberships, those of peers that have left included, sorted by id."""
        return await self._pool.run(self._ledger.peers)

    async def keys(self) -> list[str]:
        """Return the keys, sorted."""
        return await self._pool.run(self._ledger.keys)

    async def read(self, key: str) -> Read:
        """Look at a value without being a peer. Raises NotFoundError."""
        return await self._pool.run(self._ledger.read, key)

    def history(self, key: str) -> AsyncIterator[shared.KeyVersion]:
        """Yield the values that a key has had, newest first. Raises, at the first, NotFoundError, CorruptError."""
        return Items(self._pool, lambda: self._ledger.history(key))

    async def events(self, *, after: int = 0) -> list[Event]:
        """Return what the ledger has told its peers since a position, oldest first."""
        return await self._pool.run(self._ledger.events, after=after)


class Peer:
    """One peer of a ledger. Make it with ``SharedLedger.join``; another process gets the same one by joining again."""

    def __init__(self, pool: Pool, peer: blocking.Peer) -> None:
        self._pool = pool
        self._peer = peer

    def __repr__(self) -> str:
        return f"<aio.{repr(self._peer)[1:]}"

    @property
    def name(self) -> str:
        """The name under which it joined."""
        return self._peer.name

    @property
    def status(self) -> Coroutine[Any, Any, Status]:
        """What it may do now, to be awaited."""
        return self._pool.run(lambda: self._peer.status)

    @property
    def membership(self) -> Coroutine[Any, Any, Member]:
        """The membership as it is stored now, to be awaited."""
        return self._pool.run(lambda: self._peer.membership)

    async def read(self, key: str) -> Read:
        """Return the value of a key, to look at and to cite. Raises NotFoundError, InvalidStateError if it has left."""
        return await self._pool.run(self._peer.read, key)

    async def read_all(self) -> list[Read]:
        """Return the values of all keys, sorted by key."""
        return await self._pool.run(self._peer.read_all)

    async def write(self, key: str, value: Any, *, seen: Read | Seen | Absent | None = None) -> Read:
        """Give a key a new value, and return it as read. ``seen`` is what this peer last read or wrote under it.

        Raises StaleWriteError, PeerReadOnlyError, SemanticDriftError, RevisionConflictError, InvalidStateError,
        BusyError, StorageError.
        """
        return await self._pool.run(self._peer.write, key, value, seen=seen)

    async def write_batch(
        self, puts: Mapping[str, Any], *, seen: Mapping[str, Read | Seen | Absent] | Iterable[Read | Seen] = ()
    ) -> list[Read]:
        """Give several keys new values, all or none, in one entry. The errors are those of ``write``."""
        return await self._pool.run(self._peer.write_batch, puts, seen=seen)

    async def revalidate(self, reads: Iterable[Read | Seen]) -> None:
        """Present what was read again, and be active again. Raises PeerReadOnlyError, StaleWriteError."""
        await self._pool.run(self._peer.revalidate, reads)

    async def compacted(self, text: str, *, tokens_before: int | None = None, tokens_after: int | None = None) -> None:
        """Report that the context of a peer without a lineage was compacted. Raises InvalidStateError."""
        await self._pool.run(self._peer.compacted, text, tokens_before=tokens_before, tokens_after=tokens_after)

    async def leave(self) -> None:
        """Be no peer any more. What it has to read again stays, should it come back under whatever name."""
        await self._pool.run(self._peer.leave)

    async def poll(self, *, limit: int | None = 100) -> list[Event]:
        """Return the first events that this peer has not acknowledged, in order: at least once, none skipped."""
        return await self._pool.run(self._peer.poll, limit=limit)

    async def ack(self, position: int) -> None:
        """Acknowledge all events up to a position that ``poll`` gave to this handle. Raises InvalidStateError."""
        await self._pool.run(self._peer.ack, position)

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is an event that this handle was not given; False if ``timeout`` seconds pass first.

        It sleeps on the event loop between two looks, and a look takes a thread that no other call needs.
        """
        if timeout is not None and type(timeout) not in (int, float):
            raise InvalidStateError(f"timeout is a number of seconds or None, not {timeout!r:.100}")
        end = None if timeout is None else time.monotonic() + timeout
        pause, longest = PAUSE
        while not await self._pool.look(self._peer.wait, 0):
            left = longest if end is None else end - time.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, longest)
        return True
