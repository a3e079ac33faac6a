"""A transactional checkpoint store for agents, on SQLite."""

from cpstore import errors
from cpstore.model.binding import Authority, Binding, Directive, Retirement, Scope, Supersession
from cpstore.model.checkpoint import Checkpoint
from cpstore.model.glossary import Glossary
from cpstore.signing.keyring import Keyring
from cpstore.signing.keys import Signer
from cpstore.store import Store
from cpstore.store import open_store as open  # noqa: A004

__version__ = "0.1.0"

__all__ = [
    "Authority",
    "Binding",
    "Checkpoint",
    "Directive",
    "Glossary",
    "Keyring",
    "Retirement",
    "Scope",
    "Signer",
    "Store",
    "Supersession",
    "errors",
    "open",
]
