"""Stores to measure on, filled with published text and signed with a key of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import cpstore
from cpstore.lineage import Lineage
from cpstore.signing.keys import load_or_create_key


class Ground:
    """A folder for one run: its stores share one key, and the user's own key is never touched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "key.pem"
        self._signer = load_or_create_key(self.key)

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder / name

    def store(self, name: str, *, durability: Literal["full", "normal"] = "full") -> cpstore.Store:
        """Open a store, made on first use."""
        return cpstore.open(self.path(name), signer=self._signer, durability=durability)

    def bytes(self, name: str) -> int:
        """Return the bytes of a closed store: the file and whatever else is left beside it, but the empty lock file."""
        return sum(each.stat().st_size for each in self.folder.glob(name + "*") if not each.name.endswith("-lock"))


def append(lineage: Lineage, step: int, messages: Sequence[dict[str, Any]]) -> cpstore.Checkpoint:
    """Commit one step that adds messages, stated as a change."""
    with lineage.edit(step=step) as edit:
        edit.append("/messages", *messages)
    return edit.result


def grow(lineage: Lineage, messages: Iterable[dict[str, Any]], *, extra: dict[str, Any] | None = None) -> int:
    """Commit a step for each message and return how many there were."""
    count = 0
    for count, message in enumerate(messages, 1):
        if count == 1:
            lineage.commit({"messages": [message], **(extra or {})}, step=1)
        else:
            append(lineage, count, [message])
    return count
