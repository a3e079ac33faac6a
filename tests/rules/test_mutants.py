"""Broken copies of the rules: the table of outcomes has to notice every one."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cpstore import rules as package
from cpstore.rules import effects, forks, forms, glossary, restore, revisions, symbols  # noqa: F401  (so that load finds them)

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDER = ["symbols", "forms", "glossary", "revisions", "forks", "effects", "restore"]  # each after those that it imports
HARMLESS = {
    # Nothing new, so nothing is compared: saves time only.
    "keep_apart: delete `if not self.changed:`",
    "keep_apart: never `not self.changed`",
}
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip


def beside(name: str) -> ModuleType:
    """Run a module of this folder."""
    spec = importlib.util.spec_from_file_location(f"cpstore_rules_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


table, table_effects = beside("table"), beside("table_effects")
TABLES = {"effects": table_effects.EFFECTS, "restore": table_effects.RESTORE}
"""Module → the table that guards it; the others share one."""


def variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the ways to break one node: a name and what stands in its place."""
    text = ast.unparse(node).partition("\n")[0]
    if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield f"delete `{text}`", ast.Pass()
    if isinstance(node, ast.If):
        yield f"delete `{text}`", ast.If(ast.Constant(value=False), node.body, node.orelse)
        if not node.orelse:
            yield f"always `{text}`", ast.If(ast.Constant(value=True), node.body, [])
    if isinstance(node, ast.IfExp):
        yield f"always `{text}`", node.body
        yield f"never `{text}`", node.orelse
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            left = node.values[:at] + node.values[at + 1 :]
            yield f"drop part {at} of `{text}`", ast.BoolOp(node.op, left) if len(left) > 1 else left[0]
        yield (
            f"swap and/or in `{text}`",
            ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values),
        )
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for swap in (OPPOSITE, SHIFTED):
            if type(node.ops[0]) in swap:
                op = swap[type(node.ops[0])]()
                yield f"{type(op).__name__} in `{text}`", ast.Compare(node.left, [op], node.comparators)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield f"nothing instead of `{text}`", ast.Return(ast.Constant(value=None))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"never `{text}`", ast.Constant(value=False)


def places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, ast.AST]]:
    """Yield each node below ``tree`` with its parent and where it hangs there."""
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, ast.AST):
                yield parent, field, None, value
            elif isinstance(value, list):
                for at, child in enumerate(value):
                    if isinstance(child, ast.AST):
                        yield parent, field, at, child


def put(parent: ast.AST, field: str, at: int | None, node: ast.AST) -> None:
    if at is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[at] = node


def mutants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield a name and the code of each broken copy; the tree is whole again afterwards."""
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for parent, field, at, node in list(places(function)):
            for name, new in variants(node):
                put(parent, field, at, ast.fix_missing_locations(ast.copy_location(new, node)))
                code = compile(tree, "mutant", "exec")
                put(parent, field, at, node)
                yield f"{function.name}: {name}", code


def survives(code: dict[str, Any], laws: dict[str, list[tuple[Any, ...]]]) -> bool:
    try:
        rules = load(code)
        for row in laws.values():
            for _, check, arguments in row:
                check(rules, *arguments)
    except Exception:
        return False
    return True


def load(trees: dict[str, Any]) -> SimpleNamespace:
    """Run the rules' modules anew, from these trees."""
    made: dict[str, ModuleType] = {}
    kept = {name: (sys.modules[f"cpstore.rules.{name}"], getattr(package, name)) for name in ORDER}
    try:
        for name in ORDER:
            module = made[name] = ModuleType(f"cpstore.rules.{name}")
            module.__package__ = "cpstore.rules"
            sys.modules[module.__name__] = module
            setattr(package, name, module)
            exec(trees[name], module.__dict__)
    finally:
        for name, (module, attribute) in kept.items():
            sys.modules[f"cpstore.rules.{name}"] = module
            setattr(package, name, attribute)
    return SimpleNamespace(**made)


@pytest.fixture(name="trees", scope="module")
def _trees() -> dict[str, ast.Module]:
    folder = Path(package.__path__[0])
    return {name: ast.parse((folder / f"{name}.py").read_text()) for name in ORDER}


@pytest.mark.parametrize("name", ORDER)
def test_the_table_kills_every_mutant(name: str, trees: dict[str, ast.Module]) -> None:
    whole = {other: compile(tree, other, "exec") for other, tree in trees.items()}
    laws = TABLES.get(name, table.LAWS)
    assert survives(whole, laws)

    broken = list(mutants(trees[name]))
    alive = [text for text, code in broken if survives(whole | {name: code}, laws)]

    assert set(alive) <= HARMLESS, "\n".join(alive)
    assert len(broken) > 3
