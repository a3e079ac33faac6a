"""Text from a store is data: nothing in it acts on the terminal, and no file that is no store is touched."""

from __future__ import annotations

import os

import pytest

import cpstore
from cpstore import Acknowledgement, Authority, Binding, Directive, EffectPolicy, Supersession, TermClaim

EVIL = "[red]\u202eevil\u2069[/red]\u200b"
NAME = "[red]name[/red]"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\nroot#"


def _outside(store, task):
    """Do what reaches beyond the lineage, in the worst words that are accepted."""
    policy = EffectPolicy.AT_MOST_ONCE
    task.begin(NAME, {ESCAPES: EVIL}, key=NAME, policy=policy).fail(ESCAPES)
    (doubt,) = task.effects(in_doubt=True)
    task.reconcile(doubt, happened=True, who=ESCAPES, why=EVIL, result={EVIL: ESCAPES})
    lost = task.begin("other", {}, policy=EffectPolicy.IDEMPOTENT)
    lost.fail(EVIL)
    task.begin("other", {}, policy=EffectPolicy.IDEMPOTENT).complete(ESCAPES)
    lost.complete(EVIL)
    planner, peer = store.ledger(NAME).join("[b]planner"), store.ledger(NAME).join("[b]peer", lineage=task)
    planner.write(NAME, {ESCAPES: EVIL})
    planner.compacted(ESCAPES)
    peer.read(NAME)
    state = {"messages": [EVIL * 9] * 20}
    task.commit(state, step=3)
    claims = [TermClaim("unknown", ESCAPES)]
    task.compact({"messages": [f"in short: {EVIL}{ESCAPES}"]}, summary="/messages/0", claims=claims)
    task.record("note", {}, policy=policy)
    plan = task.plan_restore(3)
    task.restore(3, acknowledge=Acknowledgement(ESCAPES, EVIL, plan.effects, plan.gaps))
    worker = task.fork("[i]worker")
    again = Supersession(Binding("term", "plain", authority=Authority.USER), Directive(Authority.USER, EVIL, ESCAPES))
    task.commit({}, step=4, supersede=[again])
    worker.commit({}, step=4)


@pytest.fixture
def hostile(tmp_path):
    target = tmp_path / "hostile.db"
    with cpstore.open(target) as store:
        task = store.lineage("[link=x]id[/]", namespace="default")
        term = Binding("term", ESCAPES, constraint=ESCAPES, authority=Authority.USER)
        task.commit({ESCAPES: ESCAPES, "a": [ESCAPES]}, step=1, define=[term])
        other = Binding("term", EVIL, authority=Authority.USER)
        task.commit({EVIL: EVIL}, step=2, supersede=[Supersession(other, Directive(Authority.USER, ESCAPES, EVIL))])
        _outside(store, task)
    return target


LOOKS = [
    [], ["log"], ["log", "--graph"], ["show", "[link=x]id[/]@1"], ["show", "[link=x]id[/]@1", "--state"],
    ["show", "[link=x]id[/]@2", "--state"], ["diff", "[link=x]id[/]@1", "[link=x]id[/]@2"],
    ["glossary", "[link=x]id[/]@1"], ["glossary", "[link=x]id[/]"], ["verify"], ["doctor"],
    ["glossary", "[i]worker"], ["show", "[link=x]id[/]@4"], ["show", "[link=x]id[/]@5"], ["effects"],
    ["diff", "[link=x]id[/]@2", "[link=x]id[/]@5"], ["effects", "--name", NAME], ["ledger"], ["ledger", NAME],
    ["ledger", NAME, NAME], ["events"], ["why", "term"], ["why", NAME], ["why", "other"],
]  # fmt: skip


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["people", "json"])
def test_no_text_of_a_store_reaches_the_terminal_raw(run, hostile, look, form):
    ran = run("inspect", hostile, *look, *form)

    assert ran.code in (0, 1), ran.err
    assert ran.out
    for char in "\x1b\x07\r\u202e\u2069\u200b":
        assert char not in ran.out


def test_markup_in_a_name_is_shown_as_it_is(run, hostile):
    assert "[link=x]id[/]" in run("inspect", hostile).out
    assert "[red]" in run("inspect", hostile, "glossary", "[link=x]id[/]").out


def test_an_error_is_one_harmless_line(run, path):
    ran = run("inspect", path, "show", "no\x1b[2Jsuch\n\u202eone")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "\x1b" not in ran.err
    assert "\u202e" not in ran.err


def test_a_missing_store_is_not_made(run, tmp_path):
    ran = run("inspect", tmp_path / "none.db")

    assert ran.code == 10
    assert "init" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_refused(run, tmp_path):
    ran = run("inspect", tmp_path)

    assert ran.code == 5
    assert "directory" in ran.err


def test_a_named_pipe_is_refused_and_does_not_block(run, tmp_path):
    os.mkfifo(tmp_path / "pipe")

    ran = run("inspect", tmp_path / "pipe")

    assert ran.code == 5


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 4080, b"\0" * 8192],
    ids=lambda raw: repr(raw[:18]),
)
@pytest.mark.parametrize("look", [[], ["verify"], ["doctor"]], ids=["overview", "verify", "doctor"])
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(run, path, tmp_path, content, look):
    file = tmp_path / "other.db"
    file.write_bytes(content)
    names = sorted(os.listdir(tmp_path))

    ran = run("inspect", file, *look)

    assert ran.code == 5, ran
    assert ran.err.count("\n") == 1
    assert file.read_bytes() == content
    assert sorted(os.listdir(tmp_path)) == names


def test_a_store_of_another_key_is_not_verified_and_not_empty(run, path, tmp_path):
    run("keygen", "--out", tmp_path / "k" / "other.pem")

    for look in ([], ["log"], ["verify"], ["show", "task"]):
        ran = run("inspect", path, *look, "--key", tmp_path / "k" / "other.pem")
        assert (ran.code, ran.out) == (3, "")


def test_a_damaged_byte_is_named_with_its_revision(run, path):
    raw = bytearray(path.read_bytes())
    with cpstore.open(path, read_only=True) as store:
        task = store.lineage("task")
        assert task.load(3)["plan"] is True
    at = raw.index(b"plan")
    raw[at] ^= 1
    path.write_bytes(raw)

    ran = run("inspect", path, "verify", "--json")

    assert ran.code == 1
    assert any(one["lineage"] == "task" and 3 in one["revisions"] for one in ran.value["findings"])
    shown = run("inspect", path, "verify")
    assert "DAMAGED" in shown.out
    assert "->" in shown.out
    assert run("inspect", path, "show", "task@3").code in (1, 3)
