"""A private RabbitMQ, with an epmd of its own.

    with RabbitMq() as broker:
        url = broker.create_vhost("orders")        # amqp://…, empty
        broker.kill(); broker.start()              # as after a power cut: same data, same ports
        broker.ctl("set_vm_memory_high_watermark", "0.0001")   # a memory alarm; about a second each

It needs the Debian package rabbitmq-server. Its program is called directly, because the wrapper on the PATH insists on
its own user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from devservices.server import NotInstalled, Server, free_port, is_open, private_file

_CONFIGURATION = """
loopback_users = none
default_user = {server.user}
default_pass = {server.password}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
log.file.level = warning
"""
_GREETING = b"AMQP\x00\x00\x09\x01"


class _Epmd(Server):
    """The register of nodes. A RabbitMQ that finds none starts a daemon, which would outlive it."""

    name = "epmd"
    log_name = "epmd.log"

    def __init__(self, program: str, folder: Path) -> None:
        super().__init__(folder)
        self._program = program

    def command(self) -> list[str]:
        return [self._program]

    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "ERL_EPMD_PORT": str(self.port), "ERL_EPMD_ADDRESS": self.host}


class RabbitMq(Server):
    name = "RabbitMQ"
    user = "holdfast"
    stop_within = 20.0

    def __init__(self, folder: Path | None = None) -> None:
        found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"), reverse=True)
        epmd = shutil.which("epmd")
        if not found or shutil.which("erl") is None or epmd is None:
            raise NotInstalled(
                "there is no RabbitMQ on this machine; run `tools/system`, or install the package rabbitmq-server"
            )
        self._programs = found[0]
        super().__init__(folder)
        self._epmd = _Epmd(epmd, self.folder)
        self._nodes_port = 0

    def url(self, vhost: str = "%2F") -> str:
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.port}/{vhost}"

    def create_vhost(self, name: str) -> str:
        """Create an empty virtual host, and return its URL."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, self.user, ".*", ".*", ".*")
        return self.url(name)

    def ctl(self, *words: str) -> str:
        """Run rabbitmqctl, which takes about a second, and return what it prints."""
        done = subprocess.run(
            [self._programs / "rabbitmqctl", "-q", *words],
            env=dict(self.environment()),
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(words[:1])}: {done.stdout}{done.stderr}")
        return done.stdout

    def prepare(self) -> None:
        self._epmd.start()
        self._nodes_port = free_port()
        private_file(self.folder / "rabbit.conf", _CONFIGURATION.format(server=self))
        (self.folder / "plugins").write_text("[].\n")

    def command(self) -> list[Path]:
        return [self._programs / "rabbitmq-server"]

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),  # Erlang writes its cookie there
            "RABBITMQ_NODENAME": "holdfast@localhost",  # the data belongs to this name
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_DIST_PORT": str(self._nodes_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbit"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            # Without the first option the port between nodes listens on all addresses. One thread of each kind
            # saves a tenth of the work of a start.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} "
            "+S 1:1 +SDcpu 1:1 +SDio 1 +sbwt none",
            "ERL_EPMD_PORT": str(self._epmd.port),
            "ERL_EPMD_ADDRESS": self.host,
        }

    def answers(self) -> bool:
        """Return whether the broker replies to a greeting, which it does only after it has booted."""
        return is_open(self.port, _GREETING, b"\x01")

    @property
    def helpers(self) -> tuple[Server, ...]:
        return (self._epmd,)

    def close(self) -> None:
        super().close()
        self._epmd.close()
