"""What an effect, a ledger's write and a restore's plan cost beside one edit, by turns in one run."""

from __future__ import annotations

import itertools
from typing import Any

import cpstore
from benchmarks.measure import Row, by_turns, times
from benchmarks.stores import Ground, append, grow
from benchmarks.text import messages
from cpstore import EffectPolicy
from cpstore.lineage import Lineage

WARM = 20


def effects(ground: Ground, rounds: int) -> list[Row]:
    """Measure begin plus complete, and a cited ledger write, over one ``edit`` of 1 KB, all at FULL."""
    texts = iter(messages(2 * rounds + 4 * WARM + 10))
    orders = itertools.count()
    with ground.store("acts.db") as store:
        task, payer = store.lineage("task"), store.lineage("payer")
        grow(task, [next(texts)])
        payer.commit({"orders": 0}, step=1)
        peer = store.ledger("board").join("payer", lineage=payer)
        seen = [peer.write("task-b", next(texts))]

        def write(value: Any) -> None:
            seen[0] = peer.write("task-b", value, seen=seen[0])

        calls = [lambda text: append(task, 1, [text]), lambda order: _pay(payer, order), write]
        for call, argument in [(call, lambda: next(texts)) for call in (calls[0], calls[2])] * WARM:
            call(argument())
        edit, effect, written = by_turns(
            rounds, calls, [lambda: next(texts), lambda: next(orders), lambda: {"text": f"state {next(orders)}"}]
        )
    rows = []
    for name, sample, bar in (
        ("begin + complete an effect", effect, 2.5),
        ("write a ledger's key, cited", written, 1.5),
    ):
        ratio = sample.median / edit.median
        figures = {"seconds": sample.median, "edit_seconds": edit.median}
        rows.append(Row(name, str(sample), f"one edit(): {edit}", times(ratio), f"≤ {bar:g} ×", ratio <= bar, figures))
    return rows


def plans(ground: Ground, rounds: int, many: int) -> list[Row]:
    """Measure ``plan_restore`` over ``many`` settled effects against ten."""
    lineages = []
    with ground.store("plans.db", durability="normal") as store:
        for count in (10, many):
            lineage = store.lineage(f"after-{count}")
            lineage.commit({"n": 0}, step=1)
            for order in range(count):
                lineage.record("pay", {"order": order}, policy=EffectPolicy.AT_MOST_ONCE, key=f"order {order}")
            lineage.commit({"n": count}, step=2)
            lineages.append(lineage)
        few, lots = by_turns(rounds, [lambda _, one=one: one.plan_restore(1) for one in lineages])  # type: ignore[misc]
    ratio = lots.median / few.median
    figures = {"seconds": lots.median, "ten_seconds": few.median}
    name = f"plan_restore() over {many:,} effects"
    return [Row(name, str(lots), f"over 10: {few}", times(ratio), "≤ 50 ×", ratio <= 50, figures)]


def _pay(lineage: Lineage, order: int) -> cpstore.Effect:
    handle = lineage.begin("pay", {"order": order, "cents": 990}, policy=EffectPolicy.AT_MOST_ONCE)
    handle.complete({"receipt": order})
    return handle.record
