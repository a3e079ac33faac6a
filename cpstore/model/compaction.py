"""What a compaction records: what its summary stands for, and what the summary relies on."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import attrs

from cpstore.errors import CorruptError
from cpstore.model.binding import exact
from cpstore.model.ledger import count_fault, digest_fault, items, name_fault, readable, text_fault, unsorted

_TILDE = re.compile("~(?![01])")


@attrs.frozen
class Covered:
    """Content that the state before held and the compacted one does not.

    ``path`` is the JSON Pointer (RFC 6901) of a list, and ``start`` to ``stop`` are the items that went, as it was
    before; or of a value that went whole, and both are None. ``digest`` is the content's SHA-256 in hex, ``size`` its
    stored bytes.
    """

    path: str
    start: int | None
    stop: int | None
    digest: str
    size: int

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            pointer_fault(self.path)
            or self._range_fault()
            or digest_fault(self.digest)
            or count_fault(self.size, "size", first=0)
        )

    def _range_fault(self) -> str:
        if self.start is None and self.stop is None:
            return ""
        return count_fault(self.start, "start", first=0) or count_fault(self.stop, "stop", first=(self.start or 0) + 1)

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        return attrs.asdict(self)

    @classmethod
    def from_value(cls, value: Any) -> Covered:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "covered range"
        return readable(cls(**exact(value, what, *(field.name for field in attrs.fields(cls)))), what)


@attrs.frozen
class TermClaim:
    """The summary relies on what ``symbol`` means: word for word the ``definition`` of its binding."""

    symbol: str
    definition: str

    def __str__(self) -> str:
        return f"term {self.symbol!r}"

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return _wording_fault(self.symbol, "symbol") or _wording_fault(self.definition, "definition")

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, tagged."""
        return {"claim": "term", **attrs.asdict(self)}

    @classmethod
    def from_value(cls, value: Any) -> TermClaim:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        return readable(cls(**_tagged(value, "term", cls)), "claim")


@attrs.frozen
class EffectClaim:
    """The summary relies on an effect's ``state``: that of its ``occurrence`` (from 1) under a name and a key."""

    name: str
    key: str
    state: str
    occurrence: int = 1

    def __str__(self) -> str:
        return f"effect {self.name!r}, key {self.key!r}, occurrence {self.occurrence}"

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            _wording_fault(self.name, "name")
            or _wording_fault(self.key, "key")
            or _wording_fault(self.state, "state")
            or count_fault(self.occurrence, "occurrence", first=1)
        )

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, tagged."""
        return {"claim": "effect", **attrs.asdict(self)}

    @classmethod
    def from_value(cls, value: Any) -> EffectClaim:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        return readable(cls(**_tagged(value, "effect", cls)), "claim")


@attrs.frozen
class KeyClaim:
    """The summary relies on a ledger's value: its ``revision`` (from 1) and its SHA-256 in hex."""

    ledger: str
    key: str
    revision: int
    digest: str

    def __str__(self) -> str:
        return f"key {self.key!r} of ledger {self.ledger!r}"

    def fault(self) -> str:
        """Say what is wrong with the fields, ``""`` if nothing is."""
        return (
            name_fault(self.ledger, "ledger")
            or name_fault(self.key, "key")
            or count_fault(self.revision, "revision", first=1)
            or digest_fault(self.digest)
        )

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, tagged."""
        return {"claim": "key", **attrs.asdict(self)}

    @classmethod
    def from_value(cls, value: Any) -> KeyClaim:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        return readable(cls(**_tagged(value, "key", cls)), "claim")


Claim: TypeAlias = TermClaim | EffectClaim | KeyClaim
CLAIMS = (TermClaim, EffectClaim, KeyClaim)


@attrs.frozen
class Compaction:
    """What the signed entry of a compaction records.

    It covers the revisions ``first`` to ``last`` of its lineage, of which ``covers`` has the content that went.
    ``path`` is the JSON Pointer of the summary in the new state, ``summary`` its SHA-256 in hex, ``level`` its height
    in the tree of summaries (from 1). The token counts are labels. ``unbacked`` are those ``claims`` that have no
    source. ``kept`` has ``(ledger, key, path)`` of values that stand whole in the new state, sorted. ``previous`` is
    the seq of the lineage's compaction before this one, 0 if there is none.
    """

    first: int
    last: int
    covers: tuple[Covered, ...]
    path: str
    summary: str
    level: int
    tokens_before: int | None = None
    tokens_after: int | None = None
    claims: tuple[Claim, ...] = ()
    unbacked: tuple[Claim, ...] = ()
    kept: tuple[tuple[str, str, str], ...] = ()
    previous: int = 0

    def fault(self) -> str:
        """Say what is wrong with the fields other than covers and claims, ``""`` if nothing is."""
        return (
            count_fault(self.first, "first revision", first=1)
            or count_fault(self.last, "last revision", first=self.first)
            or pointer_fault(self.path)
            or digest_fault(self.summary)
            or count_fault(self.level, "level", first=1)
            or ("" if self.tokens_before is None else count_fault(self.tokens_before, "tokens_before", first=0))
            or ("" if self.tokens_after is None else count_fault(self.tokens_after, "tokens_after", first=0))
            or next(filter(None, map(_kept_fault, self.kept)), "")
            or unsorted(tuple((ledger, key) for ledger, key, _ in self.kept))
            or count_fault(self.previous, "previous", first=0)
        )

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model, all fields."""
        return attrs.asdict(self, recurse=False) | {
            "claims": [claim.to_value() for claim in self.claims],
            "covers": [covered.to_value() for covered in self.covers],
            "kept": [list(row) for row in self.kept],
            "unbacked": [claim.to_value() for claim in self.unbacked],
        }

    @classmethod
    def from_value(cls, value: Any) -> Compaction:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        what = "compaction"
        fields = exact(value, what, *(field.name for field in attrs.fields(cls)))
        fields["covers"] = tuple(map(Covered.from_value, items(fields["covers"], what)))
        for part in ("claims", "unbacked"):
            fields[part] = tuple(map(claim_from_value, items(fields[part], what)))
        fields["kept"] = tuple(tuple(items(row, what)) for row in items(fields["kept"], what))
        return readable(cls(**fields), what)


def claim_from_value(value: Any) -> Claim:
    """Read what ``to_value`` of a claim wrote. Raises CorruptError for anything else."""
    kind = value.get("claim") if type(value) is dict else None
    if kind == "term":
        return TermClaim.from_value(value)
    if kind == "effect":
        return EffectClaim.from_value(value)
    if kind == "key":
        return KeyClaim.from_value(value)
    raise CorruptError(f"a stored claim is about a term, an effect or a key, unlike {value!r:.200}")


def pointer_fault(path: Any) -> str:
    """Say why ``path`` is no JSON Pointer (RFC 6901, section 3), ``""`` if it is one."""
    wrong = text_fault(path, "path")
    if wrong:
        return wrong
    if (path and not path.startswith("/")) or _TILDE.search(path):
        return f"{path!r:.100} is not a JSON Pointer: write it like /messages/3"
    return ""


def _tagged(value: Any, tag: str, kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
    fields = exact(value, "claim", "claim", *(field.name for field in attrs.fields(kind)))
    if fields.pop("claim") != tag:
        raise CorruptError(f"a stored claim is about another thing than a {tag}: {value!r:.200}")
    return fields


def _wording_fault(value: Any, field: str) -> str:
    return text_fault(value, field) or ("" if value.strip() else f"its {field} is blank")


def _kept_fault(row: Any) -> str:
    if len(row) != 3:
        return f"what is kept has a ledger, a key and a path, unlike {row!r:.200}"
    ledger, key, path = row
    return name_fault(ledger, "ledger") or name_fault(key, "key") or pointer_fault(path)
