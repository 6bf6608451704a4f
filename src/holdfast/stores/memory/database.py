"""A database as every part of the memory store uses it: transactions over Python objects and over SQLite in RAM.

Jobs are objects. Messages, holds, breakers, limits, the small tables of the engine and those of extensions are in SQLite, where the
code of the SQLite store reads and writes them.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.ports import Hook
from holdfast.jobs.moves import Kind
from holdfast.stores.hooks import run_to_end
from holdfast.stores.memory.tables import Tables
from holdfast.stores.memory.transaction import MemoryTransaction
from holdfast.stores.migrations import core_migrations, with_extensions
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.move import Move

T = TypeVar("T")

#: The migrations of the core whose tables are in SQLite.
_TOPICS = {"lanes", "limits", "positions", "api", "outbox", "policies"}


class Notifier:
    """Wakes the callers that wait for a write."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def wait(self, happened: Callable[[], bool], timeout: float) -> None:
        """Return when *happened* returns True, which is asked again after each write, or after *timeout* seconds."""
        try:
            # `wait_for` of Python 3.11 may lose a cancellation that comes together with the event.
            async with asyncio.timeout(timeout):
                while not happened():
                    await self._event.wait()
        except TimeoutError:
            return

    async def wait_for_write(self, timeout: float) -> None:
        """Return after the next write, or after *timeout* seconds."""
        event = self._event
        await self.wait(event.is_set, timeout)


class RamMove(Move):
    """An operation on the SQLite database in RAM. Its events are among the objects."""

    def __init__(self, connection: sqlite3.Connection, tables: Tables) -> None:
        super().__init__(connection, tables.clock, LaneNumbers())
        self._tables = tables

    def record_no_job(self, kind: Kind, meta: Mapping[str, Any]) -> None:
        self._tables.record_no_job(kind, meta)


class Database:
    """Runs transactions. None awaits anything but SQL, so each runs to its end before the next one begins."""

    def __init__(self, tables: Tables) -> None:
        self.tables, self.notifier = tables, Notifier()
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.extensions = StoreExtensions()
        self._connection: sqlite3.Connection | None = None
        self._moved = False  #: since callers were notified
        self._writing = False
        self._lock = threading.RLock()  #: SQLite lets other threads run in the middle of a transaction

    # -- transactions -----------------------------------------------------------------------------------------------
    def commit(self, make: Callable[[], T]) -> T:
        """Run one transaction, and wake the callers that wait if a job has moved."""
        answer = self.commit_in_thread(make)
        if self._moved:
            self._moved = False
            self.notifier.notify()
        return answer

    def commit_in_thread(self, make: Callable[[], T]) -> T:
        """Run one transaction: the moves, then the hooks that observe them. If any of them raises, nothing has happened.

        Any thread may call this. The callers that wait are woken by the next `commit`, which the event loop makes.
        """
        with self._lock:
            return self._commit_alone(make)

    def _commit_alone(self, make: Callable[[], T]) -> T:
        tables, recorded = self.tables, len(self.tables.events)
        if self.hooks or self.extensions.purged:  # without them nothing but SQL and events is undone
            tables.save()
        self._writing = True
        try:
            answer = make()
            for kinds, hook in self.hooks:
                observed = [moved for moved in tables.notices if moved.kind in kinds]
                if observed:
                    run_to_end(hook(self.transaction(), observed))
            self._end("COMMIT")
        except BaseException:
            self._end("ROLLBACK")
            del tables.events[recorded:]
            tables.restore()
            raise
        finally:
            self._writing = False
            moved, tables.notices = bool(tables.notices), []
            tables.forget_saved()
        self._moved |= moved
        return answer

    def look(self, read: Callable[[], T]) -> T:
        """Run *read* and keep nothing of what it wrote; in a transaction it is a part of it."""
        with self._lock:
            if self._writing:
                return read()
            try:
                return read()
            finally:
                self._end("ROLLBACK")

    def transaction(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    # -- operations of the SQLite store -----------------------------------------------------------------------------
    async def write(self, operation: Callable[[Move], T]) -> T:
        return self.commit(lambda: operation(self.move()))

    async def write_work(self, operation: Callable[[Move], T]) -> T:
        """Run a write that may be what others wait for, and wake them."""
        answer = self.commit_in_thread(lambda: operation(self.move()))
        self.notifier.notify()
        return answer

    def write_sync(self, operation: Callable[[Move], T]) -> T:
        """Run a write in any thread. The event loop's callers are woken by its own next write."""
        answer = self.commit_in_thread(lambda: operation(self.move()))
        self._moved = True
        return answer

    def peek(self, operation: Callable[[Move], T]) -> T:
        """Run an operation that only reads, so that it needs no transaction."""
        with self._lock:
            return operation(RamMove(self._connection or self._open(), self.tables))

    def move(self) -> RamMove:
        return RamMove(self.connection, self.tables)

    # -- SQL --------------------------------------------------------------------------------------------------------
    @property
    def is_open(self) -> bool:
        """Return whether SQLite was ever used: if not, all its tables are empty."""
        return self._connection is not None

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the connection in a transaction. It is opened at its first use."""
        connection = self._connection or self._open()
        if not connection.in_transaction:
            connection.execute("BEGIN")
        return connection

    def execute(self, sql: str, parameters: Sequence[Any]) -> list[sqlite3.Row]:
        cursor = self.connection.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, parameters).fetchall()

    def _end(self, statement: str) -> None:
        if self._connection is not None and self._connection.in_transaction:
            self._connection.execute(statement)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.executescript(_schema())
        for migration in with_extensions((), self.extensions, "sqlite"):
            connection.executescript(migration.text)
        weakref.finalize(self, connection.close)
        self._connection = connection
        return connection


@cache
def _schema() -> str:
    return "\n".join(one.text for one in core_migrations("sqlite") if one.topic in _TOPICS)
