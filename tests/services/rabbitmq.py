"""A private RabbitMQ: own folder, own epmd, free ports of 127.0.0.1, own password, ended with the tests.

    with RabbitMq() as broker:
        url = broker.create_vhost("orders")        # amqp://…, a fresh world in it
        broker.kill(); broker.start()              # as after a power cut: same data, same ports
        broker.ctl("set_vm_memory_high_watermark", "0.0001")   # a memory alarm; about a second each

It needs the Debian package rabbitmq-server, whose program is called directly: the wrapper on the PATH insists on a user of
its own.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from tests.services import keeper
from tests.services.postgres import NotInstalled, free_port

CONFIGURATION = """
loopback_users = none
default_user = holdfast
default_pass = {password}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
log.file.level = warning
"""
HEADER = b"AMQP\x00\x00\x09\x01"


class RabbitMq:
    host = "127.0.0.1"
    user = "holdfast"

    def __init__(self) -> None:
        self._programs = _find_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-mq-"))
        keeper.watch_folder(self.folder)
        self.password = secrets.token_hex(8)
        self.port = 0
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}

    # --- life

    def start(self) -> Self:
        """Start, or start again on the same data and ports."""
        if self.running:
            return self
        if not self.port:
            self._set_up()
        self._start_epmd()
        for _ in range(3):
            if self._launch():
                return self
        raise RuntimeError(f"RabbitMQ did not start:\n{self.log[-2000:]}")

    def stop(self) -> None:
        """End it in order."""
        self._end(self._process, signal.SIGTERM)
        self._process = None

    def kill(self) -> None:
        """End it as a power cut would; `start` then goes on with what was on disk."""
        if self._process is not None:
            keeper.kill_tree(self._process.pid)
            self._end(self._process, signal.SIGKILL)
            self._process = None

    def close(self) -> None:
        """Stop and leave nothing behind."""
        self.kill()
        self._end(self._epmd, signal.SIGTERM)
        self._epmd = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- use

    def url(self, vhost: str = "%2F") -> str:
        return f"amqp://{self.user}:{self.password}@{self.host}:{self.port}/{vhost}"

    def create_vhost(self, name: str) -> str:
        """A world of its own on this server; its URL."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, self.user, ".*", ".*", ".*")
        return self.url(name)

    def ctl(self, *words: str) -> str:
        """What rabbitmqctl says. It takes about a second."""
        done = subprocess.run(
            [self._programs / "rabbitmqctl", "-q", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise RuntimeError(f"rabbitmqctl {' '.join(words[:1])}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def log(self) -> str:
        return (self.folder / "out").read_text(errors="replace")

    # --- how

    def _set_up(self) -> None:
        self.port, epmd = free_port(), free_port()
        (self.folder / "rabbit.conf").write_text(CONFIGURATION.format(password=self.password))
        (self.folder / "plugins").write_text("[].\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),  # the cookie is made there
            "RABBITMQ_NODENAME": f"holdfast{os.getpid()}x{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": self.host,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbit"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "none"),
            # Or the port between nodes listens everywhere. One thread of each kind: a tenth less work to start.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} "
            "+S 1:1 +SDcpu 1:1 +SDio 1 +sbwt none",
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": self.host,
        }

    def _start_epmd(self) -> None:
        """Of our own: a server that finds none starts a daemon, which outlives it."""
        if self._epmd is not None and self._epmd.poll() is None:
            return
        program = shutil.which("epmd")
        if program is None:
            raise NotInstalled("no epmd on this machine: install the package rabbitmq-server")
        self._epmd = subprocess.Popen(
            [program],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        keeper.watch(self._epmd.pid)
        port, until = int(self._environment["ERL_EPMD_PORT"]), time.monotonic() + 30
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                socket.create_connection((self.host, port), 1).close()
                return
            time.sleep(0.02)

    def _launch(self) -> bool:
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(
                [self._programs / "rabbitmq-server"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        keeper.watch(self._process.pid)
        until = time.monotonic() + 60
        while time.monotonic() < until and self._process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.05)
        self.kill()
        return False

    def _answers(self) -> bool:
        """An open port is not enough: it must greet back, which it does when it is booted."""
        try:
            with socket.create_connection((self.host, self.port), 1) as asking:
                asking.sendall(HEADER)
                return asking.recv(1) == b"\x01"
        except OSError:
            return False

    def _end(self, process: subprocess.Popen[bytes] | None, how: signal.Signals) -> None:
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                keeper.kill_tree(process.pid)
        with contextlib.suppress(ChildProcessError):
            process.wait(10)
        keeper.forget(process.pid)


def _find_programs() -> Path:
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"), reverse=True)
    if not found or shutil.which("erl") is None:
        raise NotInstalled(
            "no RabbitMQ on this machine: run `tools/system`, or install the package rabbitmq-server"
        )
    return found[0]
