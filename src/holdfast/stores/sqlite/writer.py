"""Group commit: one transaction at a time, which contains all operations that were waiting when it began.

Callers hand over operations. The holder of the lock runs all that wait in one transaction and commits once. Each caller is
answered after the commit that contains its operation. An async caller is served by the writer's thread. A sync caller takes
the lock itself, so that a lone call costs no switch between threads. Without *threads* everything runs inline, which is how
the simulator runs it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.jobs.machine import Threads
from holdfast.stores.sqlite.connection import is_disk_trouble, translate

if sys.platform != "win32":  # which has no such locks: SQLite's own must do
    import fcntl

T = TypeVar("T")
MOST_PER_COMMIT = 64
#: How many pages the log may have before a commit moves them into the file.
PAGES = 4000
#: How often the file's lock is tried while others hold it: about half a minute.
_LOOKS, _LONGEST_NAP = 6000, 0.005


class Pending(Generic[T]):
    """An operation that waits for its transaction to be committed or to fail."""

    __slots__ = ("answer", "error", "future", "loop", "operation", "ready")

    def __init__(self, operation: Callable[[sqlite3.Connection], T]) -> None:
        self.operation = operation
        self.answer: T | None = None
        self.error: BaseException | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.future: asyncio.Future[T] | None = None
        self.ready: threading.Event | None = None


class Writer:
    """Runs operations on the connection that writes, and commits them in groups."""

    def __init__(self, connection: sqlite3.Connection, path: str, threads: Threads | None) -> None:
        self._connection, self._path = connection, path
        self._checkpoints = Checkpoints(connection, path)
        self._waiting: deque[Pending[Any]] = deque()
        self._committing = threading.Lock()
        self._work: SimpleQueue[None] = SimpleQueue()  # a semaphore, but one that is not written in Python
        self._awake = False  #: the writer's thread was woken and has not looked since
        self._closed = False
        self.failed = (
            False  #: a transaction could not be written: the disk is full or broken. Reset by a probe.
        )
        self._nap = threading.Event()  # never set: a way to wait a little
        connection.execute("PRAGMA busy_timeout = 0")
        self._join = threads.start("holdfast-sqlite-writer", self._serve) if threads else None

    async def run(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run *operation* in a transaction, and return its answer after the commit."""
        if self._join is None:
            return self.run_sync(operation)
        pending = Pending(operation)
        pending.loop = asyncio.get_running_loop()
        pending.future = pending.loop.create_future()
        self._hand_over(pending)
        self._wake()
        # Cancelling the caller does not undo its write: only the answer is dropped.
        return await pending.future

    def run_sync(self, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Do the same as `run`, from any thread and without an event loop."""
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
        """Wake the writer's thread. The thread clears the flag before it looks, so two callers at once may both wake it, but
        never neither."""
        if not self._awake:
            self._awake = True
            self._work.put(None)

    def close(self) -> None:
        """Commit what waits, end the thread and close the connection. Call it after the last write."""
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
        """Run one operation and commit it. Nothing else waits, so no other caller must be answered."""
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
            raised = translate(error, self._path) if isinstance(error, sqlite3.Error) else error
            self.failed = self.failed or is_disk_trouble(error)
            for pending in batch:
                pending.error = raised
        _answer(batch)

    def _begin(self) -> None:
        """Begin a transaction once the file's lock is free. SQLite's own wait sleeps ever longer, but locks are held for milliseconds."""
        for look in range(_LOOKS):
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not isinstance(translate(error, self._path), StoreUnavailable) or look == _LOOKS - 1:
                    raise
            self._nap.wait(min(0.0003 * (1 + look % 7), _LONGEST_NAP) if look < 200 else _LONGEST_NAP)

    def _run_one(self, pending: Pending[Any], *, first: bool, last: bool) -> None:
        """Run one operation of a group. If it raises, only its own writes are undone; an error of the database fails the whole group."""
        if not first:  # before the first nothing was written, so it needs no savepoint
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
    """Answer all callers, with one wake-up for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Pending[Any]]] = {}
    for pending in batch:
        if pending.ready is not None:
            pending.ready.set()
        elif pending.loop is not None:
            by_loop.setdefault(pending.loop, []).append(pending)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, group)
        except RuntimeError:  # that loop was closed, and its callers are gone
            continue


def _resolve(group: list[Pending[Any]]) -> None:
    for pending in group:
        future = pending.future
        if future is None or future.done():
            continue
        if pending.error is not None:
            future.set_exception(pending.error)
            future.exception()  # retrieved, because a caller that is gone would make asyncio warn
        else:
            future.set_result(pending.answer)


class Checkpoints:
    """Commits, and lets only one process at a time checkpoint the file.

    SQLite before 3.51.3 can lose committed pages, very rarely, when a checkpoint begins right after another one and a third
    connection commits meanwhile. Our connections make no checkpoints, except a writer that holds a lock on the log while it
    commits. A writer that does not get the lock commits without a checkpoint. This makes the fault rarer; only a newer SQLite
    ends it.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._log = connection, f"{path}-wal"
        self._file: int | None = None
        self._allowed = self._locked = False

    def commit(self) -> None:
        """Commit, and checkpoint when the log is long and no other writer holds the lock."""
        allowed = self._take()
        try:
            if allowed is not self._allowed:
                self._connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES if allowed else 0}")
                self._allowed = allowed
            self._connection.execute("COMMIT")
        finally:
            if self._locked:
                self._give()

    def close(self) -> None:
        """Close the file of the lock."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _take(self) -> bool:
        """Try to lock the log, and return whether this commit may checkpoint.

        SQLite holds no lock of its own on the log, so closing our file ends none. The log stays the same file as long as our
        connection is open.
        """
        if sys.platform == "win32":
            return True
        try:
            if self._file is None:
                self._file = os.open(self._log, os.O_RDONLY)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except BlockingIOError:
            return False
        except OSError:  # no file, or a file system without locks: the log must not grow forever
            return True
        return True

    def _give(self) -> None:
        self._locked = False
        if self._file is not None and sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_UN)
