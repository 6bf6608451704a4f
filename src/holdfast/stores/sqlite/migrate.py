"""Forward-only, numbered migrations; `PRAGMA user_version` is the number of the last one that ran."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from holdfast.errors import SchemaMismatch
from holdfast.stores.sqlfiles import load_migrations
from holdfast.stores.sqlite.connection import translate

MIGRATIONS = load_migrations("holdfast.stores.sqlite")


def migrate(connection: sqlite3.Connection, path: str) -> list[str]:
    """Run what is missing, each in a transaction that records its number first: two migrators meet at the lock."""
    done: list[str] = []
    try:
        _not_anothers(connection, path)
        if _version(connection) >= MIGRATIONS[-1][0]:
            return done
        for number, name, text in MIGRATIONS:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if _version(connection) < number:
                    connection.execute(f"PRAGMA user_version = {number}")
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


def _not_anothers(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a file whose `user_version` belongs to another program: our number would be lost in it."""
    ours = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'lane'"
    if _version(connection) and not connection.execute(ours).fetchone():
        raise SchemaMismatch(
            f"{Path(path).name} is the database of another program (its PRAGMA user_version is {_version(connection)} and it has"
            " no Holdfast tables); choose another file"
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(text: str) -> list[str]:
    """The statements of a migration file, split where SQLite itself says that one is complete."""
    found, part = [], ""
    for line in text.splitlines():
        part += line.split("--")[0] + "\n"
        if part.strip() and sqlite3.complete_statement(part):
            found.append(part)
            part = ""
    return [*found, part] if part.strip() else found
