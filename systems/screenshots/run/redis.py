"""A private Redis for `make run SYSTEM=screenshots`: on loopback, with a password of its own, ended with us. It keeps nothing."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from systems.common.children import die_with_parent
from systems.common.postgres import NoServer
from systems.common.running import free_port, private_file

_START_SEC = 10.0


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


@contextlib.contextmanager
def private_redis(folder: Path) -> Iterator[str]:
    """Its address, with the password. Whoever may read the folder's own files finds it in `url`, for redis-cli."""
    folder.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), secrets.token_hex(16)
    settings = folder / "redis.conf"  # not on the command line, where anybody on this machine can read it
    private_file(
        settings,
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\nmaxmemory-policy noeviction\n',
    )
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            ["redis-server", str(settings)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
        )
    try:
        _wait_until_ready(process, port)
        # With the name of the user, which redis-cli does not leave out by itself.
        address = f"redis://default:{password}@127.0.0.1:{port}/0"
        private_file(folder / "url", address)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for file in (settings, folder / "url"):
            file.unlink(missing_ok=True)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_SEC
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise NoServer("Redis did not start; redis/log in the folder for data says why")
