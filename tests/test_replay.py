"""Trajectories are replayed step by step, every revision is compared, and the numbers are what they say."""

from __future__ import annotations

import json

import pytest
import zstandard

import cpstore
from cpstore import errors, replay
from cpstore.__main__ import main


def made(name, count, *, cut=None, size=40):
    messages = [
        {"role": "user" if n % 2 else "assistant", "content": f"{name} says {n} " + "x" * size} for n in range(count)
    ]
    acts = [] if cut is None else [{"op": "compact", "at": cut}]
    return {
        "id": name,
        "messages": messages,
        "step_ends": list(range(1, count + 1)),
        "state_ops": acts,
        "license": "MIT",
    }


RUNS = [made("one", 7), made("two", 9, cut=5), made("three", 1)]


def lines(runs):
    return "".join(json.dumps(run) + "\n" for run in runs).encode()


@pytest.fixture
def file(tmp_path):
    target = tmp_path / "runs.jsonl"
    target.write_bytes(lines(RUNS))
    return target


def table(capsys, *argv):
    code = main(["replay", *map(str, argv), "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out)["files"] if out else None


def states(run):
    """The states of a trajectory, straight from the description of the format."""
    cuts = {act["at"] for act in run["state_ops"]}
    live, at = [], 0
    for step, end in enumerate(run["step_ends"]):
        for n in range(at, end):
            if n in cuts:
                live = []
            live = [*live, run["messages"][n]]
        at = end
        yield {"messages": live, "step": step}


@pytest.mark.parametrize(
    "options", [[], ["--edit"], ["--interleave", "2"], ["--edit", "--interleave", "9"]], ids=" ".join
)
def test_every_revision_is_the_state_that_the_file_describes(file, tmp_path, options, capsys):
    code, (one,) = table(capsys, file, "--into", tmp_path / "kept.db", *options)

    assert (code, one["good"], one["verified"], one["wrong"]) == (0, True, 17, [])
    with cpstore.open(tmp_path / "kept.db", read_only=True) as store:
        for run in RUNS:
            lineage = store.lineage(run["id"])
            assert [lineage.load(n + 1) for n in range(len(run["step_ends"]))] == list(states(run))
            assert [one.step for one in lineage.history()] == list(reversed(range(len(run["step_ends"]))))


def test_the_full_size_is_that_of_all_states_written_out(file, capsys):
    _, (one,) = table(capsys, file)

    written = [json.dumps(state, separators=(",", ":")) for run in RUNS for state in states(run)]
    assert one["full_bytes"] == sum(map(len, written))


def test_unique_messages_are_counted_once_a_trajectory(tmp_path, capsys):
    run = made("one", 4)
    run["messages"][3] = run["messages"][1]
    (tmp_path / "r.jsonl").write_bytes(lines([run, {**run, "id": "two"}]))

    _, (one,) = table(capsys, tmp_path / "r.jsonl")

    assert one["unique_bytes"] == 2 * sum(
        len(json.dumps(message, separators=(",", ":"))) for message in run["messages"][:3]
    )


def test_the_size_on_disk_is_that_of_the_closed_file(file, tmp_path, capsys):
    _, (one,) = table(capsys, file, "--into", tmp_path / "kept.db")

    assert one["disk_bytes"] == (tmp_path / "kept.db").stat().st_size
    assert one["bytes_per_checkpoint"] == round(one["disk_bytes"] / 17, 3)


def test_the_floor_is_compressed_messages_and_96_bytes_a_checkpoint(file, capsys):
    _, (one,) = table(capsys, file, "--floor")

    hard = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
    )
    packed = [
        len(hard.compress("\n".join(json.dumps(m, separators=(",", ":")) for m in run["messages"]).encode()))
        for run in RUNS
    ]
    assert one["floor_bytes"] == sum(packed) + 96 * 17
    assert one["disk_to_floor"] == round(one["disk_bytes"] / one["floor_bytes"], 3)


@pytest.mark.parametrize("frames", [1, 3])
def test_zstd_files_are_read_frame_after_frame(tmp_path, frames, capsys):
    file = tmp_path / "runs.jsonl.zst"
    raw = lines(RUNS)
    cuts = [raw[len(raw) * n // frames : len(raw) * (n + 1) // frames] for n in range(frames)]
    file.write_bytes(b"".join(map(zstandard.compress, cuts)))

    code, (one,) = table(capsys, file)

    assert (code, one["verified"], one["trajectories"]) == (0, 17, 3)


@pytest.mark.parametrize("end", [1, 20, -1])
def test_a_truncated_zstd_file_is_refused(tmp_path, end, capsys):
    file = tmp_path / "runs.zst"
    raw = zstandard.compress(lines(RUNS)) * 2
    file.write_bytes(raw[: len(raw) // 2 + end] if end > 0 else raw[:end])

    code, _ = table(capsys, file)

    assert code == 5


BAD = {
    "not JSON": b"{",
    "not an object": b"[]",
    "no id": b'{"messages": [], "step_ends": []}',
    "no messages": b'{"id": "a", "step_ends": []}',
    "too many": b'{"id": "a", "messages": [1], "step_ends": [2]}',
    "falling": b'{"id": "a", "messages": [1, 2], "step_ends": [2, 1]}',
    "a bool": b'{"id": "a", "messages": [1, 2], "step_ends": [true]}',
    "unknown operation": b'{"id": "a", "messages": [], "step_ends": [], "state_ops": [{"op": "undo", "at": 1}]}',
    "deep": b'{"id": "a", "messages": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_a_file_of_another_format_is_refused_with_its_line(tmp_path, content, capsys):
    file = tmp_path / "bad.jsonl"
    file.write_bytes(lines(RUNS) + content)

    assert main(["replay", str(file)]) == 5
    assert "bad.jsonl, line 4" in capsys.readouterr().err


def test_a_missing_file_makes_no_store(tmp_path, capsys):
    assert main(["replay", str(tmp_path / "none"), "--into", str(tmp_path / "a.db")]) == 5
    assert not (tmp_path / "a.db").exists()


def test_a_lineage_that_exists_is_not_continued(file, tmp_path, capsys):
    table(capsys, file, "--into", tmp_path / "kept.db")

    assert main(["replay", str(file), "--into", str(tmp_path / "kept.db")]) == 2
    assert "revision" in capsys.readouterr().err


def test_steps_without_new_messages_and_empty_runs_are_replayed(tmp_path, capsys):
    run = made("still", 3) | {"step_ends": [0, 1, 1, 3]}
    (tmp_path / "r.jsonl").write_bytes(lines([run, made("empty", 0)]))

    for options in ([], ["--edit"]):
        code, (one,) = table(capsys, tmp_path / "r.jsonl", *options)
        assert (code, one["checkpoints"], one["verified"]) == (0, 4, 4)


def test_a_revision_that_is_not_what_was_committed_is_named(tmp_path):
    (run,) = [replay.Trajectory("one", ["a", "b"], [1, 2], frozenset())]
    other = replay.Trajectory("one", ["a", "B"], [1, 2], frozenset())
    result = replay.Result("x")
    with cpstore.open(tmp_path / "a.db") as store:
        replay.commit_all([run], store, replay.Manner(), result)
        replay.compare_all([other], store, replay.Manner(), result)

    assert (result.verified, result.wrong, result.good) == (1, ["one@2 is not what was committed"], False)


def test_a_revision_that_cannot_be_loaded_is_named(tmp_path):
    run = replay.Trajectory("one", ["a", "b"], [1, 2], frozenset())
    result = replay.Result("x", checkpoints=2)
    with cpstore.open(tmp_path / "a.db") as store:
        store.lineage("one").commit({"messages": ["a"], "step": 0}, step=0)
        replay.compare_all([run], store, replay.Manner(), result)

    assert result.verified == 1
    assert result.wrong[0].startswith("one@2: ")


def test_the_table_has_a_column_a_file(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    files = []
    for n in range(5):
        files.append(tmp_path / f"file{n}.jsonl")
        files[-1].write_bytes(lines(RUNS))

    assert main(["replay", *map(str, files)]) == 0
    out = capsys.readouterr().out
    assert all(f"file{n}" in out for n in range(5))
    assert out.count("loaded equal") == 2
    assert max(map(len, out.splitlines())) <= 80


def test_trajectories_refuse_what_is_no_regular_file(tmp_path):
    with pytest.raises(errors.InvalidStateError, match="regular"):
        next(replay.read_trajectories(str(tmp_path)))
