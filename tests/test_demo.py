"""The demonstration shows real refusals, and leaves a store that verifies."""

from __future__ import annotations

import json

import pytest

import cpstore
from cpstore import demo, errors
from cpstore.__main__ import main


@pytest.fixture
def told(tmp_path):
    lines = []
    assert demo.run(tmp_path / "demo.db", lines.append) is True
    return lines


def test_it_shows_the_refusals_in_their_own_words(told):
    text = "\n".join(told)

    for part in (
        "SemanticDriftError: default/invoice-42@7: refused",
        "RevisionConflictError: lineage 'invoice-42'",
        "timeout",
    ):
        assert part in text
    assert text.count("Nothing was written") == 3


def test_its_last_line_says_how_to_look_inside(told, tmp_path):
    assert told[-1] == f"Look inside:  python -m cpstore inspect {tmp_path / 'demo.db'}"


def test_what_it_leaves_verifies_and_keeps_the_lock(told, tmp_path):
    with cpstore.open(tmp_path / "demo.db", create=False) as store:
        assert store.verify().good
        for name in (demo.LINEAGE, f"{demo.LINEAGE}/worker-1"):
            assert [one.constraint for one in store.lineage(name).glossary()] == ["unit: milliseconds"]


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


def test_its_output_fits_a_terminal(told):
    assert max(map(len, told)) <= 160


def test_it_can_be_read_by_programs(tmp_path, capsys):
    assert main(["demo", str(tmp_path / "d.db"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["good"] is True
