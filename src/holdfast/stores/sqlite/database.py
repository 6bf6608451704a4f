"""The database file, as all parts of the store use it: a connection that writes, one that reads, and one that polls."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.engine.extensions import StoreExtensions
from holdfast.engine.ports import Hook
from holdfast.errors import LeaseLost, StoreError
from holdfast.jobs.job import Lease
from holdfast.jobs.machine import Clock, Threads
from holdfast.jobs.moves import Kind
from holdfast.stores.sqlite import outcomes
from holdfast.stores.sqlite.connection import connect, translate
from holdfast.stores.sqlite.lanes import LaneNumbers
from holdfast.stores.sqlite.migrate import migrate
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.notifier import Notifier
from holdfast.stores.sqlite.writer import Writer

T = TypeVar("T")

_NOT_OPEN = "the store is not open; use `async with app:`"


class Database:
    """One file. *threads* None runs every write inline, in the caller's own thread (the simulator does)."""

    def __init__(self, path: str, clock: Clock, threads: Threads | None) -> None:
        self.path, self.clock, self.threads = path, clock, threads
        self.lanes = LaneNumbers()
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self.extensions = StoreExtensions()
        self.writer: Writer | None = None
        self.reader: sqlite3.Connection | None = None
        self._notifier: Notifier | None = None
        self._opening = threading.Lock()

    def open(self) -> None:
        """Open the connections and start the writer, if they are not open. Any thread may call this."""
        if self.writer is None:
            with self._opening:
                if self.writer is None:
                    self._open()

    def _open(self) -> None:
        connection = connect(self.path)
        try:
            migrate(connection, self.path, self.extensions)
            self.lanes.remember(connection)
        except BaseException:
            connection.close()
            raise
        self.reader = connect(self.path)
        self.reader.row_factory = sqlite3.Row
        self._notifier = Notifier(connect(self.path), self.lanes, self.clock)
        self.writer = Writer(connection, self.path, self.threads)

    def close(self) -> None:
        writer, notifier, reader = self.writer, self._notifier, self.reader
        self.writer = self._notifier = self.reader = None
        if writer is not None and notifier is not None and reader is not None:
            reader.close()
            notifier.close()
            writer.close()

    @property
    def notifier(self) -> Notifier:
        if self._notifier is None:
            raise StoreError(_NOT_OPEN)
        return self._notifier

    def listen(self, question: Callable[[Notifier], T]) -> T:
        """Return what the notifier answers. Raise `StoreUnavailable` when it cannot read the file."""
        try:
            return question(self.notifier)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def poll_quickly(self) -> None:
        """Let callers that wait poll again soon."""
        if self._notifier is not None:
            self._notifier.poll_quickly()

    # -- reading ----------------------------------------------------------------------------------------------------
    def read(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query on the connection for reading, in the caller's thread because it is short, and outside of a transaction."""
        if self.reader is None:
            raise StoreError(_NOT_OPEN)
        try:
            return look(self.reader)
        except sqlite3.Error as error:
            raise translate(error, self.path) from error

    def rows(self, sql: str, *parameters: Any) -> list[sqlite3.Row]:
        return self.read(lambda reader: reader.execute(sql, parameters).fetchall())

    def peek(self, operation: Callable[[Move], T]) -> T:
        """Run an operation that only reads: it takes no lock and waits for no writer."""
        return self.read(lambda reader: operation(Move(reader, self.clock, self.lanes)))

    # -- moves ------------------------------------------------------------------------------------------------------
    def move(self, operation: Callable[[Move], T]) -> Callable[[sqlite3.Connection], T]:
        """Return what runs *operation*, and then the hooks, on a connection that is in a transaction."""

        def run(connection: sqlite3.Connection) -> T:
            move = Move(connection, self.clock, self.lanes, self.hooks)
            answer = operation(move)
            move.call_hooks()
            return answer

        return run

    async def write(self, operation: Callable[[Move], T]) -> T:
        """Run *operation* in a transaction, and return after the commit."""
        if self.writer is None:
            raise StoreError(_NOT_OPEN)
        return await self.writer.run(self.move(operation))

    def write_sync(self, operation: Callable[[Move], T]) -> T:
        """Do the same as `write`, from any thread and without an event loop. The file is opened if it is not open."""
        self.open()
        assert self.writer is not None
        return self.writer.run_sync(self.move(operation))

    async def write_work(self, operation: Callable[[Move], T]) -> T:
        """Run a write that may queue jobs, and wake the callers in this process that wait for work."""
        answer = await self.write(operation)
        if self._notifier is not None:
            self._notifier.notify()
        return answer

    async def write_fenced(self, lease: Lease, operation: Callable[[Move], None]) -> None:
        """Write under *lease*. Raise `LeaseLost`, and record the refusal, if the lease was reclaimed."""
        try:
            await self.write(operation)
        except LeaseLost:
            await self.write(lambda move: outcomes.refuse_once(move, lease))
            raise
