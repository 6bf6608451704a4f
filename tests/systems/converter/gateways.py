"""A gateway for tests: a real process on a free port, with a folder of its own for what it puts aside."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[3]


class RunningGateway:
    """`with RunningGateway(tmp_path, "--faults") as gateway: gateway.convert(pdf)`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "systems.converter.gateway", "--port", "0", *arguments]
        self.spool = folder / "spool"  #: where temporary files would be

    def __enter__(self) -> RunningGateway:
        self.spool.mkdir(exist_ok=True)
        environment = os.environ | {"TMPDIR": str(self.spool)}
        self.process = subprocess.Popen(
            self._command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready: "), f"the gateway said {line!r}"
        self.url = line.split()[1]
        self.http = httpx2.Client(base_url=self.url, timeout=60, verify=False)
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def convert(self, pdf: Any, mapping: str = "text", **more: Any) -> httpx2.Response:
        return self.http.post("/convert", params={"mapping": mapping}, content=pdf, **more)

    def fault(self, **fault: Any) -> None:
        self.http.post("/faults", json=fault).raise_for_status()

    def fork_servers(self) -> list[int]:
        return children_of(self.process.pid)

    def peak_memory(self) -> int:
        """The most the gateway itself has used so far, in bytes."""
        return 1024 * int(_status(self.process.pid)["VmHWM"].split()[0])


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in task.read_text().split()]
    return sorted(found)


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def wait_for_ends(pids: Iterable[int], seconds: float) -> bool:
    """Whether all these processes have ended within *seconds*, whoever's children they are."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([handle], [], [], seconds)
        finally:
            os.close(handle)
        if not ready:
            return False
    return True
