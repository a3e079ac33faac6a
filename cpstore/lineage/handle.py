"""One line of checkpoints: read the facts, ask the rules, append what they answer. One transaction an act."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.digest import digest
from cpstore.errors import (
    ConflictError,
    CorruptError,
    InvalidStateError,
    RevisionConflictError,
    StorageError,
)
from cpstore.journal import Reading
from cpstore.lineage import look
from cpstore.lineage.edit import Edit
from cpstore.lineage.request import Request, Terms, changes_digest
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.entry import Entry, Kind, StreamId, StreamKind
from cpstore.model.fork import Citation
from cpstore.model.names import check_name
from cpstore.rules import forks, revisions
from cpstore.rules import glossary as glossary_rules
from cpstore.snapshot import values
from cpstore.snapshot.writer import SnapshotWriter, detach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from cpstore.journal import Journal, Signed
    from cpstore.lineage.opened import OpenLineages
    from cpstore.model.binding import Binding, Directive, Retirement, Supersession
    from cpstore.model.glossary import Change, Glossary
    from cpstore.snapshot.edits import Change as Edited
    from cpstore.snapshot.writer import Addition

MAX_STATE_BYTES = 1 << 30
"""Encoded bytes that one state may have, unless the store is opened with another limit."""


class Lineage:
    """A handle on one lineage. Threads that share it take turns; each handle remembers what it has seen.

    Make it with ``Store.lineage``; nothing is written before the first commit.
    """

    def __init__(
        self, journal: Journal, opened: OpenLineages, name: str, namespace: str, max_state_bytes: int = MAX_STATE_BYTES
    ) -> None:
        self.id = check_name(name, "lineage id")
        self.namespace = check_name(namespace, "namespace")
        self._journal = journal
        self._lineages = opened
        self._opened = opened.get(StreamId(namespace, StreamKind.LINEAGE, name))
        self._seen: int | None = None
        self._max = max_state_bytes

    def __repr__(self) -> str:
        return f"<Lineage {self.namespace}/{self.id}>"

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the lineage has a checkpoint."""
        with self._looking() as reading:
            found = reading.last(self._stream)
        if found is None:
            self._saw(0)
        return found is not None

    def head(self) -> Checkpoint:
        """Return the newest checkpoint, without its state. Raises NotFoundError if there is none."""
        return self.checkpoint()

    def checkpoint(self, revision: int | None = None) -> Checkpoint:
        """Return the header of a checkpoint (default: the head), its signature checked.

        Raises NotFoundError, CorruptError, SignatureError.
        """
        with self._looking() as reading:
            number, _, entry = look.find(reading, self._stream, revision)
            self._saw(entry.revision)
            return look.header(reading, number, entry)

    def load(self, revision: int | None = None) -> dict[str, Any]:
        """Return the state of a revision (default: the head) as fresh values, equal to what was committed.

        One signature vouches for all bytes that are read; they are compared with it before they are decompressed.
        Raises NotFoundError, CorruptError, SignatureError.
        """
        with self._looking() as reading:
            _, _, entry = look.find(reading, self._stream, revision)
            states = reading.states(self._stream)
            state = states.value(states.tree(entry.seq))
            self._saw(entry.revision)
            return state

    def history(self, *, before: int | None = None, limit: int | None = None) -> Iterator[Checkpoint]:
        """Yield the headers of checkpoints, newest first, a page at a time, each with its signature checked.

        ``before`` starts below that revision, ``limit`` ends after so many. Raises NotFoundError if there is no such
        lineage: an empty history would look like a new one. Also CorruptError, SignatureError.
        """
        left = -1 if limit is None else limit
        upto: int | None = None if before is None else before - 1
        while left and (upto is None or upto > 0):
            with self._looking() as reading:
                number, last, _ = look.find(reading, self._stream, None)
                top = last.revision if upto is None else min(upto, last.revision)
                page = look.page(reading, number, self._stream, top, 64 if left < 0 else min(64, left))
            yield from page
            if not page:
                return
            upto = page[-1].revision - 1
            left -= len(page)

    def glossary(self, revision: int | None = None) -> Glossary:
        """Return the bindings in force at a revision (default: the head), with the lock's digest."""
        with self._looking() as reading:
            number, _, entry = look.find(reading, self._stream, revision)
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
        return self._write(request, lambda writer: writer.state(state, self._max))

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
            return self._write(request, lambda writer: writer.changes(changes))

        return Edit(commit, self._max)

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
        child = Lineage(self._journal, self._lineages, name, self.namespace, self._max)
        with child._opened.lock:
            child._fork_from(self, revision, tuple(supersede), dict(reread or {}))
        return child

    def landed(self, key: str) -> Checkpoint | None:
        """Return the checkpoint that was committed under an idempotency key, None if there is none."""
        check_name(key, "idempotency key")
        with self._looking() as reading:
            found = reading.last(self._stream)
            seq = None if found is None else reading.tx.landed(found[0], key)
            if found is None or seq is None:
                return None
            return look.header(reading, found[0], reading.entry(found[0], seq))

    # --- how it is done --------------------------------------------------------------------------------------

    @property
    def _stream(self) -> StreamId:
        return self._opened.stream

    def _looking(self) -> Reading:
        return Reading(self._journal, self.namespace)

    def _saw(self, revision: int) -> None:
        self._seen = revision if self._seen is None else max(self._seen, revision)

    def _refresh(self, reading: Reading) -> None:
        """Learn the lineage's head and glossary from the store."""
        opened = self._opened
        found = reading.last(self._stream)
        if found is None:
            opened.forget()
            return
        number, last = found
        if opened.last is None or (opened.last.seq, opened.last.signature) != (last.seq, last.signature):
            opened.forget()
            opened.glossary = look.glossary_at(reading, number, last)
        opened.number, opened.last = number, last

    def _write(self, request: Request, add: Callable[[SnapshotWriter], Addition]) -> Checkpoint:
        """Commit one checkpoint: rules first, then bytes and signature, then the lock."""
        opened = self._opened
        with opened.lock, self._looking() as reading:
            repeated = self._prepare(request, reading)
            if repeated is not None:
                return repeated
            head = 0 if opened.last is None else opened.last.revision
            revisions.check(self.id, expected=request.expected, seen=self._seen, head=head)
            revisions.check_step(self.id, request.step, None if opened.last is None else opened.last.step)
            held = glossary_rules.in_force(opened.glossary, request.step)
            change = request.terms.advance(held, request.step, f"{self._stream}@{head + 1}")
            try:
                writer = self._writer(reading)
                addition = add(writer)
                reading.close()
                made = self._sign(Kind.CHECKPOINT, request, addition, change, head + 1)
                self._land(made, addition, request.key)
            except BaseException:
                opened.forget()
                raise
            if change is not None:
                opened.glossary = glossary_rules.apply(held, change, request.step)
            self._seen = made.entry.revision
        self._lineages.used(opened)
        return Checkpoint.of(made.entry, made.name)

    def _prepare(self, request: Request, reading: Reading) -> Checkpoint | None:
        """Look at the store where memory does not suffice; return the checkpoint that this request made already."""
        opened = self._opened
        known = None if opened.last is None else opened.last.revision
        basis = request.expected or self._seen or 0
        # A writing end is rebuilt from what is stored now: others may have gone on since this process last looked.
        if known is None or opened.writer is None or request.key is not None or basis != known:
            self._refresh(reading)
        if request.key is None:
            return None
        check_name(request.key, "idempotency key")
        seq = None if opened.number is None else reading.tx.landed(opened.number, request.key)
        if seq is None or opened.number is None:
            return None
        entry = reading.entry(opened.number, seq)
        stored = (entry.detail or {}).get("key", {})
        if stored.get("name") != request.key:
            raise CorruptError(f"{self._stream}: entry {seq} is filed under key {request.key!r}, but does not carry it")
        if stored.get("request") != request.digest():
            raise ConflictError(
                f"key {request.key!r} of lineage {self.id!r} was used for another request: revision {entry.revision} "
                f"has request {stored.get('request')}, this one has {request.digest()}"
            )
        self._saw(entry.revision)
        return look.header(reading, opened.number, entry)

    def _writer(self, reading: Reading) -> SnapshotWriter:
        opened = self._opened
        opened.reading = reading
        if opened.writer is None:
            if opened.last is None:
                opened.writer = SnapshotWriter.start(self._states, self._blob)
            else:
                opened.writer = SnapshotWriter.reopen(opened.last.seq, self._states, self._blob)
        return opened.writer

    @property
    def _states(self) -> Callable[[], Any]:
        opened, stream = self._opened, self._opened.stream

        def states() -> Any:
            if opened.reading is None:
                raise RuntimeError("no act is under way")
            return opened.reading.states(stream)

        return states

    @property
    def _blob(self) -> Callable[[bytes], bytes | None]:
        opened = self._opened
        return lambda content: None if opened.reading is None else opened.reading.blob(content)

    def _sign(
        self, kind: Kind, request: Request, addition: Addition, change: Change | None, revision: int, **more: Any
    ) -> Signed:
        last = self._opened.last
        term = 0 if last is None else last.term
        detail: dict[str, Any] = dict(more)
        if change is not None:
            detail["glossary"] = change.to_value()
            if term:
                detail["previousTerm"] = term
            term = addition.seq
        if request.key is not None:
            detail["key"] = {"name": request.key, "request": request.digest()}
        return self._journal.sign(
            self._stream, last, kind, addition, revision=revision, step=request.step, term=term, detail=detail or None
        )

    def _land(self, made: Signed, addition: Addition, key: str | None) -> None:
        """Write a signed entry, if its stream is still where it was when the entry was made."""
        opened = self._opened
        try:
            with self._journal.backend.write() as tx:
                number, position = opened.number, tx.position(opened.number)
                if number is None and tx.stream(self._stream) is None:
                    number = tx.add_stream(self._stream)
                elif number is None or _moved(position, opened.last):
                    self._conflict(tx.last(tx.stream(self._stream) or 0))
                assert number is not None  # noqa: S101
                entry = self._journal.append(tx, number, made, addition, position)
                if key is not None:
                    tx.add_key(number, key, entry.seq)
        except StorageError as error:
            raise StorageError(
                error.problem,
                namespace=self.namespace,
                stream=self.id,
                seq=made.entry.seq,
                entry=made.name.hex(),
            ) from error
        opened.number, opened.last = number, entry

    def _conflict(self, head: Entry | None) -> None:
        known = 0 if self._opened.last is None else self._opened.last.revision
        raise RevisionConflictError(self.id, known, 0 if head is None else head.revision)

    def _fork_from(
        self, parent: Lineage, revision: int | None, supersede: tuple[Supersession, ...], reread: dict[str, Directive]
    ) -> None:
        opened = self._opened
        with self._looking() as reading:
            number, last, entry = look.find(reading, parent._stream, revision)
            forks.check(self.id, exists=reading.tx.stream(self._stream) is not None)
            then, now = look.glossary_at(reading, number, entry), look.glossary_at(reading, number, last)
            plan = glossary_rules.fork_glossary(
                then, now, supersede=supersede, reread=reread, step=entry.step, where=f"{self._stream}@1"
            )
            citation = Citation(parent.id, entry.revision, look.header(reading, number, entry).entry)
            states = reading.states(parent._stream)
            tree, _, _ = states.hashed(entry.seq)
            opened.forget()
            opened.reading = reading
            try:
                opened.writer = SnapshotWriter.start(self._states_of(states), self._blob, detach(tree, parent.id, 1))
                addition = opened.writer.bare_base()
                if addition.state != entry.state:
                    raise CorruptError(
                        f"{parent._stream}@{entry.revision}: its bytes make another state than was signed"
                    )
                reading.close()
                request = Request(entry.step, Terms(), None, None, lambda: b"")
                made = self._sign(
                    Kind.FORK, request, addition, plan.change, 1, parent=citation.to_value(), **plan.extra()
                )
                self._land(made, addition, None)
            except RevisionConflictError as error:
                opened.forget()
                raise ConflictError(f"lineage {self.id!r} exists already; fork to another id") from error
            except BaseException:
                opened.forget()
                raise
            opened.glossary = plan.glossary
            opened.writer = None
            self._seen = 1

    def _states_of(self, states: Any) -> Callable[[], Any]:
        return lambda: states


def _moved(position: Any, last: Entry | None) -> bool:
    return (position.seq, position.signature) != ((0, b"") if last is None else (last.seq, last.signature))
