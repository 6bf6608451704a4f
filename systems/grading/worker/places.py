"""Where a ledger lies: a file of SQLite for the workers of one machine, or PostgreSQL for those of several.

Both give the same: transactions that are one after another for one name, and a clock that all who share the place go by.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from holdfast.logs import Log
from systems.common.parts import create_private

log = Log("grading.worker")

#: How long a database that is away is waited for before a piece of work is given back.
PATIENCE_SEC, AGAIN_SEC = 30.0, 0.5
_SCHEMA_NAME = "grading_ledger"


class LedgerAway(Exception):
    """The ledger cannot be asked now. What was under way may have been written or not: ask again."""


class Book(Protocol):
    """A ledger in hand, for one piece of work."""

    now: float

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any: ...


class Place(Protocol):
    def write(self, name: str) -> contextlib.AbstractContextManager[Book]:
        """A transaction; nobody else has one for *name* meanwhile."""

    def read(self) -> contextlib.AbstractContextManager[Book]: ...
    def close(self) -> None: ...


class _Page:
    """Statements are written with `?`."""

    def __init__(self, connection: Any, now: float, mark: str) -> None:
        self._connection, self.now, self._mark = connection, now, mark

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(sql.replace("?", self._mark), values)


class FilePlace:
    def __init__(self, file: Path, schema: str, clock: Callable[[], float] | None) -> None:
        self._file, self._clock = file, clock or time.time
        create_private(file)
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(schema.format(number="REAL", strict=" STRICT"))

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[Book]:
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield _Page(connection, self._clock(), "?")
            connection.execute("COMMIT")  # without it, closing rolls back

    @contextlib.contextmanager
    def read(self) -> Iterator[Book]:
        with self._open() as connection:
            yield _Page(connection, self._clock(), "?")

    def close(self) -> None:
        """There is nothing open between two pieces of work."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one piece of work: threads and forks cannot share one, and opening costs little."""
        connection = sqlite3.connect(self._file, timeout=10, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()


class PostgresPlace:
    """Goes by the database's clock: those of the machines differ."""

    def __init__(self, url: str, schema: str, clock: Callable[[], float] | None) -> None:
        self._url, self._clock = url, clock
        self._idle: list[Any] = []
        self._owner = os.getpid()
        with self.write("schema") as book:
            book.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA_NAME}")
            for statement in schema.format(number="DOUBLE PRECISION", strict="").split(";"):
                if statement.strip():
                    book.execute(statement)

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[Book]:
        with self._transaction("SELECT pg_advisory_xact_lock(hashtextextended(%s, 7))", name) as book:
            yield book

    @contextlib.contextmanager
    def read(self) -> Iterator[Book]:
        with self._transaction("SELECT %s", "") as book:
            yield book

    def close(self) -> None:
        while (connection := self._taken()) is not None:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self, first: str, name: str) -> Iterator[Book]:
        import psycopg

        connection = self._begun(first, name)
        try:
            [[now]] = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
            yield _Page(connection, self._clock() if self._clock else now, "%s")
            connection.commit()
        except psycopg.OperationalError as error:
            connection.close()
            raise LedgerAway(f"the ledger's database went away ({type(error).__name__})") from error
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _begun(self, first: str, name: str) -> Any:
        """A connection in a transaction. Nothing was written yet: while the database is away it is tried again."""
        import psycopg

        until = time.monotonic() + PATIENCE_SEC
        while True:
            connection = None
            try:
                connection = self._taken() or psycopg.connect(
                    self._url, connect_timeout=5, options=f"-c search_path={_SCHEMA_NAME}"
                )
                connection.execute(first, (name,))
                return connection
            except psycopg.OperationalError as error:
                if connection is not None:
                    connection.close()
                if time.monotonic() > until:
                    why = f"the ledger's database cannot be reached ({type(error).__name__})"
                    log.error(
                        "ledger.unavailable", reason=why, hint="check LEDGER, and that it runs; requests wait"
                    )
                    raise LedgerAway(why) from error
                time.sleep(AGAIN_SEC)

    def _taken(self) -> Any:
        if self._owner != os.getpid():  # a fork must not speak over its parent's connections
            self._idle, self._owner = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None


def place_of(where: Path | str, schema: str, clock: Callable[[], float] | None = None) -> Place:
    if isinstance(where, Path):
        return FilePlace(where, schema, clock)
    return PostgresPlace(where, schema, clock)
