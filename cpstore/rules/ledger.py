"""The shared ledger: who may write what, and what a peer has to read again before it may."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from cpstore.errors import ConflictError, InvalidStateError, PeerReadOnlyError, SemanticDriftError, StaleWriteError
from cpstore.model.ledger import ABSENT, Absent, Held, Member, Seen, Status, member_id
from cpstore.model.names import check_name

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

NOTHING = "nothing"
"""What stands for no citation, or for no value, in a StaleWriteError."""


@attrs.frozen
class Put:
    """One value of a batch: ``digest`` is its SHA-256 in hex, ``seen`` what the writer last saw under ``key``.

    ``seen=ABSENT`` claims that the key is new; None cites nothing, which passes only where the key is new.
    """

    key: str
    seen: Seen | Absent | None
    digest: str


def check_key(key: str) -> str:
    """Return ``key`` if it can name a value of a ledger, like every name. Raises InvalidStateError."""
    return check_name(key, "key")


def write(
    ledger: str, member: Member, puts: Iterable[Put], held: Mapping[str, Held], others: Iterable[Member]
) -> tuple[dict[str, int], Member]:
    """Return the new revision of each key, and the member after a batch that is written whole.

    ``held`` has what the ledger holds now under the batch's keys, ``others`` its members. Raises InvalidStateError for
    a malformed batch or a member that is not present, PeerReadOnlyError unless it is active, StaleWriteError with every
    key that is not as cited (``suspect``: that is not cited at all; store ``suspected(member, …)`` then), and
    SemanticDriftError if a symbol means something else to another present member.
    """
    batch = tuple(puts)
    keys = [check_key(put.key) for put in batch]
    if not keys:
        raise InvalidStateError(f"ledger {ledger!r}: a batch of no keys", advice="pass at least one")
    twice = [key for key, times in Counter(keys).items() if times > 1]
    if twice:
        raise InvalidStateError(f"ledger {ledger!r}: {_listed(twice)} stands twice in one batch", advice="put it once")
    _check_present(ledger, member)
    if not member.active:
        raise PeerReadOnlyError(ledger, member.peer, member.status.value, member.keys, member.cause)
    for put in batch:
        _check_citation(ledger, put)
    blind = [(put.key, NOTHING, _shown(held[put.key])) for put in batch if put.seen is None and put.key in held]
    if blind:
        raise StaleWriteError(ledger, blind, suspect=True)
    stale = [_stale(put.key, put.seen, held.get(put.key), member.void) for put in batch]
    _refuse_stale(ledger, stale)
    _refuse_clashes(ledger, member, others)
    revisions = {key: held[key].revision + 1 if key in held else 1 for key in keys}
    return revisions, read(member, keys) or member


def clashes(member: Member, others: Iterable[Member]) -> tuple[tuple[str, str, str], ...]:
    """Return each symbol that ``member`` and another present member lock with different meanings.

    The rows are ``(symbol, "<peer>: <digest>", "<other peer>: <digest>")`` with the first 8 digits, sorted.
    """
    found = []
    mine = dict(member.lock)
    for other in others:
        # Equal locks are the usual case, and one comparison of tuples.
        if other.id == member.id or not other.present or other.lock == member.lock:
            continue
        found += [
            (symbol, f"{member.peer}: {mine[symbol][:8]}", f"{other.peer}: {meaning[:8]}")
            for symbol, meaning in other.lock
            if mine.get(symbol, meaning) != meaning
        ]
    return tuple(sorted(found))


def read(member: Member, keys: Iterable[str]) -> Member | None:
    """Return the member that has read ``keys`` too, all of which exist; None if it had read them before."""
    new = frozenset(keys) - member.known
    return attrs.evolve(member, keys=_sorted(new.union(member.keys))) if new else None


def join(
    ledger: str,
    member: Member | None,
    *,
    peer: str,
    lineage: str | None,
    lock: Iterable[tuple[str, str]],
    compacted: bool,
    position: int,
    present: Iterable[Member],
) -> Member:
    """Return the membership after ``peer`` joined; ``member`` is what was found under its id (None: it is new).

    ``compacted`` says that the lineage of a new member has compacted before, ``position`` is the ledger's newest seq
    without the entry that records this, ``present`` has its members. A known one keeps its status: it was demoted when
    its lineage compacted, present or not.
    Raises InvalidStateError for a malformed name, ConflictError if another present member has it, SemanticDriftError if
    a symbol means something else to another present member.
    """
    check_name(peer, "peer name")
    others = tuple(present)
    filed = member_id(peer, lineage)
    if any(other.peer == peer and other.present and other.id != filed for other in others):
        raise ConflictError(f"ledger {ledger!r} has a peer {peer!r} already; join under another name, or let it leave")
    if member is None:
        status = Status.SUSPECT if compacted else Status.ACTIVE
        cause, void = ("compaction", position) if compacted else ("", 0)
        member = Member(filed, peer, lineage, status, cause, void)
    joined = attrs.evolve(member, peer=peer, lock=tuple(sorted(lock)), present=True)
    _refuse_clashes(ledger, joined, others)
    return joined


def leave(member: Member) -> Member:
    """Return the member that is not present any more. What it has to read again stays."""
    return attrs.evolve(member, present=False)


def demote(member: Member, position: int, cause: str, kept: Container[str] = ()) -> Member:
    """Return the member after its lineage's ``cause`` (``compaction``, ``restore``): it may only read.

    Everything it read up to ``position`` is void: the ledger's newest seq without the entry that records this, since
    what is read after that entry counts. It has to present every key it knows but those ``kept``, whose whole values
    ``rules.compaction.check_kept`` found in the compacted state.
    """
    saved = frozenset(key for key in member.known if key in kept)
    return attrs.evolve(
        member,
        status=Status.READ_ONLY,
        cause=cause,
        void=position,
        keys=_sorted(member.known - saved),
        kept=_sorted(saved),
    )


def suspected(member: Member, position: int, cause: str) -> Member:
    """Return the member after ``cause`` (``uncited write``, ``shrunk``): it may only read, what it read is void.

    Void is what it read up to ``position``, the ledger's newest seq without the entry that records this. A read-only
    member stays read-only and keeps that status's cause.
    """
    found = attrs.evolve(member, void=position, keys=_sorted(member.known), kept=())
    if member.status is Status.READ_ONLY:
        return found
    return attrs.evolve(found, status=Status.SUSPECT, cause=cause)


def revalidate(ledger: str, member: Member, seen: Iterable[Seen], held: Mapping[str, Held]) -> Member:
    """Return the member that is active again after it presented what it has read anew.

    ``held`` has what the ledger holds now under the presented keys. Whether a value has changed since the last read
    does not matter: what was read up to ``member.void`` is stale. An active member may present any of its keys. Raises
    InvalidStateError for what is no citation of this ledger or a member that is not present, PeerReadOnlyError with the
    keys that are not presented, StaleWriteError with every citation that is stale.
    """
    _check_present(ledger, member)
    shown = tuple(seen)
    for citation in shown:
        if not isinstance(citation, Seen):
            raise InvalidStateError(f"ledger {ledger!r}: revalidate takes what read() gave, not {citation!r:.100}")
        _check_seen(ledger, citation)
    keys = frozenset(citation.key for citation in shown)
    missing = [key for key in member.keys if key not in keys]
    if missing and not member.active:
        raise PeerReadOnlyError(ledger, member.peer, member.status.value, missing, "not presented")
    _refuse_stale(ledger, [_stale(one.key, one, held.get(one.key), member.void) for one in shown])
    known = _sorted(member.known | keys)
    return attrs.evolve(member, status=Status.ACTIVE, cause="", keys=known, kept=())


def acked(ledger: str, position: int, *, cursor: int, delivered: int | None) -> int:
    """Return a peer's cursor after it acknowledged the events up to ``position`` (a seq of the ledger's stream).

    ``delivered`` is the newest event that this handle was given, None if none. What is acknowledged already changes
    nothing. Raises InvalidStateError for what is no position, or was not delivered yet.
    """
    if type(position) is not int:
        raise InvalidStateError(f"ledger {ledger!r}: a position is an integer, not {position!r:.100}")
    if position <= cursor:
        return cursor
    if delivered is None or position > delivered:
        raise InvalidStateError(
            f"ledger {ledger!r}: position {position} is not delivered yet", advice="poll first, then ack what it gave"
        )
    return position


def _check_present(ledger: str, member: Member) -> None:
    if not member.present:
        raise InvalidStateError(f"ledger {ledger!r}: peer {member.peer!r} is not a member now", advice="join first")


def _check_citation(ledger: str, put: Put) -> None:
    if put.seen is None or put.seen is ABSENT:
        return
    if not isinstance(put.seen, Seen):
        raise InvalidStateError(
            f"ledger {ledger!r}, key {put.key!r}: seen={put.seen!r:.100} is no citation",
            advice="pass what read() gave, or ABSENT for a new key",
        )
    _check_seen(ledger, put.seen)
    if put.seen.key != put.key:
        raise InvalidStateError(
            f"ledger {ledger!r}, key {put.key!r}: the citation is of key {put.seen.key!r}", advice="read the key itself"
        )


def _check_seen(ledger: str, seen: Seen) -> None:
    wrong = seen.fault()
    if wrong:
        raise InvalidStateError(f"ledger {ledger!r}: a malformed citation: {wrong}", advice="pass what read() gave")
    if seen.ledger != ledger:
        raise InvalidStateError(
            f"ledger {ledger!r}: the citation of {seen.key!r} is of ledger {seen.ledger!r}", advice="read it here"
        )


def _stale(key: str, seen: Seen | Absent | None, held: Held | None, void: int) -> tuple[str, str, str] | None:
    """Return the row of a StaleWriteError, None if the ledger holds what was seen."""
    current = NOTHING if held is None else _shown(held)
    if not isinstance(seen, Seen):
        return None if held is None else (key, "that there is none", current)
    if held is None or (seen.revision, seen.digest) != (held.revision, held.digest):
        return key, _shown(seen), current
    if seen.position <= void:
        cited = f"{_shown(seen)} as read at {seen.position}, before the compaction, restore or doubt at {void}"
        return key, cited, current
    return None


def _refuse_stale(ledger: str, rows: Iterable[tuple[str, str, str] | None]) -> None:
    stale = [row for row in rows if row is not None]
    if stale:
        raise StaleWriteError(ledger, stale)


def _refuse_clashes(ledger: str, member: Member, others: Iterable[Member]) -> None:
    differences = clashes(member, others)
    if differences:
        advice = "two meanings of one symbol cannot share a ledger: supersede it in one of the lineages, then try again"
        raise SemanticDriftError(f"ledger {ledger!r}", differences, advice)


def _shown(value: Seen | Held) -> str:
    return f"revision {value.revision} ({value.digest[:8]}…)"


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(map(repr, keys))


def _sorted(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(keys))
