"""The command line as a whole: its options, its exit codes, its two ways to be started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cpstore
from cpstore.__main__ import main
from cpstore.signing.keys import default_key_path, load_key

ROOT = Path(__file__).parent.parent


def started(*argv, cwd=None, **more):
    """Run the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run(
        [sys.executable, "-m", "cpstore", *map(str, argv)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "agent.db"
    with cpstore.open(target) as store:
        store.lineage("task").commit({"n": 1}, step=1)
    return target


def test_it_starts_as_a_module(path):
    ran = started("inspect", path, "--json")

    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["lineages"][0]["lineage"] == "task"


def test_the_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cpstore {cpstore.__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        [], ["no-such"], ["inspect"], ["inspect", "a.db", "no-such"], ["inspect", "a.db", "show"],
        ["inspect", "a.db", "diff", "a@1"],
        ["inspect", "a.db", "log", "--limit", "many"], ["inspect", "a.db", "why"],
        ["replay"], ["replay", "--interleave", "0", "x"],
        ["init"], ["--k", "x", "demo"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_usage_is_exit_code_2(argv, capsys):
    assert main(argv) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["--help"], ["inspect", "--help"], ["inspect", "a.db", "verify", "--help"], ["replay", "-h"]]
)
def test_help_is_no_error(argv, capsys):
    assert main(argv) == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_global_option_may_stand_anywhere(path, place, capsys):
    argv = ["inspect", str(path), "verify"]
    argv.insert(place, "--json")

    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["good"] is True


def test_init_makes_a_store_once_and_then_recognises_it(tmp_path, capsys):
    target = tmp_path / "new.db"

    assert main(["init", str(target), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["init", str(target), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)

    assert (made["made"], again["made"]) == (True, False)
    assert made["origin"] == again["origin"]


def test_init_does_not_touch_another_kind_of_file(tmp_path, capsys):
    file = tmp_path / "notes.txt"
    file.write_text("my notes, longer than a header of a database would be\n" * 100)
    content = file.read_bytes()

    assert main(["init", str(file)]) == 5
    assert file.read_bytes() == content


def test_keygen_makes_a_key_that_only_its_owner_reads(tmp_path, capsys):
    file = tmp_path / "keys" / "own.pem"

    assert main(["keygen", "--out", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    load_key(file)


def test_keygen_never_overwrites(tmp_path, capsys):
    file = tmp_path / "own.pem"
    main(["keygen", "--out", str(file)])
    content = file.read_bytes()

    assert main(["keygen", "--out", str(file)]) == 12
    assert file.read_bytes() == content


def test_the_key_comes_from_the_option_then_the_environment_then_the_user(tmp_path, capsys, monkeypatch):
    one, two, store = tmp_path / "1.pem", tmp_path / "2.pem", tmp_path / "a.db"
    for file in (one, two):
        main(["keygen", "--out", str(file)])
    monkeypatch.setenv("CPSTORE_KEY", str(two))
    main(["init", str(store), "--key", str(one)])
    with cpstore.open(store, signer=load_key(one)) as opened:
        opened.lineage("task").commit({}, step=1)

    assert main(["inspect", str(store)]) == 3
    assert main(["inspect", str(store), "--key", str(one)]) == 0
    monkeypatch.setenv("CPSTORE_KEY", str(one))
    assert main(["inspect", str(store)]) == 0
    monkeypatch.delenv("CPSTORE_KEY")
    cpstore.open(tmp_path / "b.db").close()
    assert main(["inspect", str(store)]) == 3


@pytest.mark.parametrize("trouble", ["missing", "readable", "garbage", "folder"])
def test_trouble_with_the_key_is_exit_code_12(path, tmp_path, trouble, capsys):
    key = tmp_path / "key.pem"
    if trouble == "readable":
        main(["keygen", "--out", str(key)])
        key.chmod(0o644)
    elif trouble == "garbage":
        key.write_text("no key")
        key.chmod(0o600)
    elif trouble == "folder":
        key.mkdir()
    capsys.readouterr()

    assert main(["inspect", str(path), "--key", str(key)]) == 12
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_without_a_key_of_its_own_a_user_cannot_verify(path, tmp_path):
    ran = started("inspect", path, XDG_DATA_HOME=str(tmp_path / "elsewhere"))

    assert ran.returncode == 12
    assert "keygen" in ran.stderr
    assert not (tmp_path / "elsewhere").exists()


def test_an_unknown_lineage_or_revision_is_a_wrong_usage(path, capsys):
    for argv in (
        ["show", "none"],
        ["show", "task@7"],
        ["log", "none"],
        ["glossary", "none"],
        ["diff", "task@1", "task@9"],
        ["effects", "none"],
        ["ledger", "none"],
        ["events", "none"],
        ["why", "none"],
    ):
        assert main(["inspect", str(path), *argv]) == 2
    assert capsys.readouterr().err.count("\n") == 9


def test_a_closed_pipe_ends_quietly(path):
    command = f"{sys.executable} -m cpstore inspect {path} log --json | true"
    ran = subprocess.run(
        command, shell=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60
    )

    assert ran.stderr == ""


def test_an_output_that_knows_only_ascii_is_no_error(path):
    ran = started("inspect", path, "log", "--graph", PYTHONIOENCODING="ascii")

    assert ran.returncode == 0
    assert "\\u25cf 1" in ran.stdout


def test_interrupting_is_exit_code_130(monkeypatch, capsys, path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("cpstore.__main__.look", interrupted)

    assert main(["inspect", str(path)]) == 130
    assert capsys.readouterr().err == "cpstore: interrupted\n"


def test_importing_the_package_or_printing_json_needs_no_rich(path):
    code = (
        "import sys, cpstore.__main__ as m; early = 'sqlite_utils' in sys.modules; "
        "m.main(['inspect', sys.argv[1], '--json']); sys.exit(early or 'rich' in sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
    )

    assert ran.returncode == 0


def test_the_tests_have_a_key_of_their_own(own_home):
    assert default_key_path().is_relative_to(own_home)
