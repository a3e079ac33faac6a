"""What a caller asks of a lineage, apart from the state itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from cpstore import canonical
from cpstore.digest import digest
from cpstore.rules.glossary import advance

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from cpstore.model.binding import Binding, Directive, Retirement, Supersession
    from cpstore.model.glossary import Change, Glossary
    from cpstore.snapshot.edits import Change as Edited


@attrs.frozen
class Terms:
    """What an act does to the glossary."""

    define: tuple[Binding, ...] = ()
    supersede: tuple[Supersession, ...] = ()
    retire: tuple[Retirement, ...] = ()
    declared: Glossary | None = None

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
    """What the caller asked for; ``content`` digests the state or the changes, for idempotency keys."""

    step: int
    terms: Terms
    expected: int | None
    key: str | None
    content: Callable[[], bytes]

    def digest(self) -> str:
        """Return what tells this request from others, in hex."""
        return digest(self.content() + canonical.encode([self.step, self.terms.to_value()])).hex()


def changes_digest(changes: Iterable[Edited]) -> bytes:
    """Return the digest of stated changes and their values."""
    whole = b"edit"
    for change in changes:
        head = canonical.encode([change.verb, list(change.tokens), change.start, change.stop, len(change.values)])
        whole += digest(head) + b"".join(digest(value) for value in change.values)
    return digest(whole)
