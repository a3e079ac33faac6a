"""Families and effects in SQLite: projections of the entries, asked by identity, by name and by interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cpstore.backends.port import EffectRow, Kin
from cpstore.errors import CorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cpstore.backends.link import Link

SEQ = (1 << 32) - 1
CLASSES = 5
_EFFECT = "SELECT e.identity, e.root, e.name, e.policy, e.class, e.settled, e.entry, e.keyed FROM effect e "
_SHAPE = "bitiiiii"


class EffectReader:
    """Read methods of a transaction on families and effects."""

    _link: Link

    def _rows(self, sql: str, shape: str, *values: Any) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def kin(self, stream: int) -> Kin | None:
        rows = self._rows("SELECT parent, root, leaf FROM kin WHERE stream = ?", "iii", stream)
        return Kin(*rows[0]) if rows else None

    def kins(self) -> Iterator[tuple[int, Kin]]:
        for stream, *kin in self._rows("SELECT stream, parent, root, leaf FROM kin ORDER BY stream", "iiii"):
            yield stream, Kin(*kin)

    def family(self, root: int) -> list[int]:
        return [
            root,
            *(row[0] for row in self._rows("SELECT stream FROM kin WHERE root = ? ORDER BY stream", "i", root)),
        ]

    def descendants(self, stream: int, since: int, upto: int) -> list[int]:
        sql = (
            "WITH RECURSIVE below (stream) AS ("
            "SELECT stream FROM kin WHERE parent = ? AND leaf > ? AND leaf <= ? "
            "UNION SELECT kin.stream FROM kin JOIN below ON kin.parent = below.stream) SELECT stream FROM below"
        )
        return sorted(row[0] for row in self._rows(sql, "i", stream, since, upto))

    def cursor(self, ledger: int, member: str) -> int:
        rows = self._rows("SELECT position FROM cursor WHERE ledger = ? AND member = ?", "i", ledger, member)
        return rows[0][0] if rows else 0

    def effect(self, identity: bytes) -> EffectRow | None:
        rows = self._rows(_EFFECT + "WHERE e.identity = ?", _SHAPE, identity)
        return _effect(rows[0]) if rows else None

    def effects(self, root: int, name: str | None, *, unsettled: bool, after: int, limit: int) -> list[EffectRow]:
        clause = "AND e.settled = 0 " if unsettled else ""
        sql = (
            _EFFECT + "WHERE e.root = ? AND (? IS NULL OR e.name = ?) AND e.no > ? " + clause + "ORDER BY e.no LIMIT ?"
        )
        return [_effect(row) for row in self._rows(sql, _SHAPE, root, name, name, after, limit)]

    def number_of_effect(self, identity: bytes) -> int:
        rows = self._rows("SELECT no FROM effect WHERE identity = ?", "i", identity)
        return rows[0][0] if rows else 0

    def first_policy(self, root: int, name: str) -> int | None:
        sql = "SELECT policy FROM effect WHERE root = ? AND name = ? ORDER BY no LIMIT 1"
        rows = self._rows(sql, "i", root, name)
        return rows[0][0] if rows else None

    def crossed(self, stream: int, since: int, upto: int) -> dict[int, int]:
        # All but the upper bound is answered by the index alone; the bound would cost a look at each row.
        bound = "" if upto >= SEQ else f" AND first <= {upto:d}"
        sql = f"SELECT count(*) FROM trace WHERE stream = ? AND class = ? AND last > ?{bound}"  # noqa: S608 - a number
        counts = {kind: self._rows(sql, "i", stream, kind, since)[0][0] for kind in range(CLASSES)}
        return {kind: count for kind, count in counts.items() if count}

    def traced(
        self,
        stream: int,
        since: int,
        upto: int,
        *,
        classes: tuple[int, ...],
        name: str | None,
        limit: int,
        keyed: bool = True,
    ) -> list[EffectRow]:
        marks = ", ".join("?" * len(classes))
        sql = (
            _EFFECT + f"JOIN trace t ON t.effect = e.no WHERE t.stream = ? AND t.class IN ({marks}) AND t.last > ? "
            "AND t.first <= ? AND (? IS NULL OR e.name = ?) AND e.keyed <= ? ORDER BY t.last LIMIT ?"
        )
        return [
            _effect(row)
            for row in self._rows(sql, _SHAPE, stream, *classes, since, upto, name, name, int(keyed), limit)
        ]

    def unsettled(self, root: int, stream: int, since: int) -> list[EffectRow]:
        sql = (
            _EFFECT + "JOIN trace t ON t.effect = e.no WHERE e.root = ? AND e.settled = 0 AND e.class > 1 "
            "AND t.stream = ? AND t.last > ? ORDER BY e.no"
        )
        return [_effect(row) for row in self._rows(sql, _SHAPE, root, stream, since)]

    def all_effects(self) -> Iterator[tuple[EffectRow, list[tuple[int, int, int]]]]:
        rows = self._rows("SELECT e.no, e.identity FROM effect e ORDER BY e.no", "ib")
        for number, identity in rows:
            row = self.effect(identity)
            if row is None:
                raise CorruptError(f"{self._link.target}: the index of effects contradicts itself; run verify")
            # One that is filed under another class is none: a restore would not see it.
            sql = "SELECT stream, first, last FROM trace WHERE effect = ? AND class = ? ORDER BY stream"
            yield row, [(stream, first, last) for stream, first, last in self._rows(sql, "iii", number, row.kind)]


class EffectWriter(EffectReader):
    """Write methods on families and effects."""

    def set_cursor(self, ledger: int, member: str, position: int) -> None:
        sql = (
            "INSERT INTO cursor (ledger, member, position) VALUES (?, ?, ?) "
            "ON CONFLICT (ledger, member) DO UPDATE SET position = excluded.position"
        )
        self._link.run(sql, (ledger, member, position))

    def add_kin(self, stream: int, kin: Kin) -> None:
        sql = "INSERT INTO kin (stream, parent, root, leaf) VALUES (?, ?, ?, ?)"
        self._link.run(sql, (stream, kin.parent, kin.root, kin.leaf))

    def put_effect(self, row: EffectRow, known: EffectRow | None) -> None:
        entry = row.stream << 32 | row.seq
        if known is not None:
            sql = "UPDATE effect SET settled = ?, entry = ?, class = ? WHERE identity = ? RETURNING no"
            rows = self._rows(sql, "i", int(row.settled), entry, row.kind, row.identity)
        else:
            sql = (
                "INSERT INTO effect (identity, root, name, policy, class, settled, entry, keyed) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) RETURNING no"
            )
            values = (row.identity, row.root, row.name, row.policy, row.kind, int(row.settled), entry, int(row.keyed))
            rows = self._rows(sql, "i", *values)
        if not rows:
            raise CorruptError(f"{self._link.target}: the index of effects lost one; run verify")
        if known is not None and known.kind != row.kind:
            self._link.run("UPDATE trace SET class = ? WHERE effect = ?", (row.kind, rows[0][0]))
        self._link.run(
            "INSERT INTO trace (effect, stream, class, first, last) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (effect, stream) DO UPDATE SET last = excluded.last",
            (rows[0][0], row.stream, row.kind, row.seq, row.seq),
        )


def _effect(row: tuple[Any, ...]) -> EffectRow:
    identity, root, name, policy, kind, settled, entry, keyed = row
    return EffectRow(identity, root, name, policy, kind, bool(settled), entry >> 32, entry & SEQ, bool(keyed))
