"""A private RabbitMQ for `make run SYSTEM=grading`: its data in a folder of ours, on loopback, ended with us.

The program of the Debian package is called directly: the wrapper on the PATH insists on a user of its own. epmd is ours too: a
server that finds none starts a daemon, which would outlive it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from systems.common.running import free_port, private_file
from systems.common.servers import NoServer, Server, is_open, start_server
from systems.grading.settings import URL_FILE

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
        self._servers: list[Server] = []
        self.url = ""

    def __enter__(self) -> PrivateRabbitMq:
        program = _find_program()
        self._folder.mkdir(parents=True, exist_ok=True)
        password, port, names = self._password(), free_port(), free_port()
        private_file(self._folder / "rabbit.conf", _CONFIGURATION.format(password=password))
        (self._folder / "plugins").write_text("[].\n")
        environment = self._environment(port, names)
        try:
            self._start("epmd", ["epmd"], environment, lambda: is_open(names))
            # An open port is not enough: a server greets back when it is booted.
            self._start("RabbitMQ", [str(program)], environment, lambda: is_open(port, _GREETING, b"\x01"))
        except BaseException:
            self.__exit__()
            raise
        self.url = f"amqp://grading:{password}@127.0.0.1:{port}/"
        private_file(self._folder / URL_FILE, self.url)
        return self

    def __exit__(self, *_: object) -> None:
        (self._folder / URL_FILE).unlink(missing_ok=True)
        for server in reversed(self._servers):  # the broker before epmd
            server.stop()
        self._servers.clear()

    def _start(
        self, name: str, command: list[str], environment: dict[str, str], answers: Callable[[], bool]
    ) -> None:
        started = start_server(
            name,
            command,
            self._folder,
            lambda _: answers(),
            environment=environment,
            start_within=_START_SEC,
        )
        self._servers.append(started)

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
            "RABBITMQ_DIST_PORT": str(free_port()),
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
