"""The store for event loops (asyncio): what ``cpstore`` has, to be awaited, carried out in threads of the store's own.

Names and arguments are those of the blocking surface; ``docs/async.md`` says what a cancellation leaves.
"""

from cpstore.aio.effect import Edit, EffectBlock, EffectHandle
from cpstore.aio.ledger import Peer, SharedLedger
from cpstore.aio.lineage import Lineage
from cpstore.aio.store import Opening, Store
from cpstore.aio.store import open_store as open  # noqa: A004

__all__ = ["Edit", "EffectBlock", "EffectHandle", "Lineage", "Opening", "Peer", "SharedLedger", "Store", "open"]
