"""Private servers (PostgreSQL, RabbitMQ, Redis) of `make run`: started with it, started again when they are lost, ended with it.

`keep_up` tends all that run, so a system only has to start its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from systems.common.children import Child, die_with_parent

#: Those of this process, in the order in which they were started.
RUNNING: list[Server] = []


class NoServer(Exception):
    """It cannot be started; the words say what to do."""


@dataclass(slots=True, eq=False)
class Server(Child):
    """A server whose output goes to `log` in *folder*. *answers* tells whether it is ready; *stop_by* ends it in order."""

    folder: Path = Path()
    answers: Callable[[Server], bool] = lambda _: True
    stop_by: signal.Signals = signal.SIGTERM
    stop_within: float = 3.0
    group: int = 0  #: of its processes, those of its last life included; 0: none was started

    def start(self) -> None:
        self._end_group()  # what a server that was killed has left would keep its ports and files
        self.begun = time.monotonic()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
            )
        self.group = self.process.pid
        if self not in RUNNING:
            RUNNING.append(self)

    def wait_until_it_answers(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process is not None and self.process.poll() is None:
            if self.answers(self):
                return
            time.sleep(0.05)
        place = f"{self.folder.name}/log in the folder for data"
        raise NoServer(f"{self.name} did not start; {place} says why")

    def stop(self) -> None:
        """End it in order, or at once when that takes too long: it recovers at its next start."""
        with contextlib.suppress(ValueError):
            RUNNING.remove(self)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(self.stop_by)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self.stop_within)
        self._end_group()
        if self.process is not None:
            self.process.wait(5)

    def _end_group(self) -> None:
        if self.group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.group, signal.SIGKILL)


def start_server(
    name: str,
    command: Sequence[str],
    folder: Path,
    answers: Callable[[Server], bool],
    *,
    environment: Mapping[str, str] | None = None,
    start_within: float = 30.0,
    stop_by: signal.Signals = signal.SIGTERM,
    stop_within: float = 3.0,
) -> Server:
    """Start it and wait until it answers; `NoServer` when it does not."""
    around = os.environ if environment is None else environment
    server = Server(
        name,
        command,
        around,
        folder=folder,
        answers=answers,
        stop_by=stop_by,
        stop_within=stop_within,
    )
    server.start()
    try:
        server.wait_until_it_answers(start_within)
    except BaseException:
        server.stop()
        raise
    return server


def is_open(port: int, greeting: bytes = b"", answer: bytes = b"") -> bool:
    """Whether something listens on this port of 127.0.0.1 and, asked by *greeting*, begins with *answer*."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as asking:
            if greeting:
                asking.sendall(greeting)
            return not answer or asking.recv(len(answer)) == answer
    except OSError:
        return False
