"""Recognize the connections of other libraries, as users pass them to `connection=`, without importing the libraries."""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError

#: What lends connections: library → names of its classes, and how to get a connection from them.
_LENDERS = {
    "sqlalchemy": (
        frozenset({"Engine", "AsyncEngine", "sessionmaker", "async_sessionmaker"}),
        "`with engine.begin() as connection:` (`async with` for an async engine)",
    ),
    "asyncpg": (
        frozenset({"Pool"}),
        "`async with pool.acquire() as connection, connection.transaction():`",
    ),
    "psycopg_pool": (
        frozenset({"ConnectionPool", "AsyncConnectionPool", "NullConnectionPool", "AsyncNullConnectionPool"}),
        "`with pool.connection() as connection:` (`async with` for an async pool)",
    ),
}


def is_of(connection: Any, library: str) -> bool:
    """Return whether the class of *connection*, or a class that it extends, comes from *library*."""
    return any(base.__module__.partition(".")[0] == library for base in type(connection).__mro__)


def refuse_lender(connection: Any) -> None:
    """Raise `UsageError` if *connection* is an engine or a pool: a job is enqueued in the transaction of one connection."""
    for base in type(connection).__mro__:
        classes, way = _LENDERS.get(base.__module__.partition(".")[0], (frozenset(), ""))
        if base.__name__ in classes:
            raise UsageError(
                f"connection= is {base.__module__.partition('.')[0]}'s {base.__name__}, which has no transaction of its own;"
                f" pass the connection of {way}"
            )
