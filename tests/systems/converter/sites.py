"""A converter for tests: web app and workers as real processes, on a store and a gateway that are given."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from holdfast import Holdfast
from holdfast.errors import Conflict
from holdfast.records import Attempt
from tests.commands import run_command
from tests.systems.converter.gateways import ROOT, RunningGateway

T = TypeVar("T")

#: Quick in everything, and with a breaker that never opens: tests that want one say so.
QUICK = {
    "RETRY_BASE_DELAY_MS": "20",
    "RETRY_JITTER_MAX_MS": "0",
    "CIRCUIT_WINDOW": "1000",
    "CIRCUIT_FAIL_THRESHOLD": "1",
    "CIRCUIT_COOLDOWN_MS": "300",
    "FREE_SPACE_MIN_MB": "1",
    "UPLOAD_RATE": "1000000/min",
    "HOLDFAST_POLL": "100ms",
    "HOLDFAST_RECLAIM_EVERY": "200ms",
    "HOLDFAST_LOG_LEVEL": "error",
    "HOLDFAST_GRACE": "5s",
}
ENDED = ("complete", "failed", "cancelled")


class RunningSite:
    """`with RunningSite(tmp_path, url, gateway) as site: site.upload(pdf)`. Each `browser()` is another owner."""

    def __init__(
        self, folder: Path, database_url: str, gateway: RunningGateway, *, workers: int = 1, **knobs: Any
    ) -> None:
        self.folder, self.gateway, self._workers = folder, gateway, workers
        self.uploads, self.results = folder / "uploads", folder / "results"
        self.environment = {
            **os.environ,
            **QUICK,
            "DATABASE_URL": database_url,
            "GATEWAY_URL": gateway.url,
            "UPLOADS_DIR": str(self.uploads),
            "RESULTS_DIR": str(self.results),
            "SESSION_KEY_FILE": str(folder / "session.key"),
            **knobs,
        }
        self.workers: list[subprocess.Popen[str]] = []
        self._browsers: list[httpx2.Client] = []
        self._port = 0

    # -- life ---------------------------------------------------------------------------------------------------------
    def __enter__(self) -> RunningSite:
        with contextlib.ExitStack() as undo:
            undo.callback(self.stop)
            apart(Holdfast(self.environment["DATABASE_URL"]).migrate)
            for _ in range(self._workers):
                self.start_worker()
            self.start_web()
            undo.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start_web(self) -> None:
        """Start it, or start it again at the same place."""
        self.web = self._popen("systems.converter.web", "--port", str(self._port), stdout=subprocess.PIPE)
        assert self.web.stdout is not None
        line = self.web.stdout.readline()
        assert line.startswith("ready: "), f"the web app said {line!r}"
        self.url = line.split()[1]
        self._port = int(self.url.rpartition(":")[2])
        self.http = self.browser()

    def kill_web(self) -> None:
        self.web.kill()
        self.web.wait()
        if self.web.stdout is not None:
            self.web.stdout.close()

    def start_worker(self, *words: str, log: Path | None = None, **more: Any) -> subprocess.Popen[str]:
        """With these *words* and knobs; everything it has to say goes to *log*, a JSON object a line."""
        environment = self.environment | more
        with contextlib.ExitStack() as opened:
            told: dict[str, Any] = {}
            if log is not None:
                environment |= {"HOLDFAST_LOG": "json", "HOLDFAST_LOG_LEVEL": "debug"}
                told["stderr"] = opened.enter_context(log.open("w"))
            command = ("holdfast", "worker", "systems.converter.app:app", *words)
            worker = self._popen(*command, env=environment, **told)
        self.workers.append(worker)
        return worker

    def stop_workers(self) -> None:
        end(self.workers)
        self.workers.clear()

    def stop(self) -> None:
        self.close_browsers()
        web = [self.web] if hasattr(self, "web") else []
        end([*self.workers, *web])
        for process in web:
            if process.stdout is not None:
                process.stdout.close()

    def _popen(self, module: str, *arguments: str, **more: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", module, *arguments]
        more.setdefault("env", self.environment)
        return subprocess.Popen(command, cwd=ROOT, text=True, **more)

    def command(self, *words: str) -> str:
        """What `holdfast …` prints."""
        done = run_command([sys.executable, "-m", "holdfast", *words], cwd=ROOT, env=self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # -- use ----------------------------------------------------------------------------------------------------------
    def browser(self) -> httpx2.Client:
        """Somebody with a cookie jar of their own."""
        self._browsers.append(httpx2.Client(base_url=self.url, timeout=30, verify=False))
        return self._browsers[-1]

    def close_browsers(self) -> None:
        for browser in self._browsers:
            browser.close()
        self._browsers.clear()

    def upload(
        self, pdf: bytes, mapping: str = "text", *, name: str = "a.pdf", by: httpx2.Client | None = None
    ) -> httpx2.Response:
        return (by or self.http).post(
            "/api/upload", files={"file": (name, pdf, "application/pdf")}, data={"mapping": mapping}
        )

    def breaker(self) -> str:
        """The state of the gateway's breaker, as the store has it."""

        async def look() -> str:
            async with Holdfast(self.environment["DATABASE_URL"]) as app:
                return next((str(seen.breaker.state) for seen in await app.breakers.list()), "closed")

        return apart(look)

    def expire_results(self) -> None:
        """Those of all jobs that have ended, as if their time were over; their files are swept later."""

        async def purge() -> None:
            async with Holdfast(self.environment["DATABASE_URL"]) as app:
                await app.operations.purge(results=0)

        apart(purge)

    def attempts(self, job_id: str) -> list[Attempt]:
        async def look() -> list[Attempt]:
            async with Holdfast(self.environment["DATABASE_URL"]) as app:
                return sorted(await app.jobs.attempts(job_id), key=lambda attempt: attempt.epoch)

        return apart(look)

    def cancel(self, job_ids: list[str]) -> None:
        """Those that have not ended."""

        async def clear() -> None:
            async with Holdfast(self.environment["DATABASE_URL"]) as app:
                for job_id in job_ids:
                    with contextlib.suppress(Conflict):
                        await app.jobs.cancel(job_id)

        apart(clear)

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"/api/jobs/{job_id}").raise_for_status().json()
        return found

    def until(self, job_id: str, *states: str, seconds: float = 20) -> dict[str, Any]:
        """The job once it is in one of these states; by default once it has ended."""
        for job in self.looks(job_id, seconds):
            if job["state"] in (states or ENDED):
                return job
        raise AssertionError(f"not {states or ENDED} within {seconds} s: {self.job(job_id)}")

    def looks(self, job_id: str, seconds: float = 20) -> Iterator[dict[str, Any]]:
        """How the job stands, again and again: its moves are made in other processes, which ring no bell here."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield self.job(job_id)
            time.sleep(0.03)

    def converted(self, pdf: bytes, mapping: str = "text", **more: Any) -> dict[str, Any]:
        """Upload, and wait for the end."""
        answer = self.upload(pdf, mapping, **more)
        assert answer.status_code == 201, answer.text
        return self.until(answer.json()["id"])

    def left_over(self, *folders: Path) -> list[str]:
        """Files that are half written."""
        chosen = folders or (self.uploads, self.results)
        return [path.name for folder in chosen for path in folder.glob(".*") if path.is_file()]

    def peak_memory(self) -> int:
        """The most the web app has used so far, in bytes."""
        status = Path(f"/proc/{self.web.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(line.split()[1])


def apart(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it in an event loop of its own, in a thread: playwright has one in this."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(function())).result()


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
