"""A fork stands on its parent's bytes: it loads what it was made of, or nothing."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

import cpstore
from cpstore import Authority, Binding, Directive, Retirement, Supersession, errors


def messages(count, word):
    return [{"role": "user", "content": f"{word} {at} " + "x" * 80} for at in range(count)]


def exchange(path, other, stream):
    """Put the rows of a stream of one file in the place of the same stream's rows in another."""
    db = sqlite3.connect(path)
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute("ATTACH ? AS other", (str(other),))
    for table in ("entry", "tail", "segment"):
        db.execute(f"DELETE FROM {table} WHERE id >> 32 = ?", (stream,))
        db.execute(f"INSERT INTO {table} SELECT * FROM other.{table} WHERE id >> 32 = ?", (stream,))
    for _, sql in triggers:
        db.execute(sql)
    db.commit()
    db.close()


def test_a_fork_of_a_parent_with_another_history_is_refused(tmp_path):
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    with cpstore.open(path) as store:
        store.lineage("parent").commit({"m": messages(40, "alike")}, step=1)
        first = store.lineage("parent").head()
    shutil.copy(path, copy)
    for file, word in ((path, "true"), (copy, "other")):
        with cpstore.open(file) as store:
            parent = store.lineage("parent")
            parent.head()
            parent.commit({"m": messages(40, "alike") + messages(40, word)}, step=2)
            if file == path:
                child = parent.fork("child")
                held = child.load()
    exchange(path, copy, 1)

    with cpstore.open(path) as store:
        assert first == store.lineage("parent").checkpoint(1)
        with pytest.raises(errors.CorruptError, match="another history"):
            store.lineage("child").load()
        assert "parent" in {finding.id for finding in store.verify().findings}
    assert held["m"][-1]["content"].startswith("true")


def test_a_fork_is_shown_what_was_superseded_above_it_until_it_records_it_itself(tmp_path):
    order = [Directive(Authority.USER, f"message {at}", "from now on") for at in (41, 42)]

    def timeout(unit):
        return Binding("timeout", "request timeout", unit, authority=Authority.USER)

    with cpstore.open(tmp_path / "a.db") as store:
        parent = store.lineage("parent")
        parent.commit({"n": 1}, step=1, define=[timeout("ms"), Binding("k", "a key")])
        child = parent.fork("child")
        assert child.outdated() == ()
        parent.commit({"n": 2}, step=2, supersede=[Supersession(timeout("s"), order[0])])
        parent.commit({"n": 3}, step=3, retire=[Retirement("k", order[1])])
        grandchild = child.fork("grandchild")

        shown = [(one.symbol, one.lineage, one.revision, "s)" in one.there) for one in child.outdated()]
        assert shown == [("k", "parent", 1, False), ("timeout", "parent", 1, True)]
        assert [one.symbol for one in grandchild.outdated()] == ["k", "timeout"]
        assert child.glossary().get("timeout").constraint == "ms"

        child.commit({"n": 2}, step=2, supersede=[Supersession(timeout("s"), order[0])])
        assert [one.symbol for one in child.outdated()] == ["k"]
        assert parent.outdated() == ()


def test_an_order_is_not_carried_out_twice_in_a_lineage(tmp_path):
    def timeout(unit):
        return Binding("timeout", "request timeout", unit, authority=Authority.USER)

    first, second = (Directive(Authority.USER, f"message {at}", "from now on") for at in (1, 2))
    with cpstore.open(tmp_path / "a.db") as store:
        task = store.lineage("task")
        task.commit({"n": 1}, step=1, define=[timeout("ms")])
        task.commit({"n": 2}, step=2, supersede=[Supersession(timeout("s"), first)])
        task.commit({"n": 2}, step=2, supersede=[Supersession(timeout("s"), first)])  # restates: nothing to carry out
        task.commit({"n": 3}, step=3, supersede=[Supersession(timeout("ms"), second)])
        with pytest.raises(errors.SemanticDriftError, match="counts once"):
            task.commit({"n": 4}, step=4, supersede=[Supersession(timeout("s"), first)])
        with pytest.raises(errors.SemanticDriftError, match="counts once"):
            task.commit({"n": 4}, step=4, retire=[Retirement("timeout", second)])
        assert task.head().revision == 4
        task.fork("child").commit({"n": 4}, step=4, supersede=[Supersession(timeout("s"), first)])


def test_an_edit_is_refused_if_its_handle_learnt_of_another_revision_meanwhile(tmp_path):
    with cpstore.open(tmp_path / "a.db") as store:
        mine, theirs = store.lineage("task"), store.lineage("task")
        mine.commit({"m": ["first", "second"]}, step=1)
        with pytest.raises(errors.RevisionConflictError), mine.edit(step=1) as edit:
            edit.delete("/m/0")
            theirs.head()
            theirs.commit({"m": ["new", "first", "second"]}, step=1)
            mine.head()
        assert mine.load() == {"m": ["new", "first", "second"]}
        with mine.edit(step=1) as edit:
            edit.delete("/m/0")
        assert mine.load() == {"m": ["first", "second"]}
