"""The stand-in provider for tests: a real process on a free port, with its fault switch on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[3]


class RunningProvider:
    """`with RunningProvider() as provider: provider.fault(status=503)`."""

    def __init__(self, key: str = "") -> None:
        self._key = key

    def __enter__(self) -> RunningProvider:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "systems.provider", "--port", "0", "--faults"],
            cwd=ROOT,
            env=os.environ | {"PROVIDER_KEY": self._key},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready: "), f"the provider said {line!r}"
        self.url = line.split()[1]
        self.http = httpx2.Client(base_url=self.url, timeout=30, verify=False)
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()
        self.process.terminate()
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

    def fault(self, **fault: Any) -> None:
        self.http.post("/faults", json=fault).raise_for_status()

    def calls(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/calls").json()["calls"]
        return found

    def reset(self) -> None:
        """No fault, and no memory of calls."""
        self.http.delete("/faults")
        self.http.delete("/calls")
