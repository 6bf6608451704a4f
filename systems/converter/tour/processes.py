"""The tour's processes: a gateway with its fault switch, the web app and two workers, on temporary data."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import httpx2

from holdfast import Holdfast
from systems.common.children import Child

#: Short times, and more attempts than usual: with so few files, an outage uses up some of their attempts
#: before the breaker has seen enough calls to open.
SETTINGS = {
    "RETRY_MAX_ATTEMPTS": "8",
    "RETRY_BASE_DELAY_MS": "300",
    "RETRY_JITTER_MAX_MS": "300",
    "CIRCUIT_WINDOW": "10",
    "CIRCUIT_COOLDOWN_MS": "2000",
    "WORKER_LEASE_TTL_SEC": "2",
    "WORKER_CONCURRENCY": "4",
    "FREE_SPACE_MIN_MB": "1",
    "HOLDFAST_POLL": "200ms",
    "HOLDFAST_RECLAIM_EVERY": "300ms",
    "HOLDFAST_LOG_LEVEL": "critical",
    "HOLDFAST_GRACE": "1s",
}


class Processes:
    """The running converter. Inside the `with` block `page` and `gateway` are HTTP clients."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.gateway_url = f"http://127.0.0.1:{port}"
        self.environment = {
            **os.environ,
            **SETTINGS,
            "DATABASE_URL": f"sqlite:///{folder / 'tour.db'}",
            "GATEWAY_URL": self.gateway_url,
            "UPLOADS_DIR": str(folder / "uploads"),
            "RESULTS_DIR": str(folder / "results"),
            "SESSION_KEY_FILE": str(folder / "session.key"),
        }
        self._gateway = self._child("gateway", "systems.converter.gateway", "--port", str(port), "--faults")
        self._web = self._child("web", "systems.converter.web", "--port", "0")
        self._gateway.says_ready = self._web.says_ready = True
        worker = ("holdfast", "worker", "systems.converter.app:app")
        self.workers = [self._child(f"worker {nth}", *worker) for nth in (1, 2)]
        self.samples: dict[str, bytes] = {}  #: job id → the uploaded PDF

    def _child(self, name: str, module: str, *arguments: str) -> Child:
        return Child(name, [sys.executable, "-m", module, *arguments], self.environment)

    def __enter__(self) -> Processes:
        with contextlib.ExitStack() as undo:
            undo.callback(self.__exit__)
            for child in (self._gateway, self._web, *self.workers):
                child.start()
            self.page = httpx2.Client(base_url=self._web.wait_until_ready(), timeout=20)
            self._gateway.wait_until_ready()
            self.gateway = httpx2.Client(base_url=self.gateway_url, timeout=20)
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        children = (*self.workers, self._web, self._gateway)
        for child in children:
            child.terminate()
        until = time.monotonic() + 3
        for child in children:
            child.end(until)
        for name in ("page", "gateway"):
            if (client := getattr(self, name, None)) is not None:
                client.close()

    # -- actions of the tour
    # ------------------------------------------------------------------------------------------
    def upload(self, name: str, pdf: bytes, mapping: str) -> str:
        """Upload a PDF and return the id of its job."""
        answer = self.page.post("/api/upload", files={"file": (name, pdf)}, data={"mapping": mapping})
        job_id: str = answer.raise_for_status().json()["id"]
        self.samples[job_id] = pdf
        return job_id

    def jobs(self) -> dict[str, Any]:
        """Return all jobs, and whether the queue is held."""
        answer: dict[str, Any] = self.page.get("/api/jobs", params={"limit": 200}).raise_for_status().json()
        return answer

    def break_gateway(self, **fault: Any) -> None:
        """Switch a fault of the gateway on."""
        self.gateway.post("/faults", json=fault).raise_for_status()

    def repair_gateway(self) -> None:
        """Switch the fault off."""
        self.gateway.delete("/faults").raise_for_status()

    def kill_busy_worker(self) -> bool:
        """Kill a worker that runs a job and start it again. Return False if no worker runs one."""
        busy = asyncio.run(self._busy_workers())
        for victim in self.workers:
            if (process := victim.process) is not None and any(f"-{process.pid}-" in name for name in busy):
                process.send_signal(signal.SIGKILL)
                process.wait()
                victim.start()
                return True
        return False

    async def _busy_workers(self) -> list[str]:
        async with Holdfast(self.environment["DATABASE_URL"]) as app:
            return [worker.name for worker in await app.queues.workers() if worker.leases]
