"""Group commit: one transaction at a time, holding whatever was waiting when it began.

Callers hand over operations. The holder of the lock runs all that wait in one transaction and commits once; every
caller is answered after the commit that contains its operation. An async caller is served by the writer's thread;
a sync caller takes the lock itself, so that a lone call costs no hop between threads. Without *threads* everything
runs inline, which is how the simulator runs it.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from holdfast.engine.ports import Threads
from holdfast.errors import StoreError, StoreUnavailable
from holdfast.stores.sqlite.checkpoints import Checkpoints
from holdfast.stores.sqlite.connection import is_disk_trouble, translate

T = TypeVar("T")
MOST_PER_COMMIT = 64
#: How often the file's lock is tried while others hold it: about half a minute.
_LOOKS, _LONGEST_NAP = 6000, 0.005


class Pending(Generic[T]):
    """One operation on its way: done when its transaction has been committed or has failed."""

    __slots__ = ("answer", "error", "future", "loop", "operation", "ready")

    def __init__(self, operation: Callable[[sqlite3.Connection], T]) -> None:
        self.operation = operation
        self.answer: T | None = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[T] | None = None
        self.ready: threading.Event | None = None


class Writer:
    def __init__(self, connection: sqlite3.Connection, path: str, threads: Threads | None) -> None:
        self._connection, self._path = connection, path
        self._checkpoints = Checkpoints(connection, path)
        self._waiting: deque[Pending[Any]] = deque()
        self._committing = threading.Lock()
        self._work: SimpleQueue[None] = SimpleQueue()  # a semaphore, but one that is not written in Python
        self._awake = False  #: the writer's thread has been told, and has not looked since
        self._closed = False
        self.failed = (
            False  #: a transaction could not be written: the disk is full or broken. Reset by a probe.
        )
        self._nap = threading.Event()  # never set: a way to wait a little
        connection.execute("PRAGMA busy_timeout = 0")
        self._join = threads.start("holdfast-sqlite-writer", self._serve) if threads else None

    async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Do *operation* in a transaction; back when it is durable."""
        if self._join is None:
            return self.run_sync(operation)
        pending = Pending(operation)
        pending.loop = asyncio.get_running_loop()
        pending.future = pending.loop.create_future()
        self._hand_over(pending)
        self._wake()
        # A caller that is cancelled does not take its write back: it was handed over, and only its answer is not wanted.
        return await pending.future

    def run_sync(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """The same from any thread, without an event loop."""
        if not self._waiting and self._committing.acquire(blocking=False):
            try:
                if not self._closed:
                    return self._commit_one(operation)
            finally:
                self._committing.release()
        pending = Pending(operation)
        pending.ready = threading.Event()
        self._hand_over(pending)
        while not pending.ready.is_set():
            with self._committing:
                self._commit_waiting()
        if pending.error is not None:
            raise pending.error
        return pending.answer  # type: ignore[return-value]

    def _hand_over(self, pending: Pending[Any]) -> None:
        if self._closed:
            raise StoreError("the store is closed; open it again to go on")
        self._waiting.append(pending)

    def _wake(self) -> None:
        """Tell the writer's thread that something waits. Of two at once both may tell it, never neither: it forgets that it
        was told first, and looks then."""
        if not self._awake:
            self._awake = True
            self._work.put(None)

    def close(self) -> None:
        """Commit what waits, end the thread, close the connection: after the last write."""
        self._closed = True
        if self._join is not None:
            self._work.put(None)
            self._join(None)
        with self._committing:
            while self._waiting:
                self._commit_waiting()
            self._connection.close()
            self._checkpoints.close()

    def _serve(self) -> None:
        while True:
            self._work.get()
            self._awake = False
            while self._waiting:
                with self._committing:
                    self._commit_waiting()
            if self._closed:
                return

    def _commit_one(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """A lone operation: nobody else waits, so nobody else has to be told."""
        try:
            self._begin()
            answer = operation(self._connection)
            self._checkpoints.commit()
            return answer
        except sqlite3.Error as error:
            self.failed = self.failed or is_disk_trouble(error)
            raise translate(error, self._path) from error
        finally:
            self._roll_back()  # does nothing after a commit

    def _commit_waiting(self) -> None:
        batch: list[Pending[Any]] = []
        while self._waiting and len(batch) < MOST_PER_COMMIT:
            batch.append(self._waiting.popleft())
        if not batch:
            return
        try:
            self._begin()
            for pending in batch:
                self._run_one(pending, first=pending is batch[0], last=pending is batch[-1])
            self._checkpoints.commit()
        except BaseException as error:
            self._roll_back()
            told = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            self.failed = self.failed or is_disk_trouble(error)
            for pending in batch:
                pending.error = told
        _answer(batch)

    def _begin(self) -> None:
        """Take the file's lock. SQLite's own waiting sleeps ever longer; locks here are held for milliseconds."""
        for look in range(_LOOKS):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error, self._path), StoreUnavailable) or look == _LOOKS - 1:
                    raise
            self._nap.wait(min(0.0003 * (1 + look % 7), _LONGEST_NAP) if look < 200 else _LONGEST_NAP)

    def _run_one(self, pending: Pending[Any], *, first: bool, last: bool) -> None:
        """An operation that raises undoes only its own writes; a database that fails takes the whole group down."""
        if not first:  # what the first has written is all there is: it needs no savepoint
            self._connection.execute("SAVEPOINT one")
        try:
            pending.answer = pending.operation(self._connection)
        except sqlite3.OperationalError:
            raise
        except BaseException as error:
            pending.error = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            self._connection.execute("ROLLBACK" if first else "ROLLBACK TO one")
            if first and last:
                self._connection.execute("BEGIN")  # so that the commit below has something to end
            elif first:
                self._begin()
        if not first:
            self._connection.execute("RELEASE one")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                return  # SQLite has rolled back by itself


def _answer(batch: list[Pending[Any]]) -> None:
    """Tell every caller; one wake-up per event loop, however many callers it has."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Pending[Any]]] = {}
    for pending in batch:
        if pending.ready is not None:
            pending.ready.set()
        elif pending.loop is not None:
            by_loop.setdefault(pending.loop, []).append(pending)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, group)
        except RuntimeError:  # that loop was closed: nobody waits there any more
            continue


def _resolve(group: list[Pending[Any]]) -> None:
    for pending in group:
        future = pending.future
        if future is None or future.done():
            continue
        if pending.error is not None:
            future.set_exception(pending.error)
            future.exception()  # asked for: a caller that went away must not make a warning
        else:
            future.set_result(pending.answer)
