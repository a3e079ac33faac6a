"""The file grows by what each step adds: no step pays for the ones before it."""

from __future__ import annotations

from sample import words
from store_cases import size

import cpstore


def grow(path, steps, *, whole):
    """Return the size of the closed file after each of ``steps`` checkpoints."""
    sizes, state, done = {}, {"messages": [], "budget": {"left": 10_000}}, 0
    for upto in steps:
        with cpstore.open(path, durability="normal") as store:
            task = store.lineage("task")
            if done == 0:
                task.commit(state, step=0)
                done = 1
            task.head()
            for step in range(done, upto):
                message = {"role": "user" if step % 2 else "assistant", "content": words(step, 20)}
                state["messages"].append(message)
                state["budget"]["left"] = 10_000 - step
                if whole:
                    task.commit(state, step=step)
                    continue
                with task.edit(step=step) as edit:
                    edit.append("/messages", message)
                    edit.set("/budget/left", 10_000 - step)
            done = upto
        sizes[upto] = size(path)
    with cpstore.open(path, read_only=True) as store:
        task = store.lineage("task")
        assert task.load() == state
        for revision in range(1, steps[-1] + 1, 377):
            assert task.load(revision)["messages"] == state["messages"][: revision - 1]
    return sizes


def test_a_checkpoint_costs_as_many_bytes_at_step_2000_as_at_step_200(path):
    # From seal to seal, 128 checkpoints a segment, so that each span has the same share of sealed and open ones.
    sizes = grow(path, (128, 384, 1920, 2176), whole=False)
    early, late = (sizes[384] - sizes[128]) / 256, (sizes[2176] - sizes[1920]) / 256
    assert 0.8 < late / early < 1.2, (early, late)
    assert late < 500


def test_whole_states_cost_what_their_changes_cost(path, tmp_path):
    whole = grow(path, (1, 513), whole=True)
    edits = grow(tmp_path / "edits.db", (1, 513), whole=False)
    assert 0.9 < (whole[513] - whole[1]) / (edits[513] - edits[1]) < 1.1


def test_sealing_leaves_no_block_behind(path, small):
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        for step in range(23):
            task.commit({"step": step}, step=step)
            counts = store.stats()
            assert counts["segments"] == (step + 1) // 5
            assert bool(counts["tail_bytes"]) == bool((step + 1) % 5)
        assert [task.load(revision)["step"] for revision in range(1, 24)] == list(range(23))


def test_f1_a_large_unchanging_part_is_stored_once(path):
    # 500 snapshots with a 200 kB body, 1 kB of it changes each time.
    fixed, unique = words("fixed", 15_000), 0
    state = {"skills": {f"skill {at}": fixed[at * 2_000 : at * 2_000 + 2_000] for at in range(100)}}
    unique += sum(map(len, state["skills"].values()))
    with cpstore.open(path, durability="normal") as store:
        task = store.lineage("task")
        for step in range(500):
            changed = words(f"changed {step}", 80)
            state["skills"][f"skill {step % 100}"] = changed
            unique += len(changed)
            task.commit(state, step=step)
        assert task.load() == state
        assert task.load(1)["skills"]["skill 99"] == fixed[198_000:200_000]
        assert store.verify().good
    assert size(path) < 3 * unique
