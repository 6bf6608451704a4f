"""A private PostgreSQL 15 in a temporary directory, and counters of its CPU time and WAL."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

BIN = os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin")
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self) -> None:
        self.base = Path(tempfile.mkdtemp(prefix="layouts-"))
        self.base.chmod(0o777)
        self.proc: subprocess.Popen[bytes] | None = None
        self.dsn = ""

    def _as_user(self) -> dict[str, Any]:
        if os.getuid() != 0:
            return {}
        user = pwd.getpwnam("postgres")
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def start(self) -> str:
        data = str(self.base / "data")
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "LANG": "C.UTF-8", "HOME": str(self.base)}
        init = [f"{BIN}/initdb", "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--no-locale"]
        subprocess.run(init, check=True, stdout=subprocess.DEVNULL, env=env, **self._as_user())
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "shared_buffers": "1GB",
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": 200,
            "max_wal_size": "4GB",
        }
        argv = [f"{BIN}/postgres", "-D", data]
        for key, value in options.items():
            argv += ["-c", f"{key}={value}"]
        log = (self.base / "log").open("w")
        self.proc = subprocess.Popen(argv, stdout=log, stderr=log, env=env, **self._as_user())
        self.dsn = f"postgresql://bench@127.0.0.1:{port}/postgres"
        ready = [f"{BIN}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        for _ in range(100):
            if subprocess.run(ready, check=False).returncode == 0:
                return self.dsn
            time.sleep(0.1)
        raise TimeoutError("PostgreSQL did not start")

    def cpu_seconds(self) -> float:
        """CPU time of the server and all its processes, those that have ended included."""
        return cpu_seconds(self.proc.pid) if self.proc else 0.0

    def stop(self) -> None:
        if self.proc and self.proc.poll() is None:
            self.proc.send_signal(signal.SIGINT)
            self.proc.wait(30)
        shutil.rmtree(self.base, ignore_errors=True)

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def cpu_seconds(postmaster: int) -> float:
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        own = int(entry.name) == postmaster
        if own or int(fields[1]) == postmaster:
            ticks += int(fields[11]) + int(fields[12])
        if own:
            ticks += int(fields[13]) + int(fields[14])
    return ticks / TICK
