"""What a caller asks of a lineage, apart from the state itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from cpstore import canonical
from cpstore.digest import digest
from cpstore.errors import InvalidStateError
from cpstore.model.binding import Binding, Directive, Retirement, Supersession
from cpstore.model.glossary import Glossary
from cpstore.rules.glossary import advance
from cpstore.snapshot import values

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from cpstore.model.glossary import Change
    from cpstore.snapshot.edits import Change as Edited

Record = TypeVar("Record", Binding, Supersession, Retirement)


@attrs.frozen
class Terms:
    """What an act does to the glossary."""

    define: tuple[Binding, ...] = ()
    supersede: tuple[Supersession, ...] = ()
    retire: tuple[Retirement, ...] = ()
    declared: Glossary | None = None

    @classmethod
    def of(
        cls,
        define: Iterable[Binding],
        supersede: Iterable[Supersession],
        retire: Iterable[Retirement],
        glossary: Glossary | None,
    ) -> Terms:
        """Return the terms that a caller passed. Raises InvalidStateError for arguments of another type."""
        if glossary is not None and not isinstance(glossary, Glossary):
            raise InvalidStateError(f"glossary is a Glossary or None, not {type(glossary).__name__}")
        return cls(
            records("define", define, Binding),
            records("supersede", supersede, Supersession),
            records("retire", retire, Retirement),
            glossary,
        )

    def advance(
        self, held: Glossary, step: int, where: str, used: Container[tuple[str, Directive]] = ()
    ) -> Change | None:
        """Ask the rule what this does to the bindings in force."""
        if not (self.define or self.supersede or self.retire) and self.declared is None:
            return None
        return advance(
            held,
            step=step,
            define=self.define,
            supersede=self.supersede,
            retire=self.retire,
            declared=self.declared,
            used=used,
            where=where,
        )

    def to_value(self) -> Any:
        """Return the terms in the canonical JSON model."""
        groups = (self.define, self.supersede, self.retire)
        declared = None if self.declared is None else self.declared.to_value()
        return [*([part.to_value() for part in group] for group in groups), declared]


@attrs.frozen
class Request:
    """What the caller asked for; ``content`` digests the state or the changes, for idempotency keys.

    ``step`` is None where the head's is meant; ``looks`` is how often the handle had learnt of another's revision when
    an edit was begun.
    """

    step: Any
    terms: Terms
    expected: int | None
    key: str | None
    content: Callable[[], bytes]
    looks: int | None = None

    def digest(self) -> str:
        """Return what tells this request from others, in hex."""
        return digest(self.content() + canonical.encode([self.step, self.terms.to_value()])).hex()


def state_digest(state: object) -> bytes:
    """Return the digest of a whole state, the same for equal ones."""
    return digest(b"state" + values.canonical(state))


def changes_digest(changes: Iterable[Edited]) -> bytes:
    """Return the digest of stated changes and their values, the same for equal ones."""
    whole = b"edit"
    for change in changes:
        head = canonical.encode([change.verb, list(change.tokens), change.start, change.stop, len(change.values)])
        whole += digest(head) + b"".join(digest(values.canonical(values.decode(enc))) for enc in change.values)
    return digest(whole)


def records(name: str, given: Iterable[Record], kind: type[Record]) -> tuple[Record, ...]:
    """Return the records that were passed as the argument ``name``. Raises InvalidStateError for anything else."""
    if not isinstance(given, Iterable):
        raise InvalidStateError(f"{name} is a list of {kind.__name__} records, not {type(given).__name__}")
    found = tuple(given)
    wrong = [record for record in found if not isinstance(record, kind)]
    if wrong:
        raise InvalidStateError(f"{name}: a {kind.__name__} is needed here, not {wrong[0]!r:.100}")
    return found


def orders(reread: Mapping[str, Directive] | None) -> dict[str, Directive]:
    """Return the orders that were passed as ``reread``, by symbol. Raises InvalidStateError for anything else."""
    if reread is not None and not isinstance(reread, Mapping):
        raise InvalidStateError(f"reread is a mapping from symbol to Directive, not {type(reread).__name__}")
    return dict(reread or {})
