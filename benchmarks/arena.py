"""Where the subjects meet: one private PostgreSQL, one folder, a client process for each, and workers for a while."""

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
from tests.services import keeper
from tests.services.postgres import Postgres

SETTINGS = (
    "shared_buffers=1GB",
    "max_wal_size=4GB",
    "checkpoint_timeout=1h",  # one is made before each scenario instead
    "max_connections=200",
    "fsync=on",
    "synchronous_commit=on",
)
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
EMPTY = """
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema$)' LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', name);
    END LOOP;
    CREATE SCHEMA public;
END $$
"""
PATIENCE = 20.0
Worker = subprocess.Popen[bytes]


class CellFailed(Exception):
    """Why a cell has no figures."""


class Arena:
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

    # --- a subject's place

    def url(self, subject: Subject) -> str:
        """A DSN, or the path of a file."""
        if subject.store == "postgres":
            return self.server.url(self.database(subject))
        return str(self.folder / f"{subject.name}.db")

    def database(self, subject: Subject) -> str:
        return f"bench_{subject.name}"

    def marks(self, subject: Subject) -> Path:
        return self.folder / f"{subject.name}.marks"

    def log(self, subject: Subject) -> Path:
        return self.folder / f"{subject.name}.log"

    @contextlib.contextmanager
    def place(self, subject: Subject) -> Iterator[Client]:
        """An empty store with the subject's tables, removed at the end, so that nothing of it burdens the next."""
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
        """Dropping the database would be simpler, but waits for a checkpoint."""
        if subject.store == "postgres":
            with psycopg.connect(self.url(subject), autocommit=True) as connection:
                connection.execute(CUT)
                connection.execute(EMPTY)
        for left in (*self.folder.glob(f"{subject.name}.db*"), self.marks(subject)):
            left.unlink(missing_ok=True)

    def client(self, subject: Subject) -> Client:
        if subject.name not in self.clients:
            self.clients[subject.name] = Client(
                [python_of(subject), "-m", "benchmarks.client", subject.adapter],
                self.environment(subject),
                self.log(subject),
            )
        return self.clients[subject.name]

    def environment(self, subject: Subject) -> dict[str, str]:
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
        self.wait_for_marks(subject, 1, workers, time.monotonic() + PATIENCE)
        if not marked(str(self.marks(subject))):
            raise CellFailed(f"no job began: {self.last_words(subject)}")

    def wait_for_marks(self, subject: Subject, count: int, workers: list[Worker], until: float) -> None:
        """Until so many bytes are written, or *until* on the monotonic clock has come."""
        path = str(self.marks(subject))
        while marked(path) < count and time.monotonic() < until:
            if all(worker.poll() is not None for worker in workers):
                raise CellFailed(f"the worker ended: {self.last_words(subject)}")
            time.sleep(0.002 if count == 1 else 0.01)

    def last_words(self, subject: Subject) -> str:
        lines = self.log(subject).read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    @contextlib.contextmanager
    def counting(self, subject: Subject, put: int) -> Iterator[Counter]:
        with contextlib.ExitStack() as stack:
            if subject.store == "postgres":
                yield Counter(
                    stack.enter_context(psycopg.connect(self.url(subject), autocommit=True)), subject, put
                )
            else:
                connection = sqlite3.connect(self.url(subject), timeout=30, isolation_level=None)
                yield Counter(stack.enter_context(contextlib.closing(connection)), subject, put)

    def server_cpu(self, subject: Subject) -> float:
        return proc.cpu_of_tree(self.server.pid) if subject.store == "postgres" else 0.0

    def wal(self) -> int:
        with psycopg.connect(self.server.dsn, autocommit=True) as connection:
            row = connection.execute(
                "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
            ).fetchone()
            assert row is not None
            return int(row[0])


class Counter:
    """Asks the store itself what is unfinished."""

    def __init__(self, connection: Any, subject: Subject, put: int) -> None:
        self._connection, self._statement = connection, subject.unfinished.replace("{put}", str(put))

    def unfinished(self) -> int:
        return int(self._connection.execute(self._statement).fetchone()[0])


class Client:
    """A process in the subject's own environment that does what it is told; see client.py."""

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

    def tell(self, command: str, **arguments: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        except BrokenPipeError:
            raise CellFailed("the client has ended") from None

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the client has ended"}
        if "error" in answer:
            raise CellFailed(answer["error"])
        return answer

    def call(self, command: str, **arguments: object) -> dict[str, Any]:
        self.tell(command, **arguments)
        return self.answer()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        _end(self._process)


def _end(process: subprocess.Popen[Any]) -> None:
    keeper.kill_tree(process.pid)
    with contextlib.suppress(ChildProcessError):
        process.wait()
    keeper.forget(process.pid)
