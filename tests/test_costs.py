"""What a commit costs, in exact numbers that no machine's speed changes: statements, rows, syncs and bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cpstore
from cpstore.signing.keys import create_key

if TYPE_CHECKING:
    from collections.abc import Iterator

APPEND = [
    "BEGIN IMMEDIATE",
    "PRAGMA user_version",
    "SELECT log",
    "INSERT INTO entry",
    "INSERT INTO tail",
    "UPDATE log",
    "COMMIT",
]
SEAL = [*APPEND[:4], "INSERT INTO segment", "DELETE FROM tail", *APPEND[5:]]
BEGIN = [
    *APPEND[:3],
    "SELECT effect",  # the effect itself
    "SELECT effect",  # the policy of its name
    "SELECT kin",  # whether the lineage has stepped back over anything
    "INSERT INTO entry",
    "INSERT INTO tail",
    "INSERT INTO effect",
    "INSERT INTO trace",
    "UPDATE log",
    "COMMIT",
]
COMPLETE = [*APPEND[:3], "SELECT effect", *APPEND[3:5], "UPDATE effect", "INSERT INTO trace", *APPEND[5:]]
REPLAY = [*APPEND[:3], "SELECT effect", "SELECT effect", "COMMIT"]
FIXED = 150


@pytest.fixture(name="signer", scope="module")
def _signer() -> cpstore.Signer:
    return cpstore.Signer.generate()


@pytest.fixture(name="store")
def _store(tmp_path: Path, signer: cpstore.Signer) -> Iterator[cpstore.Store]:
    with cpstore.open(tmp_path / "agent.db", signer=signer) as store:
        yield store


def connection(store: cpstore.Store) -> Any:
    """Return the driver's connection of this thread."""
    return store._journal.backend._link()._connection


def rows(store: cpstore.Store) -> dict[str, int]:
    """Count the rows of every table that a commit may write to."""
    names = ("entry", "tail", "segment", "blob", "landed", "note", "log", "stream", "actor", "writer", "namespace")
    return {name: connection(store).execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}


@contextmanager
def traced(store: cpstore.Store) -> Iterator[list[str]]:
    """Collect the statements that run on the store's connection, each as its verb and its table."""
    seen: list[str] = []

    def note(sql: str) -> None:
        words = re.findall(r"[A-Za-z_]+", sql)
        if words[0] == "SELECT":
            seen.append("SELECT " + words[words.index("FROM") + 1])
        elif words[0] in ("INSERT", "DELETE"):
            seen.append(" ".join(words[:3]))
        else:
            seen.append(" ".join(words[:2]))

    connection(store).set_trace_callback(note)
    try:
        yield seen
    finally:
        connection(store).set_trace_callback(None)


def append(lineage: Any, step: int) -> None:
    with lineage.edit(step=step) as edit:
        edit.append("/messages", {"role": "tool", "content": f"line {step}"})


def grown(store: cpstore.Store, steps: int, name: str = "t1") -> Any:
    lineage = store.lineage(name)
    lineage.commit({"messages": [{"role": "user", "content": "go"}]}, step=1)
    for step in range(2, steps + 1):
        append(lineage, step)
    return lineage


def test_an_appended_step_is_seven_statements_in_one_transaction(store: cpstore.Store) -> None:
    lineage = grown(store, 5)

    with traced(store) as seen:
        append(lineage, 6)

    assert seen == APPEND


def test_a_whole_state_takes_no_other_statements_than_a_stated_change(store: cpstore.Store) -> None:
    lineage = grown(store, 5)
    state = lineage.load()
    state["messages"].append({"role": "tool", "content": "more"})
    lineage.commit(state, step=6)
    state["messages"].append({"role": "tool", "content": "and more"})

    with traced(store) as seen:
        lineage.commit(state, step=7)

    assert seen == APPEND


def test_the_step_that_seals_a_segment_takes_one_statement_more(store: cpstore.Store) -> None:
    lineage = grown(store, 127)

    with traced(store) as seen:
        append(lineage, 128)

    assert seen == SEAL


def begin(lineage: Any, order: int) -> Any:
    return lineage.begin("pay", {"order": order}, policy=cpstore.EffectPolicy.AT_MOST_ONCE)


def test_begin_and_complete_are_one_transaction_each_whatever_was_done_before(store: cpstore.Store) -> None:
    lineage = grown(store, 5)
    for order in range(40):
        begin(lineage, order).complete("receipt")

    with traced(store) as begun:
        handle = begin(lineage, 99)
    with traced(store) as completed:
        handle.complete({"receipt": 1})
    with traced(store) as replayed:
        assert not begin(lineage, 99).fresh
    with traced(store) as appended:
        append(lineage, 6)

    assert (begun, completed, replayed, appended) == (BEGIN, COMPLETE, REPLAY, APPEND)


def test_an_effect_adds_two_rows_an_entry_and_two_of_the_index(store: cpstore.Store) -> None:
    lineage = grown(store, 5)
    begin(lineage, 1).complete("receipt")
    names = ("effect", "trace", "kin")

    def count() -> dict[str, int]:
        more = {name: connection(store).execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
        return rows(store) | more

    before = count()
    handle = begin(lineage, 2)
    between = count()
    handle.complete("receipt")
    handle.complete("receipt")
    begin(lineage, 2)
    after = count()

    def added(one: dict[str, int], two: dict[str, int]) -> dict[str, int]:
        return {name: two[name] - one[name] for name in two if two[name] != one[name]}

    assert added(before, between) == {"entry": 1, "tail": 1, "effect": 1, "trace": 1}
    assert added(between, after) == {"entry": 1, "tail": 1}


def test_a_plan_asks_as_much_over_many_effects_as_over_few_and_writes_nothing(store: cpstore.Store) -> None:
    asked = []
    for effects in (1, 60):
        lineage = grown(store, 5, f"{effects}")
        for order in range(effects):
            begin(lineage, order).complete()
        changes = connection(store).total_changes
        lineage.head()
        with traced(store) as seen:
            assert lineage.plan_restore(1).cleared
        asked.append(seen)
        assert connection(store).total_changes == changes

    assert asked[0] == asked[1] and len(asked[0]) <= 20


def test_a_refused_commit_writes_nothing(store: cpstore.Store) -> None:
    lineage = grown(store, 5)
    before = connection(store).total_changes

    with pytest.raises(cpstore.errors.RevisionConflictError), traced(store) as seen:
        lineage.commit({"messages": []}, step=6, expected_revision=3)

    assert (before, []) == (connection(store).total_changes, [s for s in seen if s.split()[0] in ("INSERT", "UPDATE")])


def test_a_step_adds_two_rows_and_changes_one(store: cpstore.Store) -> None:
    lineage = grown(store, 5)
    before, changes = rows(store), connection(store).total_changes

    append(lineage, 6)

    after = rows(store)
    assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == {
        "entry": 1,
        "tail": 1,
    }
    assert connection(store).total_changes - changes == 3


def test_a_sealed_segment_leaves_one_row_for_128_blocks(store: cpstore.Store) -> None:
    grown(store, 256)

    found = rows(store)

    assert (found["entry"], found["segment"], found["tail"]) == (256, 2, 0)


def test_what_a_reopened_store_asks_does_not_grow_with_it(tmp_path: Path, signer: cpstore.Signer) -> None:
    asked = []
    for lineages in (5, 150):
        path = tmp_path / f"{lineages}.db"
        with cpstore.open(path, signer=signer, durability="normal") as store:
            for number in range(lineages):
                grown(store, 5, f"task-{number}")
        with cpstore.open(path, signer=signer) as store, traced(store) as seen:
            lineage = store.lineage("task-3")
            lineage.head()
            append(lineage, 6)
            asked.append(list(seen))

    assert asked[0] == asked[1]


@pytest.mark.slow
def test_a_checkpoint_that_changes_nothing_takes_at_most_150_bytes(tmp_path: Path, signer: cpstore.Signer) -> None:
    sizes = []
    for count in (1280, 11520):  # so many that a page more or less makes a fifth of a byte
        path = tmp_path / f"{count}.db"
        with cpstore.open(path, signer=signer, durability="normal") as store:
            lineage = store.lineage("t1")
            lineage.commit({"messages": []}, step=1)
            for step in range(2, count + 1):
                with lineage.edit(step=step):
                    pass
        sizes.append(path.stat().st_size)

    assert (sizes[1] - sizes[0]) / (11520 - 1280) <= FIXED


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: the syncs cannot be counted")
@pytest.mark.parametrize(("durability", "each"), [("full", 1), ("normal", 0)])
def test_a_commit_syncs_once_at_full_and_never_at_normal(tmp_path: Path, durability: str, each: int) -> None:
    create_key(tmp_path / "key.pem")
    child = tmp_path / "child.py"
    child.write_text(
        textwrap.dedent("""
            import sys
            import cpstore
            from cpstore.signing.keys import load_key

            path, key, durability, count = sys.argv[1:]
            with cpstore.open(path, signer=load_key(key), durability=durability) as store:
                lineage = store.lineage("t1")
                lineage.commit({"messages": []}, step=1)
                for step in range(2, int(count) + 2):
                    with lineage.edit(step=step) as edit:
                        edit.append("/messages", "line")
        """)
    )
    counted = []
    for commits in (10, 60):
        log = tmp_path / f"{commits}.strace"
        command = [sys.executable, str(child), str(tmp_path / f"{commits}.db"), str(tmp_path / "key.pem"), durability]
        traced_child = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-o", str(log), *command, str(commits)]
        done = subprocess.run(traced_child, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
        if "PTRACE" in done.stderr or "ptrace" in done.stderr:
            pytest.skip(f"strace may not trace here: {done.stderr.strip()[:100]}")
        assert done.returncode == 0, done.stderr
        counted.append(len(re.findall(r"f(?:data)?sync\(", log.read_text())))

    assert counted[1] - counted[0] == each * 50
