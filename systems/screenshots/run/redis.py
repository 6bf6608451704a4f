"""A private Redis for `make run SYSTEM=screenshots`: on loopback, with a password of its own, ended with us. It keeps nothing."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from systems.common.running import free_port, private_file
from systems.common.servers import is_open, start_server

_START_SEC = 10.0


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def private_redis(folder: Path) -> Iterator[str]:
    """Return its address, with the password. The file `url` in its folder has it too, for redis-cli."""
    folder.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), secrets.token_hex(16)
    settings = folder / "redis.conf"  # not on the command line, where anybody on this machine can read it
    private_file(
        settings,
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\nmaxmemory-policy noeviction\n',
    )
    server = start_server(
        "Redis",
        ["redis-server", str(settings)],
        folder,
        lambda _: is_open(port),
        start_within=_START_SEC,
        stop_within=1.0,
    )
    try:
        # With the name of the user, which redis-cli does not leave out by itself.
        address = f"redis://default:{password}@127.0.0.1:{port}/0"
        private_file(folder / "url", address)
        yield address
    finally:
        server.stop()
        for file in (settings, folder / "url"):
            file.unlink(missing_ok=True)
