"""A transaction of the user's own, in each library that Holdfast can enqueue through."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.apps import Database

_aliases = count(1)
NOTE = "INSERT INTO note VALUES ('mine')"


@dataclass
class Caller:
    """An open transaction: what is passed as `connection=`, and the user's own ways with it."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]


@dataclass
class AsyncCaller:
    connection: Any
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]


# -- sync -----------------------------------------------------------------------------------------------------------
@contextmanager
def by_sqlite3(db: Database) -> Iterator[Caller]:
    with closing(sqlite3.connect(db.path)) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@contextmanager
def by_psycopg(db: Database) -> Iterator[Caller]:
    with closing(psycopg.connect(db.url)) as connection:
        yield Caller(
            connection,
            lambda sql: connection.execute(sql.encode()),
            connection.commit,
            connection.rollback,
        )


def alchemy_url(db: Database, driver: str) -> str:
    if db.is_postgres:
        return db.url.replace("postgresql://", f"postgresql+{driver}://")
    return f"sqlite+{driver}:///{db.path}"


@contextmanager
def _alchemy_engine(db: Database) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(alchemy_url(db, "psycopg" if db.is_postgres else "pysqlite"))
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def by_alchemy_connection(db: Database) -> Iterator[Caller]:
    with _alchemy_engine(db) as engine, engine.connect() as connection:
        yield Caller(
            connection,
            lambda sql: connection.execute(sqlalchemy.text(sql)),
            connection.commit,
            connection.rollback,
        )


@contextmanager
def by_alchemy_session(db: Database) -> Iterator[Caller]:
    with _alchemy_engine(db) as engine, Session(engine) as session:
        yield Caller(
            session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback
        )


@contextmanager
def by_django(db: Database) -> Iterator[Caller]:
    """`with transaction.atomic():` left in the ordinary way or by an exception."""
    import django  # type: ignore[import-untyped]
    from django.conf import settings  # type: ignore[import-untyped]
    from django.db import connections, transaction  # type: ignore[import-untyped]

    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    alias = f"jobs{next(_aliases)}"
    connections.databases[alias] = connections.configure_settings({"default": django_settings(db)})["default"]
    connection = connections[alias]
    atomic = transaction.atomic(using=alias)
    atomic.__enter__()

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    def rollback() -> None:
        error = RuntimeError("the view failed")
        atomic.__exit__(RuntimeError, error, None)

    try:
        yield Caller(connection, execute, lambda: atomic.__exit__(None, None, None), rollback)
    finally:
        connection.close()
        del connections[alias], connections.databases[alias]


def django_settings(db: Database) -> dict[str, Any]:
    if not db.is_postgres:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": db.path}
    known = psycopg.conninfo.conninfo_to_dict(db.url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": known["dbname"],
        "USER": known.get("user", ""),
        "PASSWORD": known.get("password", ""),
        "HOST": known["host"],
        "PORT": known["port"],
    }


# -- async ----------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def by_aiosqlite(db: Database) -> AsyncIterator[AsyncCaller]:
    async with aiosqlite.connect(db.path) as connection:
        yield AsyncCaller(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def by_async_psycopg(db: Database) -> AsyncIterator[AsyncCaller]:
    connection = await psycopg.AsyncConnection.connect(db.url)
    try:
        yield AsyncCaller(
            connection,
            lambda sql: connection.execute(sql.encode()),
            connection.commit,
            connection.rollback,
        )
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg(db: Database) -> AsyncIterator[AsyncCaller]:
    connection = await asyncpg.connect(db.url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield AsyncCaller(connection, connection.execute, transaction.commit, transaction.rollback)
    finally:
        await connection.close()


@asynccontextmanager
async def by_asyncpg_pool(db: Database) -> AsyncIterator[AsyncCaller]:
    async with asyncpg.create_pool(db.url, min_size=1, max_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield AsyncCaller(connection, connection.execute, transaction.commit, transaction.rollback)


def by_async_alchemy(driver: str, *, session: bool) -> Callable[[Database], Any]:
    @asynccontextmanager
    async def caller(db: Database) -> AsyncIterator[AsyncCaller]:
        engine = create_async_engine(alchemy_url(db, driver))
        try:
            async with AsyncSession(engine) if session else engine.connect() as connection:
                yield AsyncCaller(
                    connection,
                    lambda sql: connection.execute(sqlalchemy.text(sql)),
                    connection.commit,
                    connection.rollback,
                )
        finally:
            await engine.dispose()

    return caller


#: (store, caller) by name.
SYNC: dict[str, tuple[str, Callable[[Database], Any]]] = {
    "sqlite3": ("sqlite", by_sqlite3),
    "SQLAlchemy Connection on SQLite": ("sqlite", by_alchemy_connection),
    "SQLAlchemy Session on SQLite": ("sqlite", by_alchemy_session),
    "Django on SQLite": ("sqlite", by_django),
    "psycopg": ("postgres", by_psycopg),
    "SQLAlchemy Connection on psycopg": ("postgres", by_alchemy_connection),
    "SQLAlchemy Session on psycopg": ("postgres", by_alchemy_session),
    "Django on psycopg": ("postgres", by_django),
}
ASYNC: dict[str, tuple[str, Callable[[Database], Any]]] = {
    "aiosqlite": ("sqlite", by_aiosqlite),
    "SQLAlchemy AsyncConnection on aiosqlite": ("sqlite", by_async_alchemy("aiosqlite", session=False)),
    "SQLAlchemy AsyncSession on aiosqlite": ("sqlite", by_async_alchemy("aiosqlite", session=True)),
    "async psycopg": ("postgres", by_async_psycopg),
    "asyncpg": ("postgres", by_asyncpg),
    "asyncpg pool": ("postgres", by_asyncpg_pool),
    "SQLAlchemy AsyncConnection on asyncpg": ("postgres", by_async_alchemy("asyncpg", session=False)),
    "SQLAlchemy AsyncSession on asyncpg": ("postgres", by_async_alchemy("asyncpg", session=True)),
    "SQLAlchemy AsyncConnection on psycopg": ("postgres", by_async_alchemy("psycopg", session=False)),
    "SQLAlchemy AsyncSession on psycopg": ("postgres", by_async_alchemy("psycopg", session=True)),
}
