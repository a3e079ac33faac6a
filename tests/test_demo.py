"""The demonstration shows real refusals and how to go on after each, and leaves a store that verifies."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import cpstore
from cpstore import demo, errors
from cpstore.__main__ import main


@pytest.fixture
def told(tmp_path):
    lines = []
    assert demo.run(tmp_path / "demo.db", lines.append) is True
    return lines


def parts(told):
    """The four parts of what was told, by number."""
    found = {}
    for line in told:
        number = line[0] if line[:1].isdigit() else None
        if number:
            found[number] = []
        if found:
            found[max(found)].append(line)
    return {number: "\n".join(lines) for number, lines in found.items()}


@pytest.mark.parametrize(
    ("number", "refusal", "recovery"),
    [
        ("1", "SemanticDriftError: default/invoice-42@6: refused", "-> The user decides"),
        ("2", "PeerReadOnlyError: ledger 'invoices': peer 'executor' is read_only (compaction)", "-> It reads again"),
        ("3", "UnsafeRollbackError: lineage 'invoice-42': going back to revision 7 is refused", "-> Accounting looks"),
        ("4", "damage: default/invoice-42@6: entry 7", "-> "),
    ],
)
def test_it_shows_each_refusal_in_its_own_words_and_how_to_go_on(told, number, refusal, recovery):
    found = parts(told)

    assert list(found) == ["1", "2", "3", "4"]
    assert found[number].index(refusal) < found[number].rindex(recovery)


def test_nothing_is_paid_twice(told):
    assert 'answered from the record: {"receipt": "R-7"}. Paid once.' in parts(told)["3"]


def test_a_fork_inherits_the_lock(told):
    assert "invoice-42/worker-1@1 knows 'timeout', unit: seconds" in parts(told)["4"]
    assert "SemanticDriftError: default/invoice-42/worker-1@2: refused" in parts(told)["4"]


def test_its_last_line_says_how_to_look_inside(told, tmp_path):
    assert told[-1] == f"Look inside:  python -m cpstore inspect {tmp_path / 'demo.db'}"


def test_what_it_leaves_verifies_and_shows_it_all(told, tmp_path):
    with cpstore.open(tmp_path / "demo.db", create=False) as store:
        assert store.verify().good
        for name in (demo.LINEAGE, f"{demo.LINEAGE}/worker-1"):
            assert [one.constraint for one in store.lineage(name).glossary()] == ["unit: seconds"]
        task = store.lineage(demo.LINEAGE)
        assert [(one.id.name, one.state.value) for one in task.effects()] == [("refund", "happened")]
        assert {found.kind for found in task.history()} == {"checkpoint", "compaction", "restore"}
        assert [event.kind for event in store.ledger(demo.LEDGER).events()] == ["superseded", "compacted", "restored"]
    assert [file.name for file in tmp_path.glob("*.db")] == ["demo.db"]


@pytest.mark.parametrize("broken", ["nothing is refused", "a forged copy is found good", "it is paid twice"])
def test_it_says_so_if_the_store_does_not_do_what_it_promises(tmp_path, monkeypatch, broken):
    if broken == "nothing is refused":
        monkeypatch.setattr("cpstore.lineage.Lineage.compact", lambda *_, **__: None)
    elif broken == "a forged copy is found good":
        good = SimpleNamespace(good=True, findings=(), entries=0)
        monkeypatch.setattr("cpstore.store.Store.verify", lambda _: good)
    else:
        monkeypatch.setattr("cpstore.demo.Gateway.refund", _twice)

    with pytest.raises(demo.DemoError):
        demo.run(tmp_path / "demo.db", lambda _: None)


def _twice(gateway, key):
    gateway.refunds += [key, key]
    raise TimeoutError


def test_it_never_uses_a_file_that_is_there(tmp_path):
    file = tmp_path / "mine.db"
    file.write_bytes(b"mine")

    with pytest.raises(errors.ConflictError, match="already"):
        demo.run(file, print)

    assert file.read_bytes() == b"mine"


def test_the_command_plays_it_in_the_current_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "SemanticDriftError" in out
    assert out.endswith("python -m cpstore inspect cpstore-demo.db\n")
    assert main(["demo"]) == 5
    assert "already" in capsys.readouterr().err


def test_its_output_fits_a_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    assert main(["demo", "d.db"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 60


def test_it_can_be_read_by_programs(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "d.db"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["good"] is True
