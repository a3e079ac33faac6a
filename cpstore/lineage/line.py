"""What a handle on a lineage consists of: where it writes, what it has seen, and how it looks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.errors import CorruptError, NotFoundError
from cpstore.journal import Reading
from cpstore.model.entry import StreamId, StreamKind
from cpstore.model.glossary import Glossary
from cpstore.model.names import check_name
from cpstore.rules import revisions
from cpstore.snapshot import proof
from cpstore.streams import look

if TYPE_CHECKING:
    from collections.abc import Callable

    from cpstore.journal import Journal
    from cpstore.streams.opened import OpenStreams

    Redact = Callable[[str, Any], Any]


class Line:
    """One handle's view of a lineage. ``seen`` is the newest revision it has looked at or made, 0 if there was none.

    ``looks`` counts how often it learnt of another's newer revision. ``redact(name, value)`` returns what is kept of an
    effect's arguments or result.
    """

    def __init__(
        self,
        journal: Journal,
        streams: OpenStreams,
        name: str,
        namespace: str,
        max_bytes: int,
        redact: Redact | None = None,
    ) -> None:
        self.id = check_name(name, "lineage id")
        self.namespace = check_name(namespace, "namespace")
        self.journal = journal
        self.streams = streams
        self.opened = streams.get(StreamId(namespace, StreamKind.LINEAGE, name))
        self.seen: int | None = None
        self.max_bytes = max_bytes
        self.redact = redact
        self.looks = 0

    @property
    def stream(self) -> StreamId:
        """The name of its stream."""
        return self.opened.stream

    def looking(self) -> Reading:
        """Open a read transaction, begun when it is first asked."""
        return Reading(self.journal, self.namespace)

    def saw(self, revision: int) -> None:
        """Remember that this handle has looked at a revision."""
        if self.seen is not None and revision > self.seen:
            self.looks += 1
        self.seen = revision if self.seen is None else max(self.seen, revision)

    @property
    def head(self) -> int:
        """The revision that the process knows as the newest, 0 for none."""
        return 0 if self.opened.last is None else self.opened.last.revision

    def held(self, reading: Reading) -> Glossary:
        """Return the bindings as of the newest entry that the process knows."""
        opened = self.opened
        if opened.last is None or opened.number is None:
            return Glossary(())
        if opened.glossary is None:
            opened.glossary = look.glossary_at(reading, opened.number, opened.last)
        return opened.glossary

    def state(self, revision: int | None) -> dict[str, Any]:
        """Return the state of a revision. Raises NotFoundError, CorruptError, SignatureError."""
        with self.looking() as reading:
            _, _, entry = look.find(reading, self.stream, revision)
            states = reading.states(self.stream)
            tree = states.tree(entry.seq)
            # What stands in another lineage is vouched for by that one's newest signature; that it is still what this
            # revision was made of, only the root says.
            if tree.sources and proof.root(states, tree) != entry.state:
                where = f"{self.stream}@{entry.revision}"
                raise CorruptError(f"{where}: the lineage it was forked from has another history now; run verify")
            self.saw(entry.revision)
            return states.value(tree)

    def stands(self, reading: Reading) -> None:
        """Let an act pass that goes on from what this handle has seen.

        Raises NotFoundError if there is no lineage yet, RevisionConflictError if the handle has not looked, or looked
        before the newest restore or compaction: what it believes is void.
        """
        last, number = self.opened.last, self.opened.number
        if last is None or number is None:
            raise NotFoundError(f"lineage {self.id!r} does not exist yet; commit to it first")
        since = look.voided(reading, number, last)
        revisions.check_epoch(self.id, seen=self.seen, since=since, head=last.revision)
