"""The base of the private servers: start one, wait until it answers, end it, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self
from urllib.parse import urlsplit

from devservices import keeper

MEMORY = Path("/dev/shm")  # creating a database takes a tenth of the time there
ENOUGH_MEMORY = 1 << 30


class Unavailable(Exception):
    """A private server cannot be used. The message says what to do."""


class NotInstalled(Unavailable):
    """The server's program is not on this machine."""


class NotStarted(Unavailable):
    """The server's program exited, or did not answer in time."""


class Server:
    """A server on a free port of 127.0.0.1, with a folder for its data and a random password.

    Args:
        folder: Where data, log and password are kept for the next start. Without it the server gets a temporary
            folder, which is removed with the server, at the latest when this process has died.
        parent: Where the temporary folder is created.
    """

    name: ClassVar[str]
    host = "127.0.0.1"
    log_name = "log"
    start_within = 60.0
    #: Asks the server to end in order. It is killed `stop_within` seconds later.
    stop_signal = signal.SIGTERM
    stop_within = 10.0
    #: Ends a temporary server, whose data is thrown away.
    discard_signal = signal.SIGKILL

    def __init__(self, folder: Path | None = None, *, parent: Path | None = None) -> None:
        self.temporary = folder is None
        self.folder = folder or temporary_folder(parent)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.password = _password(self.folder / "password")
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0  #: where the log of the last start begins

    # --- what differs between servers

    def command(self) -> Sequence[str | Path]:
        """Return the command that runs the server in the foreground."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def prepare(self) -> None:
        """Write the files that the server reads. It is called before each start."""

    def answers(self) -> bool:
        """Return whether the server accepts requests."""
        return is_open(self.port)

    @property
    def helpers(self) -> tuple[Server, ...]:
        """Servers that run beside this one and have to be kept up with it."""
        return ()

    # --- the life of a server

    def start(self) -> Self:
        """Start the server, or start it again on the same data and port, and wait until it answers.

        Raises `NotStarted`.
        """
        if self.running:
            return self
        has_port = self.port != 0
        for _ in range(20):
            self.port = self.port if has_port else free_port()
            self.launch()
            if self._wait():
                return self
            self.kill()
            if not self._port_was_in_use():
                break
            time.sleep(0.1)
        reason = f"\n{self.log[-2000:]}" if self.temporary else f" see {self.folder / self.log_name}"
        raise NotStarted(f"{self.name} did not start;{reason}")

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.process is not None:
            _kill_group(
                self.process.pid
            )  # processes that a killed server left behind would keep its port and files
            keeper.forget(self.process.pid)
        self.prepare()
        with (self.folder / self.log_name).open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                self.command(),
                cwd=self.folder,
                env=dict(self.environment()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # SIGTERM lets PostgreSQL wait for the clients, which end with the same parent.
        keeper.watch(self.process.pid, self.discard_signal if self.temporary else signal.SIGTERM)

    def stop(self) -> None:
        """End the server in order."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End the server as a power cut would. `start` then recovers what was on disk."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the server. A temporary one leaves nothing behind."""
        self._end(self.discard_signal if self.temporary else self.stop_signal)
        if self.temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def log(self) -> str:
        """What the server has logged."""
        return (self.folder / self.log_name).read_text(errors="replace")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self) -> bool:
        until = time.monotonic() + self.start_within
        while time.monotonic() < until and self.running:
            if self.answers():
                return True
            time.sleep(0.02)
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        if how == signal.SIGKILL:
            keeper.kill_tree(process.pid)
        elif process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(self.stop_within)
            except subprocess.TimeoutExpired:
                keeper.kill_tree(process.pid)
        _kill_group(process.pid)
        process.wait(10)
        keeper.forget(process.pid)

    def _port_was_in_use(self) -> bool:
        with (self.folder / self.log_name).open("rb") as log:
            log.seek(self._log_start)
            text = log.read().lower()
        return b"address already in use" in text or b"eaddrinuse" in text


def is_open(port: int, greeting: bytes = b"", answer: bytes = b"") -> bool:
    """Return whether a server listens on *port* of 127.0.0.1 and replies to *greeting* with *answer*."""
    try:
        with socket.create_connection((Server.host, port), 1) as connection:
            if greeting:
                connection.sendall(greeting)
            return not answer or connection.recv(len(answer)) == answer
    except OSError:
        return False


def free_port(several: int = 1) -> int:
    """Return the first of *several* consecutive free ports of 127.0.0.1.

    They are below the range from which the system hands out ports, so they stay free until they are used.
    """
    for _ in range(100):
        first = random.SystemRandom().randrange(10_000, 32_000 - several)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + several):
                stack.enter_context(socket.socket()).bind((Server.host, port))
            return first
    raise RuntimeError("no port is free between 10000 and 32000")


def routed(url: str, host: str, port: int) -> str:
    """Return *url* with another host and port."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{host}:{port}").geturl()


def temporary_folder(parent: Path | None = None) -> Path:
    """Return a new folder that is removed, at the latest, when this process has died."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir=parent))
    keeper.watch_folder(folder)
    return folder


def memory_folder() -> Path | None:
    """Return a folder whose files are in memory. Return `None` where there is none, or too little memory."""
    with contextlib.suppress(OSError):
        if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ENOUGH_MEMORY:
            return MEMORY
    return None


def private_file(file: Path, content: str) -> None:
    """Write *content* to *file*, readable by its owner only."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(content)


def _password(file: Path) -> str:
    """Return the password in *file*. Write a random one the first time."""
    if not file.exists():
        private_file(file, secrets.token_hex(16))
    return file.read_text()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
