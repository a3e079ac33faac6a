"""The simulation of three agents, small: what it counts must mean something."""

from __future__ import annotations

import attrs

from benchmarks.divergence import MODES, TASKS, Tally, incidents, oracle, script, simulate
from benchmarks.stores import Ground

RUNS = 150


def test_only_enforcement_and_reading_everything_leave_no_incident() -> None:
    found = simulate(range(RUNS))

    assert found["on"].incidents == found["everything"].incidents == 0
    assert found["on"].right == found["everything"].right == RUNS
    # The simulation can tell: without the rules, or with half of them, the same runs diverge.
    assert found["off"].incidents > RUNS
    assert found["off"].right < RUNS / 10
    assert 0 < found["citations alone"].incidents < found["off"].incidents
    assert 3 * found["on"].rereads <= found["everything"].rereads
    # Refusals are of every kind that the script provokes.
    assert found["on"].refused > found["citations alone"].refused
    assert 0 < found["on"].copies_refused < RUNS


def test_the_same_runs_on_a_store_come_out_equal(ground: Ground) -> None:
    rows = incidents(ground, 10, 6)

    assert [row.good for row in rows if row.good is not None] == [True] * 4
    assert rows[-1].figures == {"unequal": []}


def test_a_run_is_its_seed() -> None:
    assert script(7) == script(7) != script(8)
    assert MODES["on"](script(7)).play() == MODES["on"](script(7)).play()
    assert set(oracle(script(7))) == set(TASKS)


def test_tallies_add_up() -> None:
    one, two = Tally(*range(7)), Tally(*[10] * 7)
    one.add(two)

    assert attrs.astuple(one) == tuple(range(10, 17))
