"""One act beside another: an effect, a ledger's write, the plan of a restore."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from benchmarks.stores import Ground
from cpstore import EffectPolicy


def test_an_effect_is_begun_and_completed(benchmark: Any, ground: Ground) -> None:
    orders = itertools.count()
    with ground.store("effects.db") as store:
        lineage = store.lineage("t1")
        lineage.commit({"n": 0}, step=1)

        def pay() -> None:
            handle = lineage.begin("pay", {"order": next(orders)}, policy=EffectPolicy.AT_MOST_ONCE)
            handle.complete({"ok": True})

        benchmark.pedantic(pay, rounds=60, warmup_rounds=2)

        assert {effect.state.value for effect in lineage.effects()} == {"completed"}


def test_a_key_of_a_ledger_is_written(benchmark: Any, ground: Ground) -> None:
    numbers = itertools.count()
    with ground.store("ledger.db") as store:
        peer = store.ledger("board").join("writer")
        seen = [peer.write("k", -1)]

        def write() -> None:
            seen[0] = peer.write("k", next(numbers), seen=seen[0])

        benchmark.pedantic(write, rounds=60, warmup_rounds=2)

        assert store.ledger("board").read("k").value == next(numbers) - 1


@pytest.mark.parametrize("effects", [10, 1000])
def test_a_restore_is_planned(benchmark: Any, ground: Ground, effects: int) -> None:
    with ground.store(f"plan-{effects}.db", durability="normal") as store:
        lineage = store.lineage("t1")
        lineage.commit({"n": 0}, step=1)
        for order in range(effects):
            lineage.record("pay", order, policy=EffectPolicy.AT_MOST_ONCE, key=f"order {order}")

        plan = benchmark.pedantic(lineage.plan_restore, args=(1,), rounds=60, warmup_rounds=2)

        assert plan.counts == {"other": effects}
