"""The environment of a run: a private PostgreSQL, a folder, a client for each subject, and workers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from benchmarks import proc
from benchmarks.environments import ROOT, python_of
from benchmarks.marks import MARKS, marked
from benchmarks.subjects import Subject
from devservices import keeper
from devservices.postgres import Postgres

SETTINGS = (
    "shared_buffers=1GB",
    "max_wal_size=4GB",
    "checkpoint_timeout=1h",  # each scenario starts with a checkpoint instead
    "max_connections=200",
    "fsync=on",
    "synchronous_commit=on",
)
END_CONNECTIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
DROP_SCHEMAS = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
END $$
"""
START_SECONDS = 20.0
Worker = subprocess.Popen[bytes]


class CellFailed(Exception):
    """A cell has no figures; the message says why."""


class Arena:
    """Creates stores, clients and workers for subjects, and removes them at the end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
        keeper.watch_folder(self.folder)
        self.server = Postgres(durable=True, settings=SETTINGS)
        self.clients: dict[str, Client] = {}
        self._databases: set[str] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Arena:
        self._stack.enter_context(self.server)
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients.values():
            client.end()
        self._stack.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- a subject's store

    def url(self, subject: Subject) -> str:
        """Return the DSN of the subject's database, or the path of its file."""
        if subject.store == "postgres":
            return self.server.url(self.database(subject))
        return str(self.folder / f"{subject.name}.db")

    def database(self, subject: Subject) -> str:
        """Return the name of the subject's database."""
        return f"bench_{subject.name}"

    def marks(self, subject: Subject) -> Path:
        """Return the file to which the subject's jobs write their marks."""
        return self.folder / f"{subject.name}.marks"

    def log(self, subject: Subject) -> Path:
        """Return the file with the output of the subject's processes."""
        return self.folder / f"{subject.name}.log"

    @contextlib.contextmanager
    def place(self, subject: Subject) -> Iterator[Client]:
        """Yield a client for an empty store with the subject's tables, which is emptied again at the end."""
        if subject.store == "postgres" and subject.name not in self._databases:
            self.server.create_database(self.database(subject))
            self._databases.add(subject.name)
        client = self.client(subject)
        try:
            self._remove(subject)
            client.call("install")
            yield client
        finally:
            self._remove(subject)

    def _remove(self, subject: Subject) -> None:
        """Empty the subject's store. Dropping the database would be simpler, but waits for a checkpoint."""
        if subject.store == "postgres":
            with psycopg.connect(self.url(subject), autocommit=True) as connection:
                connection.execute(END_CONNECTIONS)
                connection.execute(DROP_SCHEMAS)
        for path in (*self.folder.glob(f"{subject.name}.db*"), self.marks(subject)):
            path.unlink(missing_ok=True)

    def client(self, subject: Subject) -> Client:
        """Return the subject's client, which is started at the first call."""
        if subject.name not in self.clients:
            self.clients[subject.name] = Client(
                [python_of(subject), "-m", "benchmarks.client", subject.adapter],
                self.environment(subject),
                self.log(subject),
            )
        return self.clients[subject.name]

    def environment(self, subject: Subject) -> dict[str, str]:
        """Return the environment variables of the subject's processes."""
        url = self.url(subject)
        return {
            **os.environ,
            **dict(subject.environment),
            "PYTHONPATH": str(ROOT),
            "BENCH_URL": url,
            "HOLDFAST_DATABASE_URL": url if subject.store == "postgres" else f"sqlite:///{url}",
            MARKS: str(self.marks(subject)),
        }

    # --- workers

    @contextlib.contextmanager
    def workers(self, subject: Subject, size: int, count: int = 1) -> Iterator[list[Worker]]:
        """Run *count* worker processes of this size."""
        own = subject.worker or ("-m", "benchmarks.client", subject.adapter, "worker", "{size}")
        command = [python_of(subject), *(part.replace("{size}", str(size)) for part in own)]
        started: list[Worker] = []
        with self.log(subject).open("ab") as log, contextlib.ExitStack() as ending:
            for _ in range(count):
                worker = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=self.environment(subject),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                keeper.watch(worker.pid)
                ending.callback(_end, worker)
                started.append(worker)
            yield started

    def wait_for_first(self, subject: Subject, workers: list[Worker]) -> None:
        """Wait until the first job runs. Raises `CellFailed` when none does within 20 seconds."""
        self.wait_for_marks(subject, 1, workers, time.monotonic() + START_SECONDS)
        if not marked(str(self.marks(subject))):
            raise CellFailed(f"no job started: {self.last_output(subject)}")

    def wait_for_marks(self, subject: Subject, count: int, workers: list[Worker], until: float) -> None:
        """Wait until *count* bytes of marks are written, or until the monotonic time *until*.

        Raises `CellFailed` when all workers have ended.
        """
        path = str(self.marks(subject))
        while marked(path) < count and time.monotonic() < until:
            if all(worker.poll() is not None for worker in workers):
                raise CellFailed(f"the worker ended: {self.last_output(subject)}")
            time.sleep(0.002 if count == 1 else 0.01)

    def last_output(self, subject: Subject) -> str:
        """Return the last line of the subject's log."""
        lines = self.log(subject).read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it printed nothing"

    @contextlib.contextmanager
    def counting(self, subject: Subject, put: int) -> Iterator[Counter]:
        """Yield a counter of unfinished jobs, of *put* that were enqueued."""
        with contextlib.ExitStack() as stack:
            if subject.store == "postgres":
                yield Counter(
                    stack.enter_context(psycopg.connect(self.url(subject), autocommit=True)), subject, put
                )
            else:
                connection = sqlite3.connect(self.url(subject), timeout=30, isolation_level=None)
                yield Counter(stack.enter_context(contextlib.closing(connection)), subject, put)

    def server_cpu(self, subject: Subject) -> float:
        """Return the CPU seconds of the database server so far; 0 for SQLite."""
        return proc.cpu_of_tree(self.server.pid) if subject.store == "postgres" else 0.0

    def wal(self) -> int:
        """Return the position in PostgreSQL's write-ahead log, in bytes."""
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            row = connection.execute(
                "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
            ).fetchone()
            assert row is not None
            return int(row[0])


class Counter:
    """Counts the unfinished jobs in the store."""

    def __init__(self, connection: Any, subject: Subject, put: int) -> None:
        self._connection, self._statement = connection, subject.unfinished.replace("{put}", str(put))

    def unfinished(self) -> int:
        """Return the number of unfinished jobs."""
        return int(self._connection.execute(self._statement).fetchone()[0])


class Client:
    """A process in the subject's own environment that runs commands; see client.py."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        keeper.watch(self._process.pid)

    def send(self, command: str, **arguments: object) -> None:
        """Send a command, without waiting for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        except BrokenPipeError:
            raise CellFailed("the client has ended") from None

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to the command. Raises `CellFailed` when it failed."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the client has ended"}
        if "error" in answer:
            raise CellFailed(answer["error"])
        return answer

    def call(self, command: str, **arguments: object) -> dict[str, Any]:
        """Send a command and return its answer. Raises `CellFailed` when it failed."""
        self.send(command, **arguments)
        return self.answer()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process and its children."""
        _end(self._process)


def _end(process: subprocess.Popen[Any]) -> None:
    keeper.kill_tree(process.pid)
    with contextlib.suppress(ChildProcessError):
        process.wait()
    keeper.forget(process.pid)
