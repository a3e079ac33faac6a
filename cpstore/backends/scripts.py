"""The numbered migration scripts of a dialect, and which of them a database still needs."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import SchemaChangedError, SchemaTooNewError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@attrs.frozen
class Script:
    """One migration: its file name, its SQL, the SHA-256 of its bytes in hex."""

    name: str
    sql: str
    checksum: str


def load(dialect: str) -> list[Script]:
    """Return the scripts of a dialect in order."""
    # Where the package is a folder, as nearly always, its path spares two milliseconds of imports (zipfile among them).
    path = Path(import_module("cpstore.migrations").__path__[0]) / dialect
    folder = path if path.is_dir() else files("cpstore.migrations") / dialect
    found = sorted((item.name, item.read_bytes()) for item in folder.iterdir() if item.name.endswith(".sql"))
    return [Script(name, data.decode(), sha256(data).hexdigest()) for name, data in found]


def pending(known: Sequence[Script], applied: Sequence[tuple[str, str]], where: str) -> list[Script]:
    """Return the scripts that are still to be applied.

    What was applied, as (name, checksum), has to be the beginning of what is known. Raises SchemaTooNewError,
    SchemaChangedError.
    """
    for at, (name, checksum) in enumerate(applied):
        if at >= len(known):
            raise SchemaTooNewError(f"{where} was written by a newer release (it has {name}); use that release")
        if (known[at].name, known[at].checksum) != (name, checksum):
            raise SchemaChangedError(f"{where}: its migration {name} is not the {known[at].name} of this release")
    return list(known[len(applied) :])


def carry_out(run: Callable[[str, Sequence[str]], object], missing: Sequence[Script]) -> None:
    """Carry scripts out by ``run(sql, values)`` and note that, inside the transaction that is open."""
    run(
        "CREATE TABLE IF NOT EXISTS schema_script (name TEXT PRIMARY KEY, checksum TEXT NOT NULL) "
        "STRICT, WITHOUT ROWID",
        (),
    )
    for script in missing:
        for statement in _statements(script.sql):
            run(statement, ())
        run("INSERT INTO schema_script (name, checksum) VALUES (?, ?)", (script.name, script.checksum))


SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
"""Asks a database for all that stands in its schema: rows for ``differences``."""
SCHEMAS = {3: "5e1147946a12242bc490c2103c7476c7cedcc162da183e0bc38da1bec8d4b495"}
"""SHA-256 (hex) of the schema that so many scripts make: what nearly every opening finds. Others are compared whole."""
_BOOKKEEPING = ("table", "schema_script")


def differences(rows: Iterable[Sequence[Any]], applied: Sequence[Script]) -> list[str]:
    """Say what in a schema is not as the applied scripts make it, one text for each table, index, trigger or view."""
    found = _objects(rows)
    if schema_digest(found) == SCHEMAS.get(len(applied)):
        return []
    wanted = _made_by(tuple(applied))
    said = {key: "is not that of this release" for key in found.keys() & wanted.keys() if found[key] != wanted[key]}
    said |= dict.fromkeys(found.keys() - wanted.keys(), "was added")
    said |= dict.fromkeys(wanted.keys() - found.keys(), "is missing")
    return [f"{kind} {name!r} {what}" for (kind, name), what in sorted(said.items()) if (kind, name) != _BOOKKEEPING]


def _objects(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return table and SQL of all objects by kind and name, without those that SQLite makes by itself."""
    found = {}
    for kind, name, table, sql in rows:
        own = str(name).startswith("sqlite_") and (kind == "table" or (kind == "index" and sql is None))
        if not own:
            found[str(kind), str(name)] = str(table), " ".join(str(sql).split())
    return found


def schema_digest(objects: dict[tuple[str, str], tuple[str, str]]) -> str:
    """Return the SHA-256 (hex) of a schema, whatever the order of its rows."""
    return sha256(repr(sorted(objects.items())).encode()).hexdigest()


@functools.cache
def _made_by(applied: tuple[Script, ...]) -> dict[tuple[str, str], tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        carry_out(db.execute, applied)
        return _objects(db.execute(SCHEMA).fetchall())


def _statements(sql: str) -> Iterator[str]:
    statement = ""
    for line in sql.splitlines(keepends=True):
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"a script ends in the middle of a statement: {statement[:60]!r}")
