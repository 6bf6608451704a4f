"""Enqueue and publish inside the caller's own transaction: sqlite3, aiosqlite, SQLAlchemy (sync, async), Django.

All these libraries use a `sqlite3.Connection`, on which the caller has begun a transaction. Our statements run there, and commit or
roll back with the caller's. Its commits must be as durable as ours (rule 8 of docs/explanation/reliability.md).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.engine.extensions import StoreExtensions
from holdfast.errors import SchemaMismatch, UsageError
from holdfast.stores.foreign_connections import is_of, refuse_lender
from holdfast.stores.migrations import load_extensions
from holdfast.stores.sqlite.connection import translate
from holdfast.stores.sqlite.schema import applied_migrations

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

_FULL = 2


def on_callers_connection_sync(
    connection: Any, operation: Operation[T], path: str, extensions: StoreExtensions | None = None
) -> T:
    """Run *operation* on the sqlite3 connection inside *connection*.

    With *extensions*, first load those that the file has: a store that was never opened does not know them.
    """
    return _checked(_raw(connection), operation, path, extensions)


async def on_callers_connection(connection: Any, operation: Operation[T], path: str) -> T:
    """Run *operation* on the sqlite3 connection inside an async *connection*, which has it in a thread or behind greenlets."""
    refuse_lender(connection)
    if is_of(connection, "aiosqlite"):
        run = connection._execute  # the only way to run a function in the connection's own thread
        return await run(lambda: _checked(connection._conn, operation, path))  # type: ignore[no-any-return]
    run_sync = getattr(connection, "run_sync", None)  # SQLAlchemy's AsyncConnection and AsyncSession
    if is_of(connection, "sqlalchemy") and run_sync is not None:
        return await run_sync(lambda sync: _in_greenlet(sync, operation, path))  # type: ignore[no-any-return]
    return on_callers_connection_sync(connection, operation, path)


def _in_greenlet(connection: Any, operation: Operation[T], path: str) -> T:
    """Run *operation* inside SQLAlchemy's greenlet. If the driver is aiosqlite, its thread must run our statements."""
    pooled = _alchemy(connection).connection
    driver = pooled.driver_connection
    if not is_of(driver, "aiosqlite"):
        return _checked(_raw(connection), operation, path)
    from sqlalchemy.util import await_only

    _alchemy(connection).exec_driver_sql(
        "SELECT 1"
    )  # begins the transaction that SQLAlchemy believes it is in
    answer: T = await_only(driver._execute(lambda: _checked(driver._conn, operation, path)))
    return answer


def _alchemy(connection: Any) -> Any:
    """Return the SQLAlchemy connection of a session, or the connection itself."""
    return connection.connection() if hasattr(connection, "get_bind") else connection


def _raw(connection: Any) -> sqlite3.Connection:
    refuse_lender(connection)
    if isinstance(connection, sqlite3.Connection):
        return connection
    if is_of(connection, "sqlalchemy"):
        inner = _alchemy(connection)
        inner.exec_driver_sql("SELECT 1")
        raw = inner.connection.driver_connection
    else:  # Django keeps it as `connection`
        if hasattr(connection, "ensure_connection"):
            connection.ensure_connection()
        raw = getattr(connection, "connection", None)
    if not isinstance(raw, sqlite3.Connection):
        raise UsageError(
            f"cannot enqueue on a {type(connection).__module__}.{type(connection).__name__}: the database is SQLite, so pass"
            " a connection of sqlite3, aiosqlite, SQLAlchemy or Django to the same file"
        )
    return raw


def _checked(
    connection: sqlite3.Connection,
    operation: Operation[T],
    path: str,
    extensions: StoreExtensions | None = None,
) -> T:
    """Run *operation* as on our own connections: with plain rows, plain text, and all of it or nothing."""
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        applied = _check(connection, path)
        if extensions is not None:
            load_extensions(extensions, applied)
        return _all_or_nothing(connection, operation)
    except sqlite3.ProgrammingError:
        raise  # it is closed, or of another thread: the message of sqlite3 is clear
    except sqlite3.Error as error:
        raise translate(error, path) from error
    finally:
        connection.row_factory, connection.text_factory = factories


def _check(connection: sqlite3.Connection, path: str) -> dict[str, int]:
    """Refuse a connection to another file, or one whose commits may be lost. Begin a transaction if none is open.

    Return the number of the newest migration of each component.
    """
    file = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    if not file or Path(file).resolve() != Path(path).resolve():
        raise UsageError(
            f"the connection is to {Path(file).name or 'memory'}, the jobs are in {Path(path).name}; pass one to that file"
        )
    [(level,)] = connection.execute("PRAGMA synchronous")
    if level < _FULL:
        raise UsageError(
            "this connection commits without waiting for the disk (PRAGMA synchronous is below FULL), so a power cut"
            " could lose what was acknowledged; run PRAGMA synchronous=FULL on it"
        )
    if not connection.in_transaction:
        # `autocommit` came with Python 3.12; True turns commit() into nothing, so what we began would stay open.
        if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
            raise UsageError(
                "no transaction is open on this connection; BEGIN one first, or leave out connection="
            )
        connection.execute("BEGIN IMMEDIATE")
    applied = applied_migrations(connection, path)
    if not applied:
        raise SchemaMismatch(f"{Path(path).name} has no Holdfast schema; run `holdfast migrate`")
    return applied


def _all_or_nothing(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    """Run *operation* in a savepoint, so that a caller that catches our error and commits does not commit half of it."""
    connection.execute("SAVEPOINT holdfast")
    try:
        answer = operation(connection)
    except BaseException:
        if connection.in_transaction:  # SQLite undoes all of it by itself when the disk is full or broken
            connection.execute("ROLLBACK TO holdfast")
            connection.execute("RELEASE holdfast")
        raise
    connection.execute("RELEASE holdfast")
    return answer
