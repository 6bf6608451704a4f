"""The stores of a ledger: an SQLite file for workers on one machine, or PostgreSQL for several machines.

Both offer transactions that run one after another for the same name, and a clock that all users share.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from holdfast.logging import Log
from systems.common.parts import create_private

log = Log("grading.worker")

#: How long to wait for an unavailable database before the request is given back to the broker.
PATIENCE_SEC, AGAIN_SEC = 30.0, 0.5
_SCHEMA_NAME = "grading_ledger"


class LedgerUnavailable(Exception):
    """The ledger is unavailable. The transaction may have been committed or not; try again."""


class Transaction(Protocol):
    """An open transaction, and the time at its start. Statements have `?` as placeholders."""

    now: float

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any: ...


class LedgerStore(Protocol):
    """A database that holds a ledger."""

    def write(self, name: str) -> contextlib.AbstractContextManager[Transaction]:
        """Open a transaction that excludes other transactions for *name*.

        It commits unless the block raises.
        """

    def read(self) -> contextlib.AbstractContextManager[Transaction]:
        """Open a transaction for reading."""

    def close(self) -> None:
        """Close the idle connections."""


class _Transaction:
    """A transaction on a connection whose driver writes placeholders as *placeholder*."""

    def __init__(self, connection: Any, now: float, placeholder: str) -> None:
        self._connection, self.now, self._placeholder = connection, now, placeholder

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(sql.replace("?", self._placeholder), values)


class SqliteLedgerStore:
    """A ledger in an SQLite file."""

    def __init__(self, file: Path, schema: str, clock: Callable[[], float] | None) -> None:
        self._file, self._clock = file, clock or time.time
        create_private(file)
        with self._open() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(schema.format(number="REAL", strict=" STRICT"))

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[Transaction]:
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield _Transaction(connection, self._clock(), "?")
            connection.execute("COMMIT")  # if the block raises, closing rolls back

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        with self._open() as connection:
            yield _Transaction(connection, self._clock(), "?")

    def close(self) -> None:
        """Do nothing: each transaction closes its own connection."""

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction. Threads and forks cannot share one, and opening is cheap."""
        connection = sqlite3.connect(self._file, timeout=10, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
        finally:
            connection.close()


class PostgresLedgerStore:
    """A ledger in PostgreSQL. It uses the database's clock, since the clocks of the machines differ."""

    def __init__(self, url: str, schema: str, clock: Callable[[], float] | None) -> None:
        self._url, self._clock = url, clock
        self._idle: list[Any] = []
        self._owner = os.getpid()
        with self.write("schema") as transaction:
            transaction.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA_NAME}")
            for statement in schema.format(number="DOUBLE PRECISION", strict="").split(";"):
                if statement.strip():
                    transaction.execute(statement)

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[Transaction]:
        with self._transaction("SELECT pg_advisory_xact_lock(hashtextextended(%s, 7))", name) as transaction:
            yield transaction

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        with self._transaction("SELECT %s", "") as transaction:
            yield transaction

    def close(self) -> None:
        while (connection := self._idle_connection()) is not None:
            connection.close()

    @contextlib.contextmanager
    def _transaction(self, first: str, name: str) -> Iterator[Transaction]:
        import psycopg

        connection = self._begin(first, name)
        try:
            [[now]] = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
            yield _Transaction(connection, self._clock() if self._clock else now, "%s")
            connection.commit()
        except psycopg.OperationalError as error:
            connection.close()
            reason = f"the connection to the ledger's database was lost ({type(error).__name__})"
            raise LedgerUnavailable(reason) from error
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)

    def _begin(self, first: str, name: str) -> Any:
        """Return a connection in a new transaction, in which *first* has run.

        Nothing has been written yet, so this waits while the database is unavailable.
        """
        import psycopg

        until = time.monotonic() + PATIENCE_SEC
        while True:
            connection = None
            try:
                connection = self._idle_connection() or psycopg.connect(
                    self._url, connect_timeout=5, options=f"-c search_path={_SCHEMA_NAME}"
                )
                connection.execute(first, (name,))
                return connection
            except psycopg.OperationalError as error:
                if connection is not None:
                    connection.close()
                if time.monotonic() > until:
                    reason = f"the ledger's database cannot be reached ({type(error).__name__})"
                    hint = "check LEDGER, and that the database runs; requests wait"
                    log.error("ledger.unavailable", reason=reason, hint=hint)
                    raise LedgerUnavailable(reason) from error
                time.sleep(AGAIN_SEC)

    def _idle_connection(self) -> Any:
        if self._owner != os.getpid():  # a forked process must not use its parent's connections
            self._idle, self._owner = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None


def open_store(where: Path | str, schema: str, clock: Callable[[], float] | None = None) -> LedgerStore:
    """Return the store at *where*, a file or the address of a PostgreSQL, and create its tables."""
    if isinstance(where, Path):
        return SqliteLedgerStore(where, schema, clock)
    return PostgresLedgerStore(where, schema, clock)
