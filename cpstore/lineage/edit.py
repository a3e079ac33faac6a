"""A block of changes stated by path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cpstore.errors import InvalidStateError, NotFoundError
from cpstore.snapshot import pointer, values
from cpstore.snapshot.edits import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from cpstore.model.checkpoint import Checkpoint


class Edit:
    """Changes by path (JSON Pointer, RFC 6901), committed together when the block ends without an exception.

    Values are taken as they are at the call. ``result`` is the checkpoint afterwards.
    """

    def __init__(self, commit: Callable[[Sequence[Change]], Checkpoint], max_bytes: int) -> None:
        self._commit = commit
        self._room = max_bytes
        self._changes: list[Change] = []
        self._result: Checkpoint | None = None
        self._done = False

    def append(self, path: str, *items: Any) -> None:
        """Add items at the end of the list at ``path``. Raises InvalidStateError for what cannot be stored."""
        self._state("append", path, items)

    def set(self, path: str, value: Any) -> None:
        """Make ``value`` the one at ``path``; the last step of the path may be a new key."""
        if not pointer.parse(path):
            raise InvalidStateError("an edit cannot replace the whole state", advice="use commit(state)")
        self._state("set", path, (value,))

    def delete(self, path: str) -> None:
        """Take away a key or a list item."""
        if not pointer.parse(path):
            raise InvalidStateError("an edit cannot delete the whole state")
        self._state("delete", path, ())

    def splice(self, path: str, start: int, stop: int, items: Iterable[Any] = ()) -> None:
        """Replace the items ``start`` to ``stop - 1`` of the list at ``path``."""
        if type(start) is not int or type(stop) is not int:
            raise InvalidStateError(f"start and stop are integers, not {start!r:.100} and {stop!r:.100}", path)
        if not isinstance(items, Iterable):
            raise InvalidStateError(f"the items of a splice are a list, not {type(items).__name__}", path)
        self._state("splice", path, tuple(items), start, stop)

    @property
    def result(self) -> Checkpoint:
        """The checkpoint that the block made. Raises NotFoundError before it has ended well."""
        if self._result is None:
            raise NotFoundError("this edit has not been committed")
        return self._result

    def __enter__(self) -> Edit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done, self._done = self._done, True
        if kind is None and not done:
            self._result = self._commit(tuple(self._changes))

    def _state(self, verb: str, path: str, items: tuple[Any, ...], start: int = 0, stop: int = 0) -> None:
        if self._done:
            raise InvalidStateError("this edit has ended; begin another one", path)
        tokens = pointer.parse(path)
        for at, token in enumerate(tokens):
            values.check_key(token, tokens[:at])
        if len(tokens) > values.MAX_DEPTH:
            raise InvalidStateError(f"the path leads more than {values.MAX_DEPTH} deep", path)
        place = path if verb == "set" else f"{path}/-"  # RFC 6901's name for an item that is not there yet
        encs = tuple(values.encode(item, place) for item in items)
        self._room -= sum(map(len, encs))
        if self._room < 0:
            raise InvalidStateError("the changes are larger than a state may be", path, "raise max_state_bytes")
        self._changes.append(Change(verb, tokens, encs, start, stop))
