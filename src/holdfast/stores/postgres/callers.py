"""Enqueue inside the caller's own transaction: asyncpg, psycopg (sync, async), SQLAlchemy (sync, async), Django.

The plan of statements is the same; only the way to run one differs. The caller's commit must be durable (law 8).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.domain.job import Enqueued, NewJob
from holdfast.errors import UsageError
from holdfast.stores.postgres import plans
from holdfast.stores.postgres.plans import Row

Rows = Sequence[Row]
_CHECK = "SELECT current_setting('synchronous_commit'), pg_current_xact_id_if_assigned() IS NOT NULL"


def _library(connection: Any) -> str:
    return type(connection).__module__.partition(".")[0]


def enqueue_on_sync(connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """On a sync connection: psycopg's, SQLAlchemy's or Django's."""
    run = _sync_runner(connection)
    _durable(run(_CHECK, ()))
    plan = plans.enqueue(jobs)
    try:
        sql, parameters = next(plan)
        while True:
            sql, parameters = plan.send(run(sql, parameters))
    except StopIteration as done:
        answers: list[Enqueued] = done.value
        return answers


async def enqueue_on(connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """On an async connection; a sync one is served too."""
    run_sync = getattr(connection, "run_sync", None)
    if _library(connection) == "sqlalchemy" and run_sync is not None:
        answers: list[Enqueued] = await run_sync(lambda sync: enqueue_on_sync(sync, jobs))
        return answers
    run = _async_runner(connection)
    if run is None:
        return enqueue_on_sync(connection, jobs)
    _durable(await run(_CHECK, ()))
    plan = plans.enqueue(jobs)
    try:
        sql, parameters = next(plan)
        while True:
            sql, parameters = plan.send(await run(sql, parameters))
    except StopIteration as done:
        found: list[Enqueued] = done.value
        return found


def _durable(rows: Rows) -> None:
    if rows[0][0] == "off":
        raise UsageError(
            "this connection commits without waiting for the disk (synchronous_commit=off), so a crash could lose the job;"
            " run SET LOCAL synchronous_commit = on in the transaction"
        )


def _async_runner(connection: Any) -> Callable[[str, tuple[Any, ...]], Awaitable[Rows]] | None:
    library = _library(connection)
    if library == "asyncpg":
        if not connection.is_in_transaction():
            raise UsageError(
                "no transaction is open on this connection; use `async with connection.transaction():`"
            )

        async def fetch(sql: str, parameters: tuple[Any, ...]) -> Rows:
            rows: Rows = await connection.fetch(sql, *parameters)
            return rows

        return fetch
    if library == "psycopg" and type(connection).__name__.startswith("Async"):
        import psycopg

        async def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
            cursor = await psycopg.AsyncRawCursor(connection).execute(sql.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

        return execute
    return None


def _sync_runner(connection: Any) -> Callable[[str, tuple[Any, ...]], Rows]:
    library = _library(connection)
    if library == "sqlalchemy":
        alchemy = connection.connection() if hasattr(connection, "get_bind") else connection
        alchemy.exec_driver_sql("SELECT 1")  # begins the transaction that SQLAlchemy believes it is in
        driver = alchemy.connection.driver_connection
        if _library(driver) in ("asyncpg", "psycopg") and (
            _library(driver) == "asyncpg" or type(driver).__name__.startswith("Async")
        ):
            return _through_greenlet(driver)
        connection = driver
    elif library == "django" or hasattr(connection, "ensure_connection"):
        connection.ensure_connection()
        if connection.get_autocommit():
            raise UsageError("no transaction is open on this connection; use `with transaction.atomic():`")
        connection = connection.connection
    if _library(connection) != "psycopg":
        raise UsageError(
            f"cannot enqueue on a {type(connection).__module__}.{type(connection).__name__}: the database is PostgreSQL, so pass a"
            " connection of psycopg 3, asyncpg, SQLAlchemy over one of them, or Django"
        )
    import psycopg

    def execute(sql: str, parameters: tuple[Any, ...]) -> Rows:
        cursor = psycopg.RawCursor(connection).execute(sql.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    return execute


def _through_greenlet(driver: Any) -> Callable[[str, tuple[Any, ...]], Rows]:
    """Inside SQLAlchemy's greenlet: its async driver is awaited from sync code."""
    from sqlalchemy.util import await_only

    run = _async_runner(driver)
    assert run is not None
    return lambda sql, parameters: await_only(run(sql, parameters))
