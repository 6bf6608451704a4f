"""Checkpoints of a SQLite file are made by one process at a time."""

from __future__ import annotations

import errno
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.stores.sqlite import writer as writer_module
from holdfast.stores.sqlite.connection import connect
from holdfast.stores.sqlite.writer import Writer

#: Holds the lock until its input ends, as a process does that checkpoints.
HOLDER = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_by_another_process(path: Path) -> Iterator[None]:
    command = [sys.executable, "-c", HOLDER, f"{path}-wal"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose log may have a few pages only."""
    monkeypatch.setattr(writer_module, "PAGES", 4)
    path = tmp_path / "jobs.db"
    with closing(connect(str(path))) as connection:
        connection.execute("CREATE TABLE note (text)")
    return path


def _write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES (zeroblob(50000))")


def test_while_another_process_holds_the_lock_commits_do_not_checkpoint(path: Path) -> None:
    writer = Writer(connect(str(path)), str(path), None)
    writer.run_sync(_write)
    before = path.stat().st_size
    assert before > 50_000  # the first commit has made one
    with held_by_another_process(path):
        writer.run_sync(_write)
        writer.run_sync(_write)
        assert path.stat().st_size == before
    writer.run_sync(_write)
    assert path.stat().st_size > before + 100_000
    writer.close()
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM note").fetchall() == [(4,)]


def test_two_writers_of_one_process_keep_out_of_each_others_way(path: Path) -> None:
    one, other = (Writer(connect(str(path)), str(path), None) for _ in range(2))
    one.run_sync(_write)
    before = path.stat().st_size
    assert one._checkpoints._take()  # as it does while it commits
    other.run_sync(_write)
    assert path.stat().st_size == before
    one._checkpoints._give()
    other.run_sync(_write)
    assert path.stat().st_size > before
    one.close()
    other.close()


def test_a_lock_is_free_again_after_a_commit_that_failed(path: Path) -> None:
    writer = Writer(connect(str(path)), str(path), None)
    writer.run_sync(_write)
    with pytest.raises(sqlite3.OperationalError, match="no transaction is active"):
        writer._checkpoints.commit()
    before = path.stat().st_size
    other = Writer(connect(str(path)), str(path), None)
    other.run_sync(_write)
    assert path.stat().st_size > before
    writer.close()
    other.close()


def test_a_file_system_without_locks_does_not_let_the_log_grow_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    writer = Writer(connect(str(path)), str(path), None)
    before = path.stat().st_size
    writer.run_sync(_write)
    assert path.stat().st_size > before
    writer.close()


def test_connections_that_are_no_writers_never_checkpoint(path: Path) -> None:
    before = path.stat().st_size
    with closing(connect(str(path))) as connection, closing(connect(str(path))):
        _write(connection)
        assert path.stat().st_size == before
