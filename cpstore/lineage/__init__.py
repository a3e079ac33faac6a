"""One line of checkpoints of one agent's task: handles, edits, and what is kept open between two acts."""

from cpstore.lineage.edit import Edit
from cpstore.lineage.handle import MAX_STATE_BYTES, Lineage

__all__ = ["MAX_STATE_BYTES", "Edit", "Lineage"]
