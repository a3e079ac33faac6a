"""One line of checkpoints: read the facts, ask the rules, append what they answer. One transaction an act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.digest import digest
from cpstore.errors import InvalidStateError
from cpstore.lineage import look
from cpstore.lineage.commits import Commit
from cpstore.lineage.edit import Edit
from cpstore.lineage.forking import Fork
from cpstore.lineage.line import Line
from cpstore.lineage.request import Request, Terms, changes_digest
from cpstore.model.names import check_name
from cpstore.snapshot import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cpstore.journal import Journal
    from cpstore.model.binding import Binding, Directive, Retirement, Supersession
    from cpstore.model.checkpoint import Checkpoint
    from cpstore.model.glossary import Glossary
    from cpstore.snapshot.edits import Change as Edited
    from cpstore.streams.opened import OpenStreams

MAX_STATE_BYTES = 1 << 30
"""Encoded bytes that one state may have, unless the store is opened with another limit."""


class Lineage:
    """A handle on one lineage. Threads that share it take turns; each handle remembers what it has seen.

    Make it with ``Store.lineage``; nothing is written before the first commit.
    """

    def __init__(
        self, journal: Journal, streams: OpenStreams, name: str, namespace: str, max_state_bytes: int = MAX_STATE_BYTES
    ) -> None:
        self._line = Line(journal, streams, name, namespace, max_state_bytes)

    def __repr__(self) -> str:
        return f"<Lineage {self.namespace}/{self.id}>"

    @property
    def id(self) -> str:
        """The lineage's name."""
        return self._line.id

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._line.namespace

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the lineage has a checkpoint."""
        with self._line.looking() as reading:
            found = reading.last(self._line.stream)
        if found is None:
            self._line.saw(0)
        return found is not None

    def head(self) -> Checkpoint:
        """Return the newest checkpoint, without its state. Raises NotFoundError if there is none."""
        return self.checkpoint()

    def checkpoint(self, revision: int | None = None) -> Checkpoint:
        """Return the header of a checkpoint (default: the head), its signature checked.

        Raises NotFoundError, CorruptError, SignatureError.
        """
        with self._line.looking() as reading:
            number, _, entry = look.find(reading, self._line.stream, revision)
            self._line.saw(entry.revision)
            return look.header(reading, number, entry)

    def load(self, revision: int | None = None) -> dict[str, Any]:
        """Return the state of a revision (default: the head) as fresh values, equal to what was committed.

        One signature vouches for all bytes that are read; they are compared with it before they are decompressed.
        Raises NotFoundError, CorruptError, SignatureError.
        """
        with self._line.looking() as reading:
            _, _, entry = look.find(reading, self._line.stream, revision)
            states = reading.states(self._line.stream)
            state = states.value(states.tree(entry.seq))
            self._line.saw(entry.revision)
            return state

    def history(self, *, before: int | None = None, limit: int | None = None) -> Iterator[Checkpoint]:
        """Yield the headers of checkpoints, newest first, a page at a time, each with its signature checked.

        ``before`` starts below that revision, ``limit`` ends after so many. Raises NotFoundError if there is no such
        lineage: an empty history would look like a new one. Also CorruptError, SignatureError.
        """
        left = -1 if limit is None else limit
        upto: int | None = None if before is None else before - 1
        while left and (upto is None or upto > 0):
            with self._line.looking() as reading:
                number, last, _ = look.find(reading, self._line.stream, None)
                top = last.revision if upto is None else min(upto, last.revision)
                page = look.page(reading, number, self._line.stream, top, 64 if left < 0 else min(64, left))
            yield from page
            if not page:
                return
            upto = page[-1].revision - 1
            left -= len(page)

    def glossary(self, revision: int | None = None) -> Glossary:
        """Return the bindings in force at a revision (default: the head), with the lock's digest."""
        with self._line.looking() as reading:
            number, _, entry = look.find(reading, self._line.stream, revision)
            return look.glossary_at(reading, number, entry)

    # --- writing ---------------------------------------------------------------------------------------------

    def commit(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        define: Iterable[Binding] = (),
        supersede: Iterable[Supersession] = (),
        retire: Iterable[Retirement] = (),
        glossary: Glossary | None = None,
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> Checkpoint:
        """Commit ``state`` as the next revision, storing only what differs from the one before.

        ``step`` is the caller's own index: it may repeat or rise. ``define`` names new bindings, ``supersede`` and
        ``retire`` change locked ones on someone's order; ``glossary`` declares all of them, with or without its
        digest. ``expected_revision`` defaults to the newest revision this handle has seen. ``key`` makes a retry
        safe: the same key with the same request returns the checkpoint that landed.

        Raises InvalidStateError (with the path), SemanticDriftError, RevisionConflictError, ConflictError (key used
        for another request), BusyError, StorageError (in doubt: ask ``Store.landed``). After any of them nothing
        has changed, in memory or in the file, unless the error says "in doubt".
        """
        if type(state) is not dict:
            raise InvalidStateError(f"a state is a dict, not {type(state).__name__}", advice="wrap it: {'value': …}")
        terms = Terms(tuple(define), tuple(supersede), tuple(retire), glossary)
        request = Request(step, terms, expected_revision, key, lambda: digest(b"state" + values.encode(state)))
        return Commit(self._line, request, lambda writer: writer.state(state, self._line.max_bytes)).carry_out()

    def edit(
        self,
        *,
        step: int,
        define: Iterable[Binding] = (),
        supersede: Iterable[Supersession] = (),
        retire: Iterable[Retirement] = (),
        glossary: Glossary | None = None,
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> Edit:
        """Return a block that states changes by path and commits them when it ends without an exception.

        Its cost is that of the changes, whatever the size of the state. The arguments are those of ``commit``.
        """
        terms = Terms(tuple(define), tuple(supersede), tuple(retire), glossary)

        def commit(changes: Sequence[Edited]) -> Checkpoint:
            request = Request(step, terms, expected_revision, key, lambda: changes_digest(changes))
            return Commit(self._line, request, lambda writer: writer.changes(changes)).carry_out()

        return Edit(commit, self._line.max_bytes)

    def fork(
        self,
        name: str,
        *,
        revision: int | None = None,
        supersede: Iterable[Supersession] = (),
        reread: Mapping[str, Directive] | None = None,
    ) -> Lineage:
        """Start a lineage that shares the content of a revision (default: the head) and inherits the glossary lock.

        The fork's own revision 1 is written at once; the cost does not depend on the history. Below the head the
        locks of the head stay in force: where a definition has moved since, the fork is refused with
        SemanticDriftError unless ``supersede`` re-establishes it or ``reread`` names who ordered that the old state
        be read under today's meaning. Raises NotFoundError, ConflictError if ``name`` exists.
        """
        line = self._line
        child = Lineage(line.journal, line.streams, name, line.namespace, line.max_bytes)
        Fork(line, child._line, revision, tuple(supersede), dict(reread or {})).carry_out()
        return child

    def landed(self, key: str) -> Checkpoint | None:
        """Return the checkpoint that was committed under an idempotency key, None if there is none."""
        check_name(key, "idempotency key")
        with self._line.looking() as reading:
            found = reading.last(self._line.stream)
            seq = None if found is None else reading.tx.landed(found[0], key)
            if found is None or seq is None:
                return None
            return look.header(reading, found[0], reading.entry(found[0], seq))
