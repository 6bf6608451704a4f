"""Run the migrations of SQLite. `holdfast_migration` records them, and two migrators meet at the lock of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from holdfast.engine.extensions import StoreExtensions
from holdfast.stores.migrations import (
    SCHEMA_FAMILY,
    Migration,
    core_migrations,
    missing,
    refuse_newer,
    with_extensions,
)
from holdfast.stores.sqlite.connection import translate
from holdfast.stores.sqlite.schema import applied_migrations

#: The migrations of the core.
MIGRATIONS: Sequence[Migration] = core_migrations("sqlite")
_TABLE = """CREATE TABLE IF NOT EXISTS holdfast_migration (
    component TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, family INTEGER NOT NULL,
    PRIMARY KEY (component, number)) STRICT, WITHOUT ROWID"""


def migrate(
    connection: sqlite3.Connection, path: str, extensions: StoreExtensions | None = None
) -> list[str]:
    """Run the missing migrations of the core and of *extensions*, each in a transaction of its own, and return the names of those that ran here.

    Each migration records its number before it changes anything. A file of another family is refused unchanged.
    """
    try:
        applied = applied_migrations(connection, path)
        migrations = with_extensions(MIGRATIONS, extensions or StoreExtensions(), "sqlite", applied)
        refuse_newer(migrations, applied, Path(path).name)
        needed = missing(migrations, applied)
        if needed:
            # Some builds of SQLite enforce foreign keys. Dropping a table to remake it would delete the rows that refer to it.
            # The setting cannot be changed inside a transaction.
            connection.execute("PRAGMA foreign_keys = OFF")
        return [one.name for one in needed if _run(connection, one, path)]
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _run(connection: sqlite3.Connection, migration: Migration, path: str) -> bool:
    """Run *migration*, unless another process has done so meanwhile. Return whether it ran."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        ran = bool(missing([migration], applied_migrations(connection, path)))
        if ran:
            connection.execute(_TABLE)
            connection.execute(
                "INSERT INTO holdfast_migration (component, number, name, family) VALUES (?, ?, ?, ?)",
                (migration.component, migration.number, migration.name, SCHEMA_FAMILY),
            )
            for statement in _statements(migration.text):
                connection.execute(statement)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return ran


def _statements(text: str) -> list[str]:
    """Split a migration file into statements, where SQLite says that one is complete."""
    found, part = [], ""
    for line in text.splitlines():
        part += line.split("--")[0] + "\n"
        if part.strip() and sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return [*found, part] if part.strip() else found
