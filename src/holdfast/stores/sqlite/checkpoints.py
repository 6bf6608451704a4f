"""Checkpoints by one process at a time.

SQLite before 3.51.3 can lose committed pages when a checkpoint begins right after another one and a third connection commits
meanwhile. It is very rare. Our connections make no checkpoints, except a writer that holds a lock while it commits; a writer
that does not get the lock commits without one. This makes the fault rarer; only a newer SQLite ends it.
"""

from __future__ import annotations

import os
import sqlite3
import sys

if sys.platform != "win32":  # which has no such locks: SQLite's own have to do
    import fcntl

#: How many pages the log may have before a commit moves them into the file.
PAGES = 4000


class Checkpoints:
    """The lock of one file, and the connection that may checkpoint while it is held."""

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection, self._log = connection, f"{path}-wal"
        self._file: int | None = None
        self._allowed = self._locked = False

    def commit(self) -> None:
        """Commit, and checkpoint when the log is long, unless another writer of this file is at it."""
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
        """Lock the log, on which SQLite holds no lock of its own that closing our file could end. It stays the same file
        as long as our connection is open."""
        if sys.platform == "win32":
            return True
        try:
            if self._file is None:
                self._file = os.open(self._log, os.O_RDONLY)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._locked = True
        except BlockingIOError:
            return False
        except OSError:  # no file, or a file system without locks: the log must not grow for ever
            return True
        return True

    def _give(self) -> None:
        self._locked = False
        if self._file is not None and sys.platform != "win32":
            fcntl.flock(self._file, fcntl.LOCK_UN)
