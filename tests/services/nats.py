"""A private NATS with JetStream, from the wheel: own folder, free port of 127.0.0.1, own password, ended with the tests.

with NatsServer() as server:
    url = server.url
    server.kill(); server.start()      # same streams, same port
"""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

from tests.services import keeper
from tests.services.postgres import NotInstalled, free_port, temporary_folder


class NatsServer:
    host = "127.0.0.1"

    def __init__(self) -> None:
        self._program = _find_program()
        self.folder = temporary_folder()
        self.user, self.password = "holdfast", "s3cret-of-nats"
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start, or start again on the same port and data."""
        fixed = self.port != 0
        for _ in range(20):
            self.port = self.port if fixed else free_port()
            if self._launch():
                return self
            time.sleep(0.1)
        raise RuntimeError(f"NATS did not start:\n{(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        if self._process is not None:
            keeper.kill_tree(self._process.pid)
            self._process.wait(10)
            keeper.forget(self._process.pid)
            self._process = None

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return f"nats://{self.user}:{self.password}@{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> bool:
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("-a", self.host, "-p", str(self.port), "--user", self.user, "--pass", self.password),
                    *("-js", "-sd", str(self.folder / "data")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        keeper.watch(self._process.pid)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            if "Server is ready" in (self.folder / "log").read_text(errors="replace") and self._answers():
                return True
            time.sleep(0.02)
        self.kill()
        return False

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), 1) as asking:
                return asking.recv(4) == b"INFO"
        except OSError:
            return False


def _find_program() -> Path:
    beside = Path(sys.executable).with_name("nats-server")  # where the wheel puts it
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NotInstalled("no NATS server in .venv: run `make setup`")
    return Path(found)
