"""The simulation of three agents, small: what it counts must mean something."""

from __future__ import annotations

from benchmarks.divergence import Count, Ruled, Stored, Unguarded, divergence, first_values, run
from benchmarks.stores import Ground


def test_without_enforcement_agents_diverge_and_with_it_they_do_not(ground: Ground) -> None:
    incidents, rereads = divergence(ground, 40, 4)

    assert incidents.figures["off"]["incidents"] > 40
    assert incidents.figures["on"]["incidents"] == 0
    assert incidents.figures["on"]["refusals"] > 0
    assert rereads.good


def test_a_run_is_its_seed(ground: Ground) -> None:
    first = first_values(7)
    assert run(Ruled(first), 7) == run(Ruled(first), 7) != run(Unguarded(first), 7)
    with ground.store("runs.db", durability="normal") as store:
        assert run(Stored(store, "run", first), 7) == run(Ruled(first), 7)
    assert isinstance(run(Ruled(first), 8), Count)
