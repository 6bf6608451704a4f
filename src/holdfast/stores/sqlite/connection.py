"""Connections to the database file, with settings that make a commit durable: it is fsynced."""

from __future__ import annotations

import codecs
import contextlib
import os
import sqlite3
import threading
import weakref
from functools import partial
from pathlib import Path

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.stores.sqlite.schema import applied_migrations

BUSY_SECONDS = 5.0

#: Words in the errors of SQLite after which a later try may succeed.
_PASSING = ("locked", "busy")


class Connection(sqlite3.Connection):
    """A connection that is registered while it is open, so that a forked process knows the files that it must not open."""

    file: str | None = None  #: its real path, if it has a file

    def close(self) -> None:
        _open.discard(self)
        super().close()


_open: weakref.WeakSet[Connection] = weakref.WeakSet()
#: The connections that this process was forked with. They stay here, because closing them would touch the parent's files.
_inherited: list[Connection] = []


def _inherit() -> None:
    _inherited.extend(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_inherit)


def connect(path: str) -> sqlite3.Connection:
    """Return a connection in WAL mode with `synchronous=FULL`, in autocommit: transactions are begun by name.

    Raises `StoreError` in a process that was forked while the file was open. SQLite counts the locks of a file for the whole
    process and the child inherits the count, but not the locks. The parent would delete the WAL that the child writes to.
    """
    file = os.path.realpath(path) if _is_file(path) else None
    if file is not None and any(connection.file == file for connection in _inherited):
        raise StoreError(
            f"{Path(path).name} was open when this process was forked, and SQLite would lose what is written here;"
            " use the app first after the fork, or close it before: app.sync.close() or await app.close()"
        )
    try:
        _create(path)
        connection = sqlite3.connect(
            path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, factory=Connection
        )
        connection.file = file
        _open.add(connection)
        try:
            _set_up(connection, path)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate(error, path) from error
    return connection


def _set_up(connection: sqlite3.Connection, path: str) -> None:
    connection.text_factory = _text
    _use_wal(connection, path)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `writer.Checkpoints`


def _is_file(path: str) -> bool:
    return not path.startswith((":", "file:"))


def _create(path: str) -> None:
    """Create a missing file for this user only. SQLite gives its WAL and index the same mode. A file that exists keeps its mode."""
    if not _is_file(path):
        return
    with contextlib.suppress(OSError):  # it exists, or SQLite says better why it cannot be opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _use_wal(connection: sqlite3.Connection, path: str) -> None:
    """Switch a new file to WAL. SQLite does not wait for another process that does the same, so this waits a little."""
    nap = threading.Event()  # never set
    for look in range(100):
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                applied_migrations(connection, path)  # a file that is refused must not be changed
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not any(word in str(error) for word in _PASSING) or look == 99:
                raise
        nap.wait(0.02)


#: Decodes text. Bytes that are no text become NUL, which no payload has: the damaged row can be shown, and is seen as damaged.
_text = partial(str, encoding="utf-8", errors="holdfast-damaged")
codecs.register_error("holdfast-damaged", lambda error: ("\0", error.end))  # type: ignore[attr-defined]


def is_disk_trouble(error: BaseException) -> bool:
    """Return whether *error* means that nothing can be written now: no space is left, or the disk fails."""
    return isinstance(error, sqlite3.OperationalError) and any(
        word in str(error) for word in ("disk is full", "disk I/O")
    )


def translate(error: sqlite3.Error, path: str) -> StoreError:
    """Return the error for callers. Its text says what happened, why, and what to do."""
    name, text = Path(path).name, str(error)
    if any(word in text for word in _PASSING):
        return StoreUnavailable(
            f"{name} is locked by another process for over {BUSY_SECONDS:.0f} s; try again"
        )
    if "full" in text:
        return StoreUnavailable(
            f"no space is left to write {name}; nothing was stored, free some and try again"
        )
    if "readonly" in text or "read-only" in text:
        return StoreError(
            f"{name} or its folder is read-only; let this user write there or choose another file"
        )
    if "unable to open" in text:
        rooted = " (a path from the root has four slashes: sqlite:////…)" if path.find("/") > 0 else ""
        return StoreError(f"{name} cannot be opened; its folder must exist and be writable{rooted}")
    if "not a database" in text or "malformed" in text:
        return StoreError(f"{name} is not a database or is damaged; restore it or choose another file")
    if "disk I/O" in text:
        return StoreUnavailable(f"the disk failed while writing {name}; nothing was stored")
    return StoreError(f"the database {name} refused: {text}")
