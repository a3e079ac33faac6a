"""Shared ledgers: keyed values that several agents read and write, and what their peers are told."""

from cpstore.ledger.peer import Peer
from cpstore.ledger.shared import SharedLedger

__all__ = ["Peer", "SharedLedger"]
