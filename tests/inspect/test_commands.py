"""What each command answers about a store that is sound; the JSON is what programs rely on."""

from __future__ import annotations

import stat

import pytest

import cpstore
from cpstore import Authority, Directive, Retirement
from cpstore.inspect import log
from cpstore.inspect.doctor import file_system
from cpstore.inspect.facts import place


def test_the_overview_lists_every_lineage_with_its_head(run, path):
    ran = run("inspect", path, "--json")

    assert ran.code == 0
    heads = {(one["namespace"], one["lineage"]): one["head"]["revision"] for one in ran.value["lineages"]}
    assert heads == {("default", "task"): 3, ("default", "task/worker"): 2, ("other", "task"): 1}
    assert ran.value["bytes"] == path.stat().st_size
    assert ran.value["origin"].startswith("cpstore.local/")


def test_the_overview_can_be_of_one_namespace(run, path):
    ran = run("inspect", path, "--namespace", "other", "--json")

    assert [(one["namespace"], one["lineage"]) for one in ran.value["lineages"]] == [("other", "task")]


def test_the_overview_for_people_names_lineages_heads_and_engine(run, path):
    ran = run("inspect", path)

    assert ran.code == 0
    for text in ("task/worker", "other", "checkpoint", "SQLite", "trusted key"):
        assert text in ran.out


def test_an_empty_store_has_an_overview(run, tmp_path):
    run("init", tmp_path / "new.db")

    ran = run("inspect", tmp_path / "new.db")

    assert ran.code == 0
    assert "no lineages yet" in ran.out


def test_the_log_is_newest_first_and_says_what_is_older(run, path):
    ran = run("inspect", path, "log", "task", "--limit", "2", "--json")

    (line,) = ran.value["lineages"]
    assert [one["revision"] for one in line["revisions"]] == [3, 2]
    assert line["older"] == 1


def test_the_log_without_a_limit_is_whole(run, path):
    ran = run("inspect", path, "log", "--limit", "0", "--json")

    assert {line["lineage"]: len(line["revisions"]) for line in ran.value["lineages"]} == {"task": 3, "task/worker": 2}


def test_the_log_names_forks_keys_and_changes_of_the_glossary(run, path):
    ran = run("inspect", path, "log")

    assert "of task@2" in ran.out
    assert "key once" in ran.out
    assert "changes the glossary" in ran.out


def test_the_graph_joins_a_fork_to_the_revision_it_left(run, path):
    ran = run("inspect", path, "log", "--graph")

    lines = [" ".join(line.split()[: 2 + line.startswith("│")]) for line in ran.out.splitlines()]
    assert lines == ["task", "● 3", "│ task/worker", "│ ● 2", "│ ● 1", "├─╯", "● 2", "● 1"]


def test_the_graph_keeps_forks_that_left_below_the_limit():
    def line(name, revisions, parent=None):
        rows = [
            {
                "revision": n,
                "step": n,
                "time": 0,
                "kind": "checkpoint",
                "actor": "a",
                "parent": None,
                "changes_glossary": False,
                "key": None,
            }
            for n in revisions
        ]
        rows[-1]["parent"] = parent
        return {"lineage": name, "revisions": rows, "older": revisions[-1] - 1}

    drawn = list(log.graph([line("a", [9, 8]), line("b", [1], {"lineage": "a", "revision": 2})]))

    assert [part.split("  ")[0] for part in drawn] == ["a", "● 9", "● 8", "│ b", "│ ● 1", "├─╯", "┆ 7 older"]


def test_a_checkpoint_is_shown_with_the_shape_of_its_state(run, path):
    ran = run("inspect", path, "show", "task@2", "--json")

    assert ran.value["checkpoint"]["revision"] == 2
    assert [line["path"] for line in ran.value["shape"]] == ["/messages", "/budget"]
    assert ran.value["glossary"]["symbols"] == ["timeout"]
    assert "state_value" not in ran.value


def test_the_whole_state_is_shown_on_request(run, path):
    ran = run("inspect", path, "show", "task", "--state", "--json")

    assert ran.value["state_value"] == {"messages": ["a", "b", "c"], "plan": True}


def test_the_difference_of_two_checkpoints_is_given_by_paths(run, path):
    ran = run("inspect", path, "diff", "task@2", "task@3", "--json")

    assert ran.code == 1
    assert ran.value["state"] == [
        {"change": "added", "path": "/messages/2", "after": "c"},
        {"change": "removed", "path": "/budget", "before": {"left": 2}},
        {"change": "added", "path": "/plan", "after": True},
    ]
    (term,) = ran.value["glossary"]
    assert (term["change"], term["symbol"]) == ("changed", "timeout")
    assert term["before"]["constraint"] == "unit: milliseconds"
    assert term["after"]["constraint"] == "unit: seconds"


def test_equal_checkpoints_differ_in_nothing(run, path):
    ran = run("inspect", path, "diff", "task@2", "task/worker@1")

    assert ran.code == 0
    assert "are equal" in ran.out


def test_the_glossary_names_who_settled_a_term_and_on_what_order(run, path):
    (term,) = run("inspect", path, "glossary", "task", "--json").value["bindings"]

    assert term["constraint"] == "unit: seconds"
    assert (term["settled"]["lineage"], term["settled"]["revision"], term["settled"]["actor"]) == ("task", 3, "planner")
    assert term["settled"]["directive"] == {
        "authority": "user",
        "reference": "message 3",
        "text": "seconds from now on",
    }


def test_the_glossary_of_an_older_revision_is_the_one_of_then(run, path):
    (term,) = run("inspect", path, "glossary", "task@2", "--json").value["bindings"]

    assert term["constraint"] == "unit: milliseconds"
    assert (term["settled"]["revision"], term["settled"]["directive"]) == (1, None)


def test_an_inherited_term_was_settled_in_the_parent(run, path):
    (term,) = run("inspect", path, "glossary", "task/worker", "--json").value["bindings"]

    assert (term["settled"]["lineage"], term["settled"]["revision"]) == ("task", 1)


def test_a_retired_term_is_in_force_no_more(run, path):
    with cpstore.open(path) as store:
        task = store.lineage("task")
        task.load()
        task.commit({}, step=4, retire=[Retirement("timeout", Directive(Authority.USER, "message 4", "forget it"))])

    ran = run("inspect", path, "glossary", "task")

    assert ran.code == 0
    assert "no bindings in force" in ran.out


def test_a_sound_store_is_verified(run, path):
    ran = run("inspect", path, "verify", "--json")

    assert ran.code == 0
    assert (ran.value["good"], ran.value["findings"], ran.value["entries"]) == (True, [], 6)


def test_the_verdict_for_people_does_not_promise_completeness(run, path):
    ran = run("inspect", path, "verify")

    assert "good" in ran.out
    assert "unknown" in ran.out


def test_the_doctor_looks_at_engine_files_key_and_file_system(run, path):
    ran = run("inspect", path, "doctor", "--json")

    assert [line["what"] for line in ran.value["checks"]] == [
        "engine",
        "store file",
        "write-ahead log",
        "key file",
        "key apart from store",
        "file system",
    ]


def test_the_doctor_warns_of_a_store_that_others_may_read(run, path):
    path.chmod(0o644)

    lines = {line["what"]: line for line in run("inspect", path, "doctor", "--json").value["checks"]}

    assert lines["store file"]["verdict"] == "warn"
    assert "chmod 600" in lines["store file"]["advice"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_doctor_warns_of_a_key_beside_the_store(run, tmp_path):
    key = tmp_path / "own.pem"
    run("keygen", "--out", key)
    run("--key", key, "init", tmp_path / "a.db")

    lines = {
        line["what"]: line
        for line in run("inspect", tmp_path / "a.db", "--key", key, "doctor", "--json").value["checks"]
    }

    assert lines["key apart from store"]["verdict"] == "warn"


def test_the_file_system_is_that_of_the_longest_mount(tmp_path):
    mounts = (
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"23 22 0:4 / {tmp_path} rw shared:1 - nfs4 server:/x rw\n"
        f"24 22 0:4 / {tmp_path}/agent.d rw - tmpfs tmpfs rw\n"
        "garbage\n"
    )

    assert file_system(tmp_path / "agent.db", mounts) == "nfs4"
    assert file_system(tmp_path.parent / "agent.db", mounts) == "ext4"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("task", ("task", None)),
        ("task@3", ("task", 3)),
        ("task@head", ("task", None)),
        ("a@b", ("a@b", None)),
        ("a@3@head", ("a@3", None)),
        ("@1", ("", 1)),
        ("a\n@2", ("a\n", 2)),
    ],
)
def test_a_place_is_a_lineage_and_a_revision(text, expected):
    assert place(text) == expected


LOOKS = [
    (), ("log",), ("log", "--graph"), ("show", "task", "--state"), ("diff", "task@1", "task@2"), ("glossary", "task"),
    ("verify",), ("doctor",),
]  # fmt: skip
BUSY_LOOKS = [
    *LOOKS, ("effects",), ("effects", "task/worker"), ("effects", "--in-doubt"), ("effects", "--name", "sync"),
    ("ledger",), ("ledger", "release"), ("ledger", "release", "task-b"), ("events",), ("why", "timeout"),
    ("why", "mail"), ("show", "task@3"), ("show", "task@4"), ("diff", "task@3", "task@4"), ("glossary", "task/worker"),
]  # fmt: skip


def test_looking_changes_neither_the_file_nor_its_folder(run, busy):
    before = {file.name: file.read_bytes() for file in busy.parent.iterdir()}
    stamp = busy.stat().st_mtime_ns

    for look in BUSY_LOOKS:
        for form in ([], ["--json"]):
            ran = run("inspect", busy, *look, *form)

            assert ran.code in (0, 1), ran.err
            assert {file.name: file.read_bytes() for file in busy.parent.iterdir()} == before, look
            assert busy.stat().st_mtime_ns == stamp, look


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_every_table_fits_and_loses_nothing_that_matters(run, path, look, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    ran = run("inspect", path, *look)

    assert ran.out.strip()
    assert "…" not in ran.out


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_tables_of_a_busy_store_fit_too(run, busy, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))

    for look in BUSY_LOOKS:
        ran = run("inspect", busy, *look)

        assert ran.out.strip(), look
        assert "…" not in ran.out or look in (("diff", "task@1", "task@2"), ("show", "task@3")), look
