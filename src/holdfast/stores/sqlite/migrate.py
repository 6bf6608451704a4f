"""Forward-only, numbered migrations, recorded in a table of our own: the file may be the user's, and so `user_version`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.errors import SchemaMismatch
from holdfast.stores.sql_files import load_migrations
from holdfast.stores.sqlite.connection import translate

MIGRATIONS = load_migrations("holdfast.stores.sqlite")
_TABLE = (
    "CREATE TABLE IF NOT EXISTS holdfast_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"
)


def migrate(connection: sqlite3.Connection, path: str) -> list[str]:
    """Run what is missing, each in a transaction that records its number first: two migrators meet at the lock."""
    done: list[str] = []
    try:
        check(connection, path)
        if _version(connection) == MIGRATIONS[-1][0]:
            return done
        # Some SQLite is built to enforce them: a table that is made anew would take along those that refer to it.
        connection.execute("PRAGMA foreign_keys = OFF")
        for number, name, text in MIGRATIONS:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if _version(connection) < number:
                    connection.execute(_TABLE)
                    connection.execute(
                        "INSERT INTO holdfast_migration (number, name) VALUES (?, ?)", (number, name)
                    )
                    for statement in _statements(text):
                        connection.execute(statement)
                    done.append(name)
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
    except sqlite3.Error as error:
        raise translate(error, path) from error
    return done


def check(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file that a newer Holdfast has migrated: its rules are not known here."""
    version, newest = _version(connection), MIGRATIONS[-1][0]
    if version > newest:
        raise SchemaMismatch(
            f"{Path(path).name} has schema {version}, this version of Holdfast knows up to {newest}; upgrade Holdfast"
        )


def _version(connection: sqlite3.Connection) -> int:
    """The number of the last migration that ran; 0 before the first."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdfast_migration'").fetchone():
        return 0
    return int(connection.execute("SELECT coalesce(max(number), 0) FROM holdfast_migration").fetchone()[0])


def _statements(text: str) -> list[str]:
    """The statements of a migration file, split where SQLite itself says that one is complete."""
    found, part = [], ""
    for line in text.splitlines():
        part += line.split("--")[0] + "\n"
        if part.strip() and sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return [*found, part] if part.strip() else found
