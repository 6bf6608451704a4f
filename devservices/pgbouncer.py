"""A private PgBouncer in transaction mode before a private PostgreSQL: a few sessions, lent to many clients.

    with PgBouncer(server) as pooler:
        url = pooler.route(server.create_database("orders"))

A client has a session for one transaction only, so what it keeps on the session (a prepared statement, a LISTEN, a
SET) is gone afterwards, or belongs to another client. PgBouncer refuses to run as root, so it runs as the user that
PostgreSQL runs as.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from devservices.postgres import Postgres
from devservices.server import NotInstalled, Server, routed

_CONFIGURATION = """
[databases]
* = host={server.host} port={server.port}

[pgbouncer]
listen_addr = {pooler.host}
listen_port = {pooler.port}
unix_socket_dir =
auth_type = md5
auth_file = {pooler.folder}/users
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 300
{more}
"""


class PgBouncer(Server):
    """A pooler with *sessions* sessions. The lines *more* come last in its configuration."""

    name = "PgBouncer"

    def __init__(self, server: Postgres, *, sessions: int = 3, more: str = "") -> None:
        # Debian installs it where only root's PATH leads.
        program = shutil.which("pgbouncer", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
        if program is None:
            raise NotInstalled(
                "there is no PgBouncer on this machine; run `tools/system`, or install the package pgbouncer"
            )
        self._program, self._server, self._sessions, self._more = program, server, sessions, more
        super().__init__()

    def route(self, url: str) -> str:
        """Return the same URL, through this pooler."""
        return routed(url, self.host, self.port)

    def prepare(self) -> None:
        users, settings = self.folder / "users", self.folder / "pgbouncer.ini"
        users.write_text(f'"{self._server.user}" "{self._server.password}"\n')
        settings.write_text(
            _CONFIGURATION.format(server=self._server, pooler=self, sessions=self._sessions, more=self._more)
        )
        for path in (self.folder, users, settings):
            self._server.hand_over(path)

    def command(self) -> list[str | Path]:
        return [*self._server.prefix, self._program, self.folder / "pgbouncer.ini"]
