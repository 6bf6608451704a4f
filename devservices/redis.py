"""A private Redis. It keeps nothing on disk, so it is empty after each start."""

from __future__ import annotations

import shutil
from pathlib import Path

from devservices.server import NotInstalled, Server, is_open, private_file

_CONFIGURATION = """\
bind {server.host}
port {server.port}
requirepass {server.password}
dir {server.folder}
save ""
appendonly no
maxmemory-policy noeviction
"""


class RedisServer(Server):
    name = "Redis"

    def __init__(self, folder: Path | None = None) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise NotInstalled(
                "there is no Redis on this machine; run `tools/system`, or install the package redis-server"
            )
        self._program = program
        super().__init__(folder)

    def url(self, database: int = 0) -> str:
        # With the user's name, without which redis-cli sends an empty one.
        return f"redis://default:{self.password}@{self.host}:{self.port}/{database}"

    def prepare(self) -> None:
        # Every user of this machine can read the command line, and only we the file.
        private_file(self.folder / "redis.conf", _CONFIGURATION.format(server=self))

    def command(self) -> list[str]:
        return [self._program, str(self.folder / "redis.conf")]

    def answers(self) -> bool:
        return is_open(self.port, b"PING\r\n", b"-")  # it asks for the password
