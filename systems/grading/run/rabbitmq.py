"""A private RabbitMQ for `make run SYSTEM=grading`: its data in a folder of ours, on loopback, ended with us.

The program of the Debian package is called directly: the wrapper on the PATH insists on a user of its own. epmd is ours too: a
server that finds none starts a daemon, which would outlive it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from systems.common.children import die_with_parent
from systems.common.postgres import NoServer

_START_SEC = 60.0
_GREETING = b"AMQP\x00\x00\x09\x01"
_CONFIGURATION = """\
loopback_users = none
default_user = grading
default_pass = {password}
disk_free_limit.absolute = 50MB
log.file.level = warning
"""


class PrivateRabbitMq:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> PrivateRabbitMq:
        program = _find_program()
        self._folder.mkdir(parents=True, exist_ok=True)
        password, port, names = self._password(), _free_port(), _free_port()
        (self._folder / "rabbit.conf").write_text(_CONFIGURATION.format(password=password))
        (self._folder / "rabbit.conf").chmod(0o600)
        (self._folder / "plugins").write_text("[].\n")
        environment = self._environment(port, names)
        try:
            self._start(["epmd"], environment)
            self._wait(names, b"")
            self._start([str(program)], environment)
            self._wait(port, _GREETING)
        except BaseException:
            self.__exit__()
            raise
        self.url = f"amqp://grading:{password}@127.0.0.1:{port}/"
        return self

    def __exit__(self, *_: object) -> None:
        for child in reversed(self._children):  # the server first
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:  # it recovers at the next start
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait(5)
        self._children.clear()

    def _start(self, command: list[str], environment: dict[str, str]) -> None:
        with (self._folder / "log").open("ab") as log:
            self._children.append(
                subprocess.Popen(
                    command, cwd=self._folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    process_group=0, preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has no threads
                )
            )  # fmt: skip

    def _wait(self, port: int, greeting: bytes) -> None:
        """Until it answers: an open port is not enough, a server greets back when it is booted."""
        until = time.monotonic() + _START_SEC
        while time.monotonic() < until and self._children[-1].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as asking:
                if not greeting:
                    return
                asking.sendall(greeting)
                if asking.recv(1) == b"\x01":
                    return
            time.sleep(0.05)
        raise NoServer(f"RabbitMQ did not start; {self._folder.name}/log in the folder for data says why")

    def _password(self) -> str:
        file = self._folder / "password"
        with contextlib.suppress(FileExistsError):
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(secrets.token_hex(16))
        return file.read_text()

    def _environment(self, port: int, names: int) -> dict[str, str]:
        folder = self._folder
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(folder),  # the cookie is made there
            "RABBITMQ_NODENAME": "grading@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbit"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            # Or the port between nodes listens everywhere.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none",
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }


def _find_program() -> Path:
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), reverse=True)
    if not found or shutil.which("erl") is None or shutil.which("epmd") is None:
        raise NoServer(
            "there is no RabbitMQ on this machine; install the package rabbitmq-server, or name a broker: BROKER_URL=amqp://…"
        )
    return found[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
