"""The repository's own laws about imports and sizes, read from the source without running it."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PACKAGE = "cpstore"
MAX_LINES = 450

# A module imports only from the levels before its own, or from its own package. "" is cpstore/__init__.py.
LEVELS = [
    {"errors", "migrations"},
    {"canonical", "digest"},
    {"model", "signing", "snapshot"},
    {"rules", "backends"},
    {"journal"},
    {"streams"},
    {"lineage", "ledger", "audit"},
    {"store"},
    {""},
    {"adapters", "aio", "demo", "inspect", "replay", "testing"},
    {"__main__"},
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}

ONLY_IN = {
    "cryptography": {"signing"},
    "zstandard": {"snapshot"},
    "psycopg": {"backends"},
    "sqlite3": {"backends"},
    "sqlite_utils": {"backends"},
}
NEVER_AT_IMPORT = {"platformdirs", "rich", "sqlite_utils"}
# A rule gets `now` and facts: nothing that reads a clock, a random source, the system or a file.
NOT_IN_RULES = {
    "asyncio", "datetime", "io", "logging", "os", "pathlib", "platform", "random", "secrets", "shutil", "signal",
    "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "uuid",
}  # fmt: skip
DISTRIBUTIONS = {"sqlite-utils": "sqlite_utils"}
FRAMEWORKS = {"adapters", "testing"}  # they import what only their users have installed: frameworks, pytest


class Import(NamedTuple):
    """One imported module; ``lazy`` if a plain ``import`` of the file does not run it."""

    target: str
    line: int
    lazy: bool


def imports(tree: ast.AST, module: str, *, is_package: bool, modules: set[str]) -> Iterator[Import]:
    """Every import of a file, those in functions and under TYPE_CHECKING included."""
    for node, lazy in statements(tree, lazy=False):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                source = ".".join([*parts, source] if source else parts)
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                yield Import(whole if whole in modules else source, node.lineno, lazy)


def statements(node: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield child, inside
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for part in child.body:
                yield part, True
                yield from statements(part, lazy=True)
            for part in child.orelse:
                yield part, inside
                yield from statements(part, lazy=inside)
        else:
            yield from statements(child, lazy=inside)


def files(root: Path) -> dict[str, Path]:
    """The path of each module under ``root``, by dotted name."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def unit(module: str) -> str:
    """What has a level: the first name below the package."""
    return ([*module.split("."), ""])[1]


def violations(root: Path, declared: set[str]) -> list[str]:
    """Everything in the package under ``root`` that breaks a law, one line each."""
    modules = files(root)
    known = set(modules) | {f"{PACKAGE}.migrations"}
    found = []
    for module, path in modules.items():
        where = path.relative_to(root).as_posix()
        text = path.read_text("utf-8")
        lines = len(text.splitlines())
        if lines > MAX_LINES:
            found.append(f"{where}: {lines} lines, at most {MAX_LINES} are allowed: split it")
        if unit(module) not in LEVEL:
            found.append(f"{where}: has no level: add {unit(module)!r} to LEVELS in tests/test_layers.py")
            continue
        for one in imports(ast.parse(text), module, is_package=path.name == "__init__.py", modules=known):
            found += [f"{where}:{one.line}: {problem}" for problem in problems(module, one, declared)]
    return found


def problems(module: str, one: Import, declared: set[str]) -> Iterator[str]:
    here, top = unit(module), one.target.split(".")[0]
    if top == PACKAGE:
        there = unit(one.target)
        if there not in LEVEL:
            yield f"{one.target} has no level"
        elif here != there and LEVEL[there] >= LEVEL[here]:
            yield f"{here or PACKAGE} may not import {one.target}: it is not on a level below"
        return
    if here not in ONLY_IN.get(top, {here}):
        yield f"only {', '.join(sorted(ONLY_IN[top]))} may import {top}"
    if top in NEVER_AT_IMPORT and not one.lazy:
        yield f"{top} is imported only inside the functions that use it"
    if here == "rules" and top in NOT_IN_RULES:
        yield f"a rule is pure: it may not import {top}"
    if here not in FRAMEWORKS and top not in declared and top not in sys.stdlib_module_names:
        yield f"{top} is not among the dependencies in pyproject.toml"


def dependencies() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {entry.split(">")[0].split("[")[0].strip() for entry in project["dependencies"]}
    optional = {"psycopg"}
    return {DISTRIBUTIONS.get(name, name.replace("-", "_")) for name in named} | {"attr"} | optional


def test_the_package_keeps_its_laws():
    assert violations(ROOT, dependencies()) == []


def test_every_dependency_is_used():
    used = set()
    for module, path in files(ROOT).items():
        tree = ast.parse(path.read_text("utf-8"))
        used |= {one.target.split(".")[0] for one in imports(tree, module, is_package=False, modules=set())}

    assert dependencies() - {"attr", "psycopg"} <= used


FAULTS = {
    "an upward import": ("model/a.py", "from cpstore.lineage import Lineage", "model may not import cpstore.lineage"),
    "a sibling": ("rules/a.py", "import cpstore.backends.port", "rules may not import cpstore.backends.port"),
    "a sibling module": ("ledger.py", "from cpstore import lineage", "ledger may not import cpstore.lineage"),
    "a relative sibling": ("signing/a.py", "from ..model import entry", "signing may not import cpstore.model"),
    "inside a function": (
        "model/a.py",
        "def f():\n    from cpstore import store",
        "model may not import cpstore.store",
    ),
    "inside a method": ("digest.py", "class A:\n    def f(self):\n        import cpstore.rules.a", "digest may not"),
    "for types only": (
        "canonical.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cpstore.model.a import A",
        "canonical may not import cpstore.model.a",
    ),
    "the facade from below": ("store.py", "from cpstore import Binding", "store may not import cpstore"),
    "the command line from the facade": (
        "__init__.py",
        "from cpstore import inspect",
        "may not import cpstore.inspect",
    ),
    "cryptography elsewhere": ("store.py", "import cryptography.fernet", "only signing may import cryptography"),
    "zstandard elsewhere": ("signing/a.py", "from zstandard import ZstdError", "only snapshot may import zstandard"),
    "sqlite3 elsewhere": ("audit.py", "def f():\n    import sqlite3", "only backends may import sqlite3"),
    "psycopg elsewhere": ("store.py", "import psycopg.rows", "only backends may import psycopg"),
    "sqlite_utils elsewhere": ("inspect/a.py", "def f():\n    import sqlite_utils", "only backends may import"),
    "a slow import at the top": ("backends/a.py", "import sqlite_utils", "only inside the functions"),
    "a slow import in a class": ("inspect/a.py", "class A:\n    import rich.table", "only inside the functions"),
    "a slow import beside types": (
        "inspect/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import rich",
        "only inside the functions",
    ),
    "a clock in a rule": ("rules/a.py", "def f():\n    from time import time", "may not import time"),
    "a random rule": ("rules/a.py", "import random", "may not import random"),
    "files in a rule": ("rules/a.py", "import os.path", "may not import os"),
    "an undeclared library": ("store.py", "import numpy", "numpy is not among the dependencies"),
    "a module without a level": ("helpers.py", "", "helpers.py: has no level"),
    "an import of what has no level": ("store.py", "import cpstore.helpers", "cpstore.helpers has no level"),
    "a long module": ("store.py", "pass\n" * (MAX_LINES + 1), f"{MAX_LINES + 1} lines"),
}


@pytest.mark.parametrize(("where", "source", "said"), FAULTS.values(), ids=FAULTS)
def test_a_broken_law_is_noticed(tmp_path, where, source, said):
    lay(tmp_path, where, source)

    found = violations(tmp_path, {"attrs", "rich"})

    assert any(line.startswith(f"{PACKAGE}/{where}") and said in line for line in found), found


ALLOWED = {
    "downward": ("lineage.py", "from cpstore.rules import a\nfrom cpstore.errors import E\nimport cpstore.model.a"),
    "own package": ("model/a.py", "from cpstore.model import b\nfrom . import c\nfrom .d import D"),
    "lazily": ("inspect/a.py", "def f():\n    import rich.table"),
    "as a type": (
        "inspect/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rich.table import Table",
    ),
    "at its place": ("backends/a.py", "import sqlite3\ndef f():\n    import sqlite_utils"),
    "a framework": ("adapters/a.py", "import langgraph"),
    "the facade from above": ("adapters/a.py", "from cpstore import Binding"),
    "a short enough module": ("store.py", "pass\n" * MAX_LINES),
}


@pytest.mark.parametrize(("where", "source"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_not_reported(tmp_path, where, source):
    lay(tmp_path, where, source)

    assert violations(tmp_path, {"attrs", "rich", "sqlite_utils"}) == []


def lay(root: Path, where: str, source: str) -> None:
    """Make a package with one file of each name that the examples import, and this file."""
    names = ["lineage.py", "store.py", "__init__.py", "inspect/__init__.py", "rules/a.py", "backends/port.py"]
    names += ["model/__init__.py", "model/entry.py", "model/a.py", "model/b.py", "model/c.py", "model/d.py"]
    for name in [*names, where]:
        path = root / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source if name == where else "", "utf-8")
