"""A system's own tables in the jobs' database: run one statement, alone or in a transaction of the engine.

The same SQL serves SQLite and PostgreSQL. For SQLite `$1` becomes `?1`; the column types mean something in
both.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import anyio.to_thread

from holdfast import UsageError
from systems.common.parts import create_private

Row = tuple[Any, ...]
#: How long a statement waits for another writer of the file.
_BUSY_SEC = 30.0
_LOCK = 7_226_301_122  # arbitrary, but the same in every process that creates the tables


class Database(Protocol):
    async def prepare(self, statements: Sequence[str]) -> None:
        """Run the statements that create the tables. Other processes may do the same at the same time."""

    async def run(self, sql: str, *values: Any) -> list[Row]:
        """Run one statement, commit it, and return its rows."""

    async def run_in(self, connection: Any, sql: str, *values: Any) -> list[Row]:
        """Run one statement in a transaction of the engine and return its rows."""

    async def now(self) -> float:
        """Return the database's time, in seconds since the epoch."""

    def written(self, sql: str) -> str:
        """Return *sql* with the placeholders of this database."""

    async def close(self) -> None: ...


class SqliteDatabase:
    """Tables in an SQLite file. Each `run` opens its own connection."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def prepare(self, statements: Sequence[str]) -> None:
        create_private(Path(self._path))
        for statement in statements:
            await self.run(statement)

    async def run(self, sql: str, *values: Any) -> list[Row]:
        return await anyio.to_thread.run_sync(self._run, self.written(sql), values)

    def _run(self, sql: str, values: tuple[Any, ...]) -> list[Row]:
        with closing(sqlite3.connect(self._path, timeout=_BUSY_SEC, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            return connection.execute(sql, values).fetchall()

    async def run_in(self, connection: Any, sql: str, *values: Any) -> list[Row]:
        rows: list[Row] = connection.execute(self.written(sql), values).fetchall()
        return rows

    async def now(self) -> float:
        return time.time()  # the file is on this machine

    def written(self, sql: str) -> str:
        return re.sub(r"\$(\d+)", r"?\1", sql)

    async def close(self) -> None:
        return None


class PostgresDatabase:
    """Tables in PostgreSQL, through a small pool that opens with the first statement."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        options = parse_qsl(parts.query)
        # `prepare` is an option of the engine; the driver would send it to the server.
        others = [option for option in options if option[0] != "prepare"]
        self._url = urlunsplit(parts._replace(query=urlencode(others)))
        self._statement_cache = 0 if ("prepare", "off") in options else 100
        self._pool: Any = None
        self._opening = asyncio.Lock()

    async def _open(self) -> Any:
        import asyncpg

        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._url,
                    min_size=0,
                    max_size=4,
                    timeout=10,
                    command_timeout=30,
                    statement_cache_size=self._statement_cache,
                )
        return self._pool

    async def prepare(self, statements: Sequence[str]) -> None:
        pool = await self._open()
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
            for statement in statements:
                await connection.execute(statement)

    async def run(self, sql: str, *values: Any) -> list[Row]:
        pool = await self._open()
        return [tuple(row) for row in await pool.fetch(sql, *values)]

    async def run_in(self, connection: Any, sql: str, *values: Any) -> list[Row]:
        return [tuple(row) for row in await connection.fetch(sql, *values)]

    async def now(self) -> float:
        [(now,)] = await self.run("SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)")
        return float(now)

    def written(self, sql: str) -> str:
        return sql

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()


def database_of(url: str) -> Database:
    """Return the database of *url*. Raise `UsageError` unless it is `sqlite:///…` or `postgresql://…`."""
    if url.startswith("sqlite:///"):
        return SqliteDatabase(url.removeprefix("sqlite:///").partition("?")[0])
    if url.startswith(("postgres://", "postgresql://")):
        return PostgresDatabase(url)
    raise UsageError("DATABASE_URL is neither sqlite:/// nor postgresql://; use one of them")
