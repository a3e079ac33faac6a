"""The wheel: what is in it, and that it works where no checkout is near."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
SOURCES = {"cpstore": ROOT / "cpstore", "cpstore/migrations": ROOT / "migrations"}
KEPT = {".py", ".sql", ".typed"}


def run(*command: object, cwd: Path) -> str:
    """Run a program that sees nothing of the checkout, nor this user's keys. Return what it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    env["XDG_DATA_HOME"] = env["XDG_STATE_HOME"] = str(cwd / "home")
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def expected() -> set[str]:
    """Every file of the package, as the wheel names it."""
    return {
        f"{name}/{path.relative_to(folder).as_posix()}"
        for name, folder in SOURCES.items()
        for path in folder.rglob("*")
        if path.suffix in KEPT and "__pycache__" not in path.parts
    }


@pytest.fixture(name="wheel", scope="module")
def _wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that the checkout stays clean and stale build folders do not count."""
    pytest.importorskip("build")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("cpstore", "migrations", "tests", "benchmarks", "docs"):
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", copy / "dist", cwd=copy)
    (wheel,) = (copy / "dist").glob("*.whl")
    return wheel


def test_every_package_is_listed_once():
    listed = PROJECT["tool"]["setuptools"]["packages"]
    found = {Path(name).parent.as_posix().replace("/", ".") for name in expected() if name.endswith(".py")}

    assert sorted(listed) == sorted(found)
    assert all(f"{name.replace('.', '/')}/__init__.py" in expected() for name in listed)


def test_the_version_is_the_one_in_the_changelog():
    assert f"## [{PROJECT['project']['version']}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if ".dist-info/" not in name}

    assert inside == expected()
    assert any(name.startswith("cpstore/migrations/sqlite/") and name.endswith(".sql") for name in inside)
    assert "cpstore/py.typed" in inside
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


SCRIPT = """
import importlib.metadata, importlib.resources, pathlib, sys
import cpstore
assert pathlib.Path(cpstore.__file__).is_relative_to(sys.prefix), cpstore.__file__
folder = importlib.resources.files("cpstore.migrations") / "sqlite"
scripts = sorted(one.name for one in folder.iterdir() if one.name.endswith(".sql"))
assert scripts and all((folder / name).read_text("utf-8") for name in scripts), scripts
with cpstore.open("agent.db") as store:
    store.lineage("a").commit({"n": 1}, step=1)
with cpstore.open("agent.db", create=False) as store:
    assert store.lineage("a").load() == {"n": 1}
print(importlib.metadata.version("cpstore"), *scripts)
"""


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(wheel, tmp_path):
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (site,) = (home / "lib").glob("python*/site-packages")
    # The dependencies of this interpreter, by path only: its .pth files, and so an editable cpstore, do not count.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=tmp_path)

    said = run(python, "-c", SCRIPT, cwd=tmp_path).split()

    assert said[0] == PROJECT["project"]["version"]
    assert said[1:] == sorted(path.name for path in (ROOT / "migrations" / "sqlite").glob("*.sql"))
    assert (home / "bin" / "cpstore").exists()
    run(python, "-m", "cpstore", "--help", cwd=tmp_path)
