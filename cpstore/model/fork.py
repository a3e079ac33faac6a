"""What a fork says about where it came from."""

from __future__ import annotations

from typing import Any

import attrs

from cpstore.errors import CorruptError, InvalidStateError
from cpstore.model.binding import exact, hex_digest, is_step
from cpstore.model.names import check_name


@attrs.frozen
class Citation:
    """A revision of a lineage: ``entry`` is the SHA-256 of the signed bytes that made it, in hex."""

    lineage: str
    revision: int
    entry: str

    def to_value(self) -> dict[str, Any]:
        """Return the canonical JSON model."""
        return {"entry": self.entry, "lineage": self.lineage, "revision": self.revision}

    @classmethod
    def from_value(cls, value: Any) -> Citation:
        """Read what ``to_value`` wrote. Raises CorruptError for anything else."""
        fields = exact(value, "citation", "entry", "lineage", "revision")
        try:
            check_name(fields["lineage"], "lineage id")
        except InvalidStateError as error:
            raise CorruptError(f"a stored citation cannot be read: {error}") from error
        if not is_step(fields["revision"]) or fields["revision"] == 0:
            raise CorruptError(f"a stored citation has a revision from 1 on, not {fields['revision']!r:.100}")
        return cls(fields["lineage"], fields["revision"], hex_digest(fields["entry"], "citation"))
