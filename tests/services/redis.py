"""A private Redis: own folder, free port of 127.0.0.1, own password, ended with the tests.

with RedisServer() as server:
    url = server.url()
    server.kill(); server.start()      # empty again: it keeps nothing on disk
"""

import shutil
import signal
import socket
import subprocess
import time
from typing import Self

from tests.services import keeper
from tests.services.postgres import NotInstalled, free_port, temporary_folder


class RedisServer:
    host = "127.0.0.1"

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise NotInstalled(
                "no Redis on this machine: run `tools/system`, or install the package redis-server"
            )
        self._program = program
        self.folder = temporary_folder()
        self.password = "s3cret-of-redis"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, or start again on the same port."""
        fixed = self.port != 0
        for _ in range(20):
            self.port = self.port if fixed else free_port()
            if self._launch():
                return self
            time.sleep(0.1)
        raise RuntimeError(f"Redis did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        if self._process is not None:
            keeper.kill_tree(self._process.pid)
            self._process.wait(10)
            keeper.forget(self._process.pid)
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: int = 0) -> str:
        return f"redis://:{self.password}@{self.host}:{self.port}/{database}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> bool:
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("--port", str(self.port), "--bind", self.host, "--requirepass", self.password),
                    *("--save", "", "--appendonly", "no", "--dir", str(self.folder)),
                ],
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
        self._process.send_signal(signal.SIGKILL)
        self.kill()
        return False

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1) as asking:
                asking.sendall(b"PING\r\n")
                return asking.recv(1) in (b"+", b"-")
        except OSError:
            return False
