"""A transactional checkpoint store for agents, on SQLite."""

import importlib
import typing

from cpstore import errors
from cpstore.ledger.desk import Read
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.compaction import Covered, EffectClaim, KeyClaim, TermClaim
from cpstore.model.effect import Effect, EffectId, EffectPolicy, EffectState
from cpstore.model.glossary import Glossary
from cpstore.model.ledger import ABSENT, Event, Status
from cpstore.model.restore import Acknowledgement, RestorePlan, Verdict
from cpstore.signing.keyring import Keyring
from cpstore.signing.keys import Signer
from cpstore.store import Store
from cpstore.store import open_store as open  # noqa: A004

__version__ = "0.1.0"

__all__ = [
    "ABSENT",
    "Acknowledgement",
    "Authority",
    "Binding",
    "Checkpoint",
    "Covered",
    "Directive",
    "Effect",
    "EffectClaim",
    "EffectId",
    "EffectPolicy",
    "EffectState",
    "Event",
    "Glossary",
    "KeyClaim",
    "Keyring",
    "Read",
    "RestorePlan",
    "Retirement",
    "Scope",
    "Signer",
    "Status",
    "Store",
    "Supersession",
    "TermClaim",
    "Verdict",
    "errors",
    "open",
]

if not typing.TYPE_CHECKING:  # type checkers want `import cpstore.aio`, and go on noticing misspelt names

    def __getattr__(name: str) -> typing.Any:
        """Import ``cpstore.aio`` when it is asked for: it needs asyncio, which takes long to import."""
        if name == "aio":
            return importlib.import_module("cpstore.aio")
        raise AttributeError(f"module 'cpstore' has no attribute {name!r}")
