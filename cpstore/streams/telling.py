"""What a lineage's acts tell the ledgers that it belongs to: in the same transaction, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import CorruptError
from cpstore.model.entry import StreamId, StreamKind
from cpstore.model.ledger import member_id
from cpstore.rules import ledger as rules
from cpstore.streams.board import Board, joined, lock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cpstore.journal import Reading
    from cpstore.model.entry import Entry
    from cpstore.model.glossary import Change, Glossary
    from cpstore.model.ledger import Member
    from cpstore.streams.act import Step


class Boards(Sequence[tuple[Board, "Member"]]):
    """The ledgers that a lineage belongs or belonged to, each with its membership.

    Read when they are first looked at: most commits have nothing to tell, and a ledger can be large. Looking raises
    CorruptError where a ledger does not know a member that says so in signed bytes: it would not be told.
    """

    def __init__(self, reading: Reading, last: Entry | None) -> None:
        self._reading = reading
        self._last = last
        self._names = sorted(joined(last))
        self._found: list[tuple[Board, Member]] | None = None

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, at: Any) -> Any:
        if self._found is None:
            self._found = [self._look(name) for name in self._names]
        return self._found[at]

    def _look(self, name: str) -> tuple[Board, Member]:
        assert self._last is not None  # noqa: S101 - else there were no ledgers
        lineage = self._last.stream
        board = Board.of(self._reading, lineage.namespace, name)
        member = board.member(member_id("", lineage.name))
        if member is None:
            raise CorruptError(f"{board.opened.stream}: {lineage} has joined it, but is no member; run verify")
        return board, member


def boards(reading: Reading, last: Entry | None) -> Sequence[tuple[Board, Member]]:
    """Return the ledgers that a lineage belongs or belonged to."""
    return Boards(reading, last)


def told(
    found: Sequence[tuple[Board, Member]],
    change: Callable[[Board, Member], Member],
    *,
    kind: str,
    revision: int,
    text: str,
    detail: Mapping[str, Any] | None = None,
    cursors: Mapping[str, int] | None = None,
) -> list[Step]:
    """Return the broadcasts that tell each ledger what became of the membership."""
    steps = []
    for board, member in found:
        event: dict[str, Any] = {
            "detail": dict(detail or {}),
            "kind": kind,
            "lineage": member.lineage,
            "peer": member.peer,
        }
        event |= {"revision": revision, "text": text}
        # Where the state that was gone back to had not joined yet, it has heard nothing.
        back = None if cursors is None else cursors.get(board.name, 0)
        steps.append(board.member_step(change(board, member), kind, event=event, cursor=back))
    return steps


def suspected(cause: str) -> Callable[[Board, Member], Member]:
    """Return the change that makes a member suspect."""
    return lambda board, member: rules.suspected(member, board.position, cause)


def glossary_told(found: Sequence[tuple[Board, Member]], change: Change, after: Glossary, revision: int) -> list[Step]:
    """Return the entries that tell each ledger of new or changed definitions."""
    lock = lock_of(after)
    moved = [order.binding.symbol for order in change.superseded] + [end.symbol for end in change.retired]
    if not moved:
        return [
            board.member_step(attrs.evolve(member, lock=lock), "lock") for board, member in found if member.lock != lock
        ]
    superseded = {order.binding.symbol: order.binding.definition for order in change.superseded}
    return told(
        found,
        lambda _, member: attrs.evolve(member, lock=lock),
        kind="superseded",
        revision=revision,
        text=f"what {', '.join(map(repr, sorted(moved)))} means was changed on someone's order",
        detail={"retired": sorted(end.symbol for end in change.retired), "superseded": superseded},
    )


def ledger_stream(namespace: str, name: str) -> StreamId:
    """Return the stream of a ledger."""
    return StreamId(namespace, StreamKind.LEDGER, name)
