"""Real worker processes on a real database, and the ways to hurt them. Waiting is always for a condition."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.ports import Store
from holdfast.jobs.job import Event, JobRow
from tests.e2e.faults.app import make_app

ROOT = Path(__file__).parents[3]
#: Short leases, so that a test need not wait for long ones.
SHORT = {
    "HOLDFAST_LEASE": "1s",
    "HOLDFAST_HEARTBEAT": "300ms",
    "HOLDFAST_RECLAIM_EVERY": "200ms",
    "HOLDFAST_POLL": "100ms",
    "HOLDFAST_GRACE": "10s",
}
LEASE = 1.0
#: Of workers whose jobs nobody is to take: one that does not get a core for a second or two has not lost them.
PATIENT = {"lease": "20s"}
PATIENCE = 40.0
ENDS = {"complete", "failed", "cancelled", "timed_out"}
#: Kinds of events that end the attempt which a `processing` began.
ATTEMPT_ENDS = ENDS | {"retry", "released", "snoozed", "reclaimed"}
BIRTHS = {"queued", "manual_retry", "redriven"}


async def eventually(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """What *condition* gives, awaited if need be, as soon as it gives something."""
    until = time.monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > until:
            pytest.fail(f"waited {seconds:.0f} s for {what}")
        await asyncio.sleep(0.03)


class Worker:
    """One `holdfast worker`, or another *command*, in a process group of its own."""

    def __init__(
        self,
        options: Iterable[str],
        environment: dict[str, str],
        log: Path,
        under: Iterable[str] = (),
        command: str = "worker",
    ) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*under, sys.executable, "-m", "holdfast", command, "tests.e2e.faults.app:app", *options],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL for it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    async def ended(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            await eventually(lambda: self.process.poll() is not None, "the worker to end", seconds)
        except pytest.fail.Exception as error:
            error.add_note(self.log[-2000:])
            raise
        return self.process.wait()

    async def ready(self) -> Worker:
        await eventually(
            lambda: self.told("worker.started") or self.process.poll() is not None, "the worker to start"
        )
        assert self.process.poll() is None, self.log
        return self

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def has_traceback(self) -> bool:
        """Whether the worker itself has logged a traceback. Lines about attempts carry those of handlers."""
        lines = [line for line in self.log.splitlines() if '"event": "job.' not in line]
        return any("Traceback" in line for line in lines)

    def told(self, event: str) -> list[dict[str, Any]]:
        found = [
            json.loads(line) for line in self.log.splitlines() if line.startswith("{") and line.endswith("}")
        ]
        return [line for line in found if line.get("event") == event]


class Site:
    """A database, a folder for signs between the processes, and the workers started there."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        """*settings* are those of the app here; each worker is told its own."""
        self.url, self.folder = url, folder
        short = {"lease": "1s", "heartbeat": "300ms", "poll": "100ms", "reclaim_every": "200ms"}
        self.app: Holdfast = make_app(url, **short, **settings)
        self.workers: list[Worker] = []
        os.environ["FAULTS_FOLDER"] = str(folder)

    @property
    def is_postgres(self) -> bool:
        return self.url.startswith("postgres")

    async def __aenter__(self) -> Site:
        await self.app.migrate()
        await self.app.runtime.engine()
        return self

    async def __aexit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.kill()
        await self.app.close()

    # -- workers ----------------------------------------------------------------------------------------------------
    def worker(
        self,
        *options: str,
        url: str | None = None,
        under: Iterable[str] = (),
        command: str = "worker",
        **settings: str,
    ) -> Worker:
        """Settings by the name of their variable: `worker(grace="1s")`. *under* is a command that runs it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        ours = ("TZ", "FAULTS_SLOW_START")
        given = {
            name if name in ours else f"HOLDFAST_{name}": value
            for name, value in ((name.upper(), value) for name, value in settings.items())
        }
        environment = {
            **kept,
            **SHORT,
            "HOLDFAST_DATABASE_URL": url or self.url,
            "HOLDFAST_LOG": "json",
            "FAULTS_FOLDER": str(self.folder),
            "PYTHONPATH": str(ROOT),
            **given,
        }
        log = self.folder / f"worker-{len(self.workers)}.log"
        worker = Worker(options, environment, log, under, command)
        self.workers.append(worker)
        return worker

    async def crew(self, count: int, *options: str, **settings: str) -> list[Worker]:
        workers = [self.worker(*options, **settings) for _ in range(count)]
        for worker in workers:
            await worker.ready()
        return workers

    def flag(self, name: str) -> None:
        (self.folder / name).touch()

    def journal(self, what: str, name: str | None = None) -> list[dict[str, Any]]:
        """What the handlers wrote down."""
        path = self.folder / "journal"
        # Whole lines: what is behind the last end of a line is being written.
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [line for line in found if line["what"] == what and name in (None, line["name"])]

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def store(self) -> Store:
        return (await self.app.runtime.engine()).store

    async def enqueue(self, task: str, **arguments: Any) -> str:
        return (await self.app.tasks[task].enqueue(**arguments)).id

    async def enqueue_many(self, task: str, calls: Iterable[dict[str, Any]], **options: Any) -> list[str]:
        return [handle.id for handle in await self.app.tasks[task].options(**options).enqueue_many(calls)]

    async def started(self, job_id: str, times: int = 1) -> list[dict[str, Any]]:
        """The starts of this job, once there are so many."""
        await eventually(lambda: len(self.journal("start", job_id)) >= times, f"start {times} of {job_id}")
        return self.journal("start", job_id)

    async def reaches(self, job_id: str, state: str, seconds: float = PATIENCE) -> JobRow:
        async def there() -> bool:
            return (await self.app.jobs.get(job_id)).state == state

        await eventually(there, f"job {job_id} to be {state}", seconds)
        return await self.app.jobs.get(job_id)

    async def drained(self, seconds: float = PATIENCE) -> None:
        """Until nothing is queued and nothing is processing."""

        async def empty() -> bool:
            counts = await self.app.jobs.counts()
            return not counts["queued"] and not counts["processing"]

        await eventually(empty, "all jobs to end", seconds)

    async def kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in await self.app.events.list(job_id=job_id)]

    async def kinds_if(self, job_id: str, wanted: str) -> bool:
        return wanted in await self.kinds(job_id)

    async def is_expired(self, job_id: str) -> bool:
        return any(lost.lease.job_id == job_id for lost in await (await self.store()).expired(1000))

    async def all_events(self) -> list[Event]:
        found: list[Event] = []
        while page := await self.app.events.list(after=found[-1].id if found else 0, limit=5000):
            found += page
        return found

    async def consistent(self, ids: Collection[str]) -> dict[str, list[Event]]:
        """E3, E5: no invariant is broken, every attempt ended once, every life ended once, and the row agrees.

        The events of each job, for more questions.
        """
        assert await (await self.store()).queries.violations() == []
        by_job: dict[str, list[Event]] = defaultdict(list)

        async def complete_log() -> bool:
            # A reader of PostgreSQL's log stays behind the oldest transaction under way.
            by_job.clear()
            for event in await self.all_events():
                by_job[event.job_id].append(event)
            return by_job.keys() >= set(ids) and all(
                by_job[one][-1].kind in ENDS | {"stale_write"} for one in ids
            )

        await eventually(complete_log, "every job's end in the log")
        for job_id in ids:
            _check_story(await self.app.jobs.get(job_id), by_job[job_id])
        return by_job


def _check_story(row: JobRow, events: list[Event]) -> None:
    told = f"{row.id} is {row.state}: {[(event.kind, event.epoch) for event in events]}"
    begun = Counter(event.epoch for event in events if event.kind == "processing")
    ended = Counter(event.epoch for event in events if event.kind in ATTEMPT_ENDS and event.epoch in begun)
    assert set(begun.values()) <= {1}, told
    assert begun == ended, told  # each attempt has one end, and only one
    births = sum(event.kind in BIRTHS for event in events)
    ends = [event.kind for event in events if event.kind in ENDS]
    assert births == len(ends) == row.generation, told
    assert [event.kind for event in events if event.kind in ENDS | BIRTHS][::2] == [
        event.kind for event in events if event.kind in BIRTHS
    ], told
    assert ends[-1] == ("timed_out" if row.error_code == "TIMEOUT" else str(row.state)), told


def has_taken(pid: int, number: signal.Signals) -> bool:
    """Whether a signal has reached its process: a second one before that would be lost."""
    status = Path(f"/proc/{pid}/status").read_text()
    [waiting] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("ShdPnd:")]
    return not waiting >> (number - 1) & 1


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
