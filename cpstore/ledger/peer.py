"""A membership in a shared ledger: read, write what was read, and hear what the others' contexts went through."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cpstore.errors import InvalidStateError, NotFoundError, StaleWriteError
from cpstore.ledger.desk import Read
from cpstore.model.entry import StreamId, StreamKind
from cpstore.model.ledger import ABSENT, Absent, Seen, Status
from cpstore.model.names import check_count
from cpstore.rules import ledger as rules
from cpstore.rules import revisions
from cpstore.snapshot import values
from cpstore.streams import look
from cpstore.streams.act import Plan, carry_out
from cpstore.streams.board import Board, value_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cpstore.journal import Reading
    from cpstore.ledger.desk import Desk, LineageHandle
    from cpstore.model.ledger import Event, Member

    Citation = Read | Seen | Absent | None

PAUSE = (0.001, 0.05)
"""Seconds between two looks at the database's change counter: the first, and the longest."""


class Peer:
    """One peer of a ledger. Make it with ``SharedLedger.join``; another process gets the same one by joining again."""

    def __init__(self, desk: Desk, member: Member, lineage: LineageHandle | None) -> None:
        self._desk = desk
        self._id = member.id
        self._name = member.peer
        self._lineage = lineage
        self._delivered: int | None = None

    def __repr__(self) -> str:
        return f"<Peer {self._name!r} of {self._desk.namespace}/{self._desk.id}>"

    @property
    def name(self) -> str:
        """The name under which it joined."""
        return self._name

    @property
    def status(self) -> Status:
        """What it may do now."""
        return self.membership.status

    @property
    def membership(self) -> Member:
        """The membership as it is stored now, with the keys that it would have to read again."""
        with self._desk.opened.lock, self._desk.looking() as reading:
            return self._member(self._desk.board(reading))

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, key: str) -> Read:
        """Return the value of a key, to look at and to cite. Raises NotFoundError, InvalidStateError if it has left.

        The first time a peer reads a key, the ledger remembers that it did: the name enters its list of what it would
        have to read again. Later reads write nothing.
        """
        return self._read([rules.check_key(key)])[0]

    def read_all(self) -> list[Read]:
        """Return the values of all keys, sorted by key."""
        return self._read(None)

    def _read(self, keys: Sequence[str] | None) -> list[Read]:
        desk = self._desk
        with desk.opened.lock, desk.looking() as reading:
            board = desk.board(reading)
            wanted, found = self._values(board, keys)
            if rules.read(self._member(board), wanted) is None:
                return found

        def decide(reading: Reading) -> Plan:
            board = Board(desk.opened, reading)
            wanted, found[:] = self._values(board, keys)
            after = rules.read(self._member(board), wanted)
            return Plan() if after is None else Plan((board.member_step(after, "read"),))

        self._carry_out(decide)
        return found

    def _values(self, board: Board, keys: Sequence[str] | None) -> tuple[list[str], list[Read]]:
        wanted = board.keys() if keys is None else list(keys)
        found = []
        for key in wanted:
            value = board.value(key)
            if value is None:
                raise NotFoundError(f"ledger {self._desk.id!r} has no key {key!r}")
            found.append(Read.of(board, key, *value))
        return wanted, found

    # --- writing ---------------------------------------------------------------------------------------------

    def write(self, key: str, value: Any, *, seen: Read | Seen | Absent | None = None) -> Read:
        """Give a key a new value, and return it as read.

        ``seen`` is what this peer last read or wrote under the key, ``ABSENT`` the claim that there is none; without
        it only a new key can be written. Raises StaleWriteError (read again; ``suspect``: nothing was cited, and the
        peer has to ``revalidate`` now), PeerReadOnlyError, SemanticDriftError (another member means something else by
        a locked symbol), RevisionConflictError (the lineage was restored or compacted since its handle looked),
        InvalidStateError, BusyError, StorageError. Nothing is written then.
        """
        puts = {rules.check_key(key): value}
        return self.write_batch(puts, seen={} if seen is None else {key: seen})[0]

    def write_batch(
        self, puts: Mapping[str, Any], *, seen: Mapping[str, Read | Seen | Absent] | Iterable[Read | Seen] = ()
    ) -> list[Read]:
        """Give several keys new values, all or none, in one entry. Returns them as read, sorted by key.

        ``seen`` has the citations, by key or as they were read. The errors are those of ``write``.
        """
        if not isinstance(puts, Mapping):
            raise InvalidStateError(f"a batch is a mapping from key to value, not {type(puts).__name__}")
        cited = _cited(seen)
        stray = sorted(repr(key) for key in set(cited) - set(puts))
        if stray:
            raise InvalidStateError(f"seen cites {', '.join(stray)}, which the batch does not write")
        fresh = {key: values.decode(values.encode(value, "")) for key, value in puts.items()}
        batch = [rules.Put(key, _seen(cited.get(key)), value_digest(value)) for key, value in fresh.items()]
        refusal: list[StaleWriteError] = []

        def decide(reading: Reading) -> Plan:
            board = Board(self._desk.opened, reading)
            member = self._member(board)
            self._stands(reading)
            known = {put.key: held for put in batch if (held := board.held(rules.check_key(put.key)))}
            try:
                numbers, after = rules.write(board.name, member, batch, known, board.members())
            except StaleWriteError as error:
                if not error.suspect:
                    raise
                refusal.append(error)
                marked = rules.suspected(member, board.position, "uncited write")
                return Plan((board.member_step(marked, "suspect"),))
            step = board.write_step(member, after, {key: (numbers[key], value) for key, value in fresh.items()}, known)
            return Plan((step,))

        (made,) = self._carry_out(decide)
        if refusal:
            raise refusal[0]
        rows = (made.entry.detail or {})["writes"]
        return [
            Read(self._desk.id, key, revision, named, made.entry.seq, fresh[key]) for key, revision, named, _ in rows
        ]

    def revalidate(self, reads: Iterable[Read | Seen]) -> None:
        """Present what was read again, and be active again.

        Every key that this peer had read or written has to be among ``reads``, read since the compaction, restore or
        doubt that made it read-only or suspect. Raises PeerReadOnlyError with the keys that are missing,
        StaleWriteError with those that have been written or were read too early, InvalidStateError.
        """
        shown = [_seen(one) for one in _listed(reads, "revalidate")]

        def decide(reading: Reading) -> Plan:
            board = Board(self._desk.opened, reading)
            member = self._member(board)
            self._stands(reading)
            known = {one.key: held for one in shown if isinstance(one, Seen) and (held := board.held(one.key))}
            after = rules.revalidate(board.name, member, shown, known)  # type: ignore[arg-type]
            return Plan() if after == member else Plan((board.member_step(after, "revalidate"),))

        self._carry_out(decide)

    def compacted(self, text: str, *, tokens_before: int | None = None, tokens_after: int | None = None) -> None:
        """Report that the context of a peer without a lineage was compacted: it may only read until it revalidates.

        A peer with a lineage says so by ``Lineage.compact``. Raises InvalidStateError.
        """
        if self._lineage is not None or self._id.startswith("lineage:"):
            raise InvalidStateError(
                "the context of a lineage is compacted by its lineage", advice="use Lineage.compact"
            )
        if type(text) is not str or not text.strip():
            raise InvalidStateError("say in a line what was compacted")
        check_count(tokens_before, "tokens_before", 0)
        check_count(tokens_after, "tokens_after", 0)

        def decide(reading: Reading) -> Plan:
            board = Board(self._desk.opened, reading)
            after = rules.demote(self._member(board), board.position, "compaction")
            event = {
                "detail": {"tokensAfter": tokens_after, "tokensBefore": tokens_before},
                "kind": "compacted",
                "lineage": None,
                "peer": after.peer,
                "revision": None,
                "text": text,
            }
            return Plan((board.member_step(after, "compacted", event=event),))

        self._carry_out(decide, durable=True)

    def leave(self) -> None:
        """Be no peer any more. What it has to read again stays, should it come back under whatever name."""

        def decide(reading: Reading) -> Plan:
            board = Board(self._desk.opened, reading)
            return Plan((board.member_step(rules.leave(self._member(board)), "leave"),))

        self._carry_out(decide)

    # --- hearing ---------------------------------------------------------------------------------------------

    def poll(self, *, limit: int | None = 100) -> list[Event]:
        """Return the first events that this peer has not acknowledged, in order: at least once, none skipped.

        ``limit`` ends after so many, None gives all.
        """
        check_count(limit, "limit", 0)
        with self._desk.looking() as reading:
            events = self._desk.told(reading, self._cursor_in(reading))[:limit]
        if events:
            self._delivered = max(self._delivered or 0, events[-1].position)
        return events

    def ack(self, position: int) -> None:
        """Acknowledge all events up to a position that ``poll`` gave to this handle. Raises InvalidStateError."""
        with self._desk.looking() as reading:
            number, cursor = self._number(reading), self._cursor_in(reading)
        moved = rules.acked(self._desk.id, position, cursor=cursor, delivered=self._delivered)
        if moved != cursor:
            with self._desk.journal.backend.write() as tx:
                if tx.cursor(number, self._id) < moved:
                    tx.set_cursor(number, self._id, moved)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until there is an event that this handle was not given; False if ``timeout`` seconds pass first.

        Only the database's change counter is looked at meanwhile.
        """
        if timeout is not None and type(timeout) not in (int, float):
            raise InvalidStateError(f"timeout is a number of seconds or None, not {timeout!r:.100}")
        end = None if timeout is None else time.monotonic() + timeout
        pause, longest = PAUSE
        counter: int | None = None
        while True:
            now = self._desk.journal.backend.changes()
            if now != counter:
                counter = now
                with self._desk.looking() as reading:
                    if self._desk.told_since(reading, max(self._delivered or 0, self._cursor_in(reading))):
                        return True
            left = longest if end is None else end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, longest)

    # --- how it is done --------------------------------------------------------------------------------------

    def _member(self, board: Board) -> Member:
        found = board.member(self._id)
        if found is None:
            raise NotFoundError(f"ledger {board.name!r} has no peer {self._name!r}; join first")
        if not found.present:
            raise InvalidStateError(f"peer {self._name!r} has left ledger {board.name!r}", advice="join again")
        return found

    def _stands(self, reading: Reading) -> None:
        """Refuse a handle that looked at its lineage before the newest restore or compaction."""
        if self._lineage is None:
            return
        stream = StreamId(self._lineage.namespace, StreamKind.LINEAGE, self._lineage.id)
        found = reading.last(stream)
        if found is None:
            raise NotFoundError(f"lineage {self._lineage.id!r} does not exist any more")
        number, last = found
        since = look.voided(reading, number, last)
        if since:
            revisions.check_epoch(self._lineage.id, seen=self._lineage.seen, since=since, head=last.revision)

    def _number(self, reading: Reading) -> int:
        found = reading.tx.stream(self._desk.opened.stream)
        if found is None:
            raise NotFoundError(f"ledger {self._desk.id!r} does not exist any more")
        return found

    def _cursor_in(self, reading: Reading) -> int:
        number = reading.tx.stream(self._desk.opened.stream)
        return 0 if number is None else reading.tx.cursor(number, self._id)

    def _carry_out(self, decide: Callable[[Reading], Plan], *, durable: bool = False) -> tuple[Any, ...]:
        opened = self._desk.opened
        with opened.lock:
            made = carry_out(self._desk.journal, opened, decide, durable=durable)
        self._desk.streams.used(opened)
        return made


def _cited(seen: Any) -> dict[str, Any]:
    if isinstance(seen, Mapping):
        return dict(seen)
    found: dict[str, Any] = {}
    for one in _listed(seen, "seen"):
        if not isinstance(one, Read | Seen):
            raise InvalidStateError(f"seen takes what read() gave, not {one!r:.100}")
        if one.key in found:
            raise InvalidStateError(f"seen cites key {one.key!r} twice", advice="pass the newest read of it")
        found[one.key] = one
    return found


def _listed(given: Any, name: str) -> Iterable[Any]:
    if not isinstance(given, Iterable):
        raise InvalidStateError(f"{name} takes a list of what read() gave, not {type(given).__name__}")
    return given


def _seen(given: Citation) -> Seen | Absent | None:
    if isinstance(given, Read):
        return given.seen
    if given is None or given is ABSENT or isinstance(given, Seen):
        return given
    raise InvalidStateError(f"seen={given!r:.100} is no citation", advice="pass what read() gave, or ABSENT")
