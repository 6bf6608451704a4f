"""Enqueue inside the caller's own transaction: sqlite3, aiosqlite, SQLAlchemy (sync, async), Django.

Whatever the library, underneath there is a `sqlite3.Connection` that the caller has begun a transaction on. Our
statements run there, and commit or roll back with the caller's. Its commits must be as durable as ours (law 8).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import UsageError

T = TypeVar("T")
Operation = Callable[[sqlite3.Connection], T]

_FULL = 2


def on_callers_connection_sync(connection: Any, operation: Operation[T], path: str) -> T:
    """Run *operation* on the sqlite3 connection inside *connection*."""
    return _checked(_raw(connection), operation, path)


async def on_callers_connection(connection: Any, operation: Operation[T], path: str) -> T:
    """The same for async connections, which keep theirs in a thread or behind greenlets."""
    library = type(connection).__module__.partition(".")[0]
    if library == "aiosqlite":
        run = connection._execute  # its one way to run a function in the connection's own thread
        return await run(lambda: _checked(connection._conn, operation, path))  # type: ignore[no-any-return]
    run_sync = getattr(connection, "run_sync", None)  # SQLAlchemy's AsyncConnection and AsyncSession
    if library == "sqlalchemy" and run_sync is not None:
        return await run_sync(lambda sync: _in_greenlet(sync, operation, path))  # type: ignore[no-any-return]
    return on_callers_connection_sync(connection, operation, path)


def _in_greenlet(connection: Any, operation: Operation[T], path: str) -> T:
    """Inside SQLAlchemy's greenlet: the driver below is aiosqlite, whose thread must run our statements."""
    pooled = _alchemy(connection).connection
    driver = pooled.driver_connection
    if type(driver).__module__.partition(".")[0] != "aiosqlite":
        return _checked(_raw(connection), operation, path)
    from sqlalchemy.util import await_only

    _alchemy(connection).exec_driver_sql(
        "SELECT 1"
    )  # begins the transaction that SQLAlchemy believes it is in
    answer: T = await_only(driver._execute(lambda: _checked(driver._conn, operation, path)))
    return answer


def _alchemy(connection: Any) -> Any:
    """The SQLAlchemy connection behind a session."""
    return connection.connection() if hasattr(connection, "get_bind") else connection


def _raw(connection: Any) -> sqlite3.Connection:
    if isinstance(connection, sqlite3.Connection):
        return connection
    library = type(connection).__module__.partition(".")[0]
    if library == "sqlalchemy":
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


def _checked(connection: sqlite3.Connection, operation: Operation[T], path: str) -> T:
    """Refuse a connection to another file, or one whose commits may be lost; begin the transaction if need be."""
    file = connection.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    if not file or Path(file).resolve() != Path(path).resolve():
        raise UsageError(
            f"the connection is to {Path(file).name or 'memory'}, the jobs are in {Path(path).name}"
        )
    if not connection.in_transaction:
        if connection.isolation_level is None:
            raise UsageError(
                "no transaction is open on this connection; BEGIN one first, or leave out connection="
            )
        connection.execute("BEGIN IMMEDIATE")
    [(level,)] = connection.execute("PRAGMA synchronous")
    if level < _FULL:
        raise UsageError(
            "this connection commits without waiting for the disk (PRAGMA synchronous is below FULL), so a power cut"
            " could lose the job; run PRAGMA synchronous=FULL on it"
        )
    factory, connection.row_factory = connection.row_factory, None
    try:
        return operation(connection)
    finally:
        connection.row_factory = factory
