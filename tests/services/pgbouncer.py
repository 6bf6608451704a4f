"""A private PgBouncer in transaction mode before a private PostgreSQL: few sessions of the server, lent to many clients.

    with PgBouncer(server) as pooler:
        url = pooler.route(server.create_database("orders"))

A session is lent for one transaction and no longer, so whatever a client keeps on it (a prepared statement, a LISTEN, a
SET) is gone or, worse, somebody else's. It refuses to run as root, so it runs as the user that PostgreSQL runs as.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from typing import Self
from urllib.parse import urlsplit

from tests.services import keeper
from tests.services.postgres import NotInstalled, Postgres, free_port, temporary_folder

CONFIGURATION = """
[databases]
* = host={server.host} port={server.port}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = md5
auth_file = {users}
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 300
{more}
"""


class PgBouncer:
    """*more* lines of configuration come last."""

    host = "127.0.0.1"

    def __init__(self, server: Postgres, *, sessions: int = 3, more: str = "") -> None:
        self._program = _find_program()
        self._server, self._sessions, self._more = server, sessions, more
        self._folder = temporary_folder()
        self._log = self._folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def start(self) -> Self:
        """Start, or start again on the same port."""
        fixed = self.port != 0
        for _ in range(20):
            self.port = self.port if fixed else free_port()
            if self._launch():
                return self
            if "Address already in use" not in self.log:
                break
            time.sleep(0.1)
        raise RuntimeError(f"PgBouncer did not start:\n{self.log[-2000:]}")

    def stop(self) -> None:
        """End it at once: all its clients are cut."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                keeper.kill_tree(self._process.pid)
        keeper.forget(self._process.pid)
        self._process = None

    def close(self) -> None:
        """Stop and leave nothing behind."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def route(self, url: str) -> str:
        """The same URL, through this pooler."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{self.host}:{self.port}").geturl()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    # --- how

    def _launch(self) -> bool:
        users, settings = self._folder / "users", self._folder / "pgbouncer.ini"
        users.write_text(f'"{self._server.user}" "{self._server.password}"\n')
        settings.write_text(
            CONFIGURATION.format(
                server=self._server,
                host=self.host,
                port=self.port,
                users=users,
                sessions=self._sessions,
                more=self._more,
            )
        )
        for path in (self._folder, users, settings):
            self._server.hand_over(path)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._server.prefix, self._program, settings],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        keeper.watch(self._process.pid)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.02)
        self.stop()
        return False

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), 1).close()
        except OSError:
            return False
        return True


def _find_program() -> str:
    """Debian keeps it where only root's PATH looks."""
    found = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
    if found is None:
        raise NotInstalled(
            "no PgBouncer on this machine: run `tools/system`, or install the package pgbouncer"
        )
    return found
