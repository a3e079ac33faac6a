"""What ``verify`` found, as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cpstore.model.entry import StreamId

Severity = Literal["damage", "note"]


@attrs.frozen
class Finding:
    """One thing that does not agree. ``revisions`` are those of ``lineage`` that it concerns."""

    id: str
    severity: Severity
    text: str
    advice: str
    namespace: str = ""
    lineage: str = ""
    revisions: tuple[int, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the finding in the JSON model."""
        return {**attrs.asdict(self), "revisions": list(self.revisions)}


@attrs.frozen
class Report:
    """What ``verify`` found, and how far it looked: counts of lineages, entries and bytes; the log's size and root."""

    origin: str
    findings: tuple[Finding, ...]
    lineages: int
    entries: int
    bytes: int
    size: int
    root: str
    engine: str

    @property
    def good(self) -> bool:
        """Whether nothing is damaged."""
        return not any(finding.severity == "damage" for finding in self.findings)

    def to_value(self) -> dict[str, Any]:
        """Return the report in the JSON model."""
        names = ("origin", "lineages", "entries", "bytes", "size", "root", "engine")
        value = {name: getattr(self, name) for name in names}
        return {**value, "good": self.good, "findings": [finding.to_value() for finding in self.findings]}


class Findings:
    """Collects findings in the order in which they are made."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(
        self, id_: str, text: str, advice: str, stream: StreamId | None = None, revisions: Iterable[int] = ()
    ) -> None:
        """Note damage; ``stream`` and ``revisions`` say to what."""
        namespace, lineage = ("", "") if stream is None else (stream.namespace, stream.name)
        self.all.append(Finding(id_, "damage", text, advice, namespace, lineage, tuple(revisions)))


def ranges(numbers: list[int]) -> str:
    """Spell sorted numbers as ranges."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][1] == number - 1:
            groups[-1][1] = number
        else:
            groups.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in groups)
