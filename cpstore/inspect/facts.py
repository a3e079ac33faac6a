"""What several commands ask a store: names and places, headers, and who settled a term."""

from __future__ import annotations

import argparse
import contextlib
import re
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CorruptError, NotFoundError, SignatureError
from cpstore.journal import Reading
from cpstore.lineage.crossing import check_kin
from cpstore.model.compaction import Compaction
from cpstore.model.entry import Kind, StreamId, StreamKind
from cpstore.model.fork import Citation
from cpstore.model.glossary import Change
from cpstore.model.restore import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.inspect.open import Asked
    from cpstore.model.binding import Binding, Directive
    from cpstore.model.checkpoint import Checkpoint
    from cpstore.model.effect import Effect
    from cpstore.model.entry import Entry
    from cpstore.store import Store

_PLACE = re.compile(r"(?P<lineage>.*)@(?P<revision>[0-9]{1,18}|head)", re.DOTALL)


def place(text: str) -> tuple[str, int | None]:
    """Read ``LINEAGE@REV``; without ``@REV``, or with ``@head``, the newest revision is meant (None)."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return text, None
    return found["lineage"], None if found["revision"] == "head" else int(found["revision"])


def checkpoint_at(asked: Asked, text: str) -> Checkpoint:
    """Return the header that ``LINEAGE@REV`` names."""
    name, revision = place(text)
    return asked.store.lineage(name, namespace=asked.namespace).checkpoint(revision)


def names(store: Store, namespace: str | None = None) -> list[tuple[str, str]]:
    """Return (namespace, lineage id) of all lineages, without a look at their entries: damage does not stop it."""
    with Reading(store._journal, namespace or "default") as reading:  # noqa: SLF001
        return [(found.namespace, found.name) for _, found in reading.tx.streams(StreamKind.LINEAGE, namespace)]


def unsettled(asked: Asked, namespace: str, lineage: str) -> list[tuple[Effect, bool]]:
    """Return the effects without an outcome of the family that a lineage is the first of, each with whether it is in
    doubt; none for a fork: they are those of its family.

    Raises NotFoundError, CorruptError, SignatureError.
    """
    with Reading(asked.store._journal, namespace) as reading:  # noqa: SLF001
        number = reading.tx.stream(StreamId(namespace, StreamKind.LINEAGE, lineage))
        if number is None:
            raise NotFoundError(f"lineage {lineage!r} does not exist any more")
        check_kin(reading, number)
        if reading.tx.kin(number) is not None:
            return []
    effects = asked.store.lineage(lineage, namespace=namespace)._effects  # noqa: SLF001
    return [(known.record, effects.in_doubt(known.record)) for known in effects.known(None, unsettled=True)]


def header(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint's header in the JSON model."""
    parent = checkpoint.parent
    return {
        "lineage": checkpoint.lineage,
        "namespace": checkpoint.namespace,
        "revision": checkpoint.revision,
        "seq": checkpoint.seq,
        "step": checkpoint.step,
        "kind": checkpoint.kind,
        "time": checkpoint.time,
        "actor": checkpoint.actor,
        "state": checkpoint.state,
        "entry": checkpoint.entry,
        "changes_glossary": checkpoint.changes_glossary,
        "key": checkpoint.key,
        "parent": None if parent is None else {"lineage": parent[0], "revision": parent[1]},
    }


def made(asked: Asked, checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what the signed entry of a restore, compaction or fork says of it, in the JSON model.

    The keys are ``restore``, ``compaction``, ``crossed`` (a fork below the head: the parent's newest seq then),
    ``moves_glossary``, ``reread`` and ``acknowledgement``; null, or an empty list, where it says nothing. Raises
    CorruptError, SignatureError.
    """
    stream = StreamId(checkpoint.namespace, StreamKind.LINEAGE, checkpoint.lineage)
    with Reading(asked.store._journal, checkpoint.namespace) as reading:  # noqa: SLF001
        number = reading.tx.stream(stream)
        if number is None:
            raise NotFoundError(f"{stream} does not exist any more")
        detail: Any = reading.entry(number, checkpoint.seq).detail or {}
        word = detail.get("acknowledgement")
        if "restore" in detail and checkpoint.seq > 1:
            before = reading.entry(number, checkpoint.seq - 1)  # an act that somebody answers for is two entries
            if before.kind is Kind.ACKNOWLEDGEMENT:
                word = (before.detail or {}).get("acknowledgement")
    glossary = None if "glossary" not in detail else Change.from_value(detail["glossary"])
    return {
        "restore": detail.get("restore"),
        "moves_glossary": glossary is not None
        and bool(glossary.established or glossary.superseded or glossary.retired),
        "compaction": None if "compaction" not in detail else Compaction.from_value(detail["compaction"]).to_value(),
        "crossed": detail.get("crossed"),
        "reread": detail.get("reread", []),
        "acknowledgement": None if word is None else Acknowledgement.from_value(word).to_value(),
    }


def forks(asked: Asked, lineage: str) -> dict[int, list[str]]:
    """Return the names of the lineages that were forked from one, by the revision that they left.

    One whose first entry cannot be trusted is left out: damage there does not hide what is sound here.
    """
    found: dict[int, list[str]] = {}
    with Reading(asked.store._journal, asked.namespace) as reading:  # noqa: SLF001
        number = reading.tx.stream(StreamId(asked.namespace, StreamKind.LINEAGE, lineage))
        for child in [stream for stream, kin in reading.tx.kins() if kin.parent == number]:
            with contextlib.suppress(CorruptError, SignatureError):
                entry = reading.entry(child, 1)
                cited = Citation.from_value((entry.detail or {}).get("parent"))
                if cited.lineage == lineage:
                    found.setdefault(cited.revision, []).append(entry.stream.name)
    return found


@attrs.frozen
class Settled:
    """Who settled a term: the entry's place, actor and time, and the directive it was ordered by, if any."""

    lineage: str
    revision: int
    time: int
    actor: str
    directive: Directive | None = None


def settlements(asked: Asked, lineage: str, revision: int) -> dict[str, Settled]:
    """Return, for each symbol in force at a revision, where its present binding was settled.

    A fork inherits: then the answer is a place in its parent, as far as the parent had that binding where it was
    forked. Raises NotFoundError, CorruptError, SignatureError.
    """
    held = asked.store.lineage(lineage, namespace=asked.namespace).glossary(revision)
    found: dict[str, Settled] = {}
    pending = {binding.symbol: binding for binding in held}
    origin: tuple[str, int] | None = (lineage, revision)
    while origin is not None and pending:
        name, at = origin
        origin = None
        for entry in changes(asked, name, at):
            inherited = entry.kind is Kind.FORK
            for binding, directive in _made(entry):
                wanted = pending.get(binding.symbol)
                if wanted is None:
                    continue
                if wanted == binding:
                    found[binding.symbol] = Settled(name, entry.revision, entry.time, entry.actor, directive)
                if not inherited or wanted != binding or directive is not None:
                    del pending[binding.symbol]
            if inherited:
                parent = (entry.detail or {})["parent"]
                origin = parent["lineage"], parent["revision"]
    return found


def changes(asked: Asked, name: str, revision: int) -> Iterator[Entry]:
    """Yield the verified entries that changed a lineage's glossary up to a revision, newest first."""
    stream = StreamId(asked.namespace, StreamKind.LINEAGE, name)
    with Reading(asked.store._journal, asked.namespace) as reading:  # noqa: SLF001
        number = reading.tx.stream(stream)
        entry = None if number is None else reading.tx.revision(number, revision)
        if number is None or entry is None:
            raise NotFoundError(f"lineage {name!r} has no revision {revision}")
        seq = reading.checked(number, entry).term
        while seq:
            entry = reading.entry(number, seq)
            yield entry
            earlier = (entry.detail or {}).get("previousTerm", 0)
            if earlier >= seq:
                raise CorruptError(f"{stream}: entry {seq} names a later change of the glossary; run verify")
            seq = earlier


def _made(entry: Entry) -> list[tuple[Binding, Directive | None]]:
    """Return the bindings that an entry brought into force, each with the directive that ordered it."""
    change = Change.from_value((entry.detail or {}).get("glossary"))
    ordered: list[tuple[Binding, Directive | None]] = [(part.binding, part.directive) for part in change.superseded]
    return ordered + [(binding, None) for binding in change.established]


def limit_of(text: str) -> int:
    """Read a ``--limit``: a number, 0 for no limit. Raises ArgumentTypeError."""
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; 0 means no limit")
    return int(text)
