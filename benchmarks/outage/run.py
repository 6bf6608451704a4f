"""Runs an outage with two workers and one service, and measures its cost."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.outage.service import Service
from holdfast import Holdfast

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of an outage. Calls *after the trip* are those made since the breaker was open."""

    jobs: int
    complete: int
    calls: int
    wasted: int  #: calls while the service was down
    calls_per_job_after_the_trip: float
    tripped_after_seconds: float
    resumed_after_seconds: float  #: from the service's return to the first answer that counted
    reopened: int  #: how often the breaker opened again after the service was back
    most_attempts: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def run(
    database: str,
    *,
    jobs: int = 5000,
    down_seconds: float = 60.0,
    cooldown: str = "30s",
    slow_latency: float = 0.2,
    workers: int = 2,
    concurrency: int = 50,
    timeout: float = 300.0,
) -> Figures:
    """Run *jobs* jobs through an outage, and return its figures.

    The service works normally for a while, goes down, comes back slow, and all jobs are awaited.
    """
    service = Service()
    await service.start()
    environment = os.environ | {
        "HOLDFAST_DATABASE_URL": database,
        "OUTAGE_SERVICE": service.url,
        "OUTAGE_COOLDOWN": cooldown,
        "HOLDFAST_LOG": "console",
        "PYTHONPATH": str(ROOT),
    }
    command = (sys.executable, "-m", "holdfast", "worker", "benchmarks.outage.app:app")
    options = ("--concurrency", str(concurrency))
    app = Holdfast(database)

    @app.task(depends_on="gateway", name="convert")
    async def convert(number: int) -> int:
        raise NotImplementedError  # only declared to enqueue; the workers have the real task

    processes: list[asyncio.subprocess.Process] = []
    try:
        async with app:
            began = time.monotonic()
            await convert.options(max_attempts=10).enqueue_many({"number": number} for number in range(jobs))
            processes = [
                await asyncio.create_subprocess_exec(*command, *options, env=environment, cwd=ROOT)
                for _ in range(workers)
            ]
            await _until(lambda: len(service.calls) >= jobs // 10, timeout)
            down_at = time.monotonic()
            service.is_up = False
            tripped_at = await _until_open(app, down_at + down_seconds)
            await asyncio.sleep(max(0.0, down_at + down_seconds - time.monotonic()))
            back_at = time.monotonic()
            service.is_up, service.latency = True, slow_latency
            counts = await _until_ended(app, jobs, timeout)
            seconds = time.monotonic() - began
            events = await _breaker_events(app)
            attempts = await _most_attempts(app)
    finally:
        for process in processes:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in processes))
        service.stop()
    after = [at for at, _ in service.calls if at >= tripped_at]
    before = sum(1 for at, up in service.calls if at < tripped_at and up)
    good = [at for at, up in service.calls if up and at >= back_at]
    closed = [kind for kind in events if kind == "breaker_closed"]
    return Figures(
        jobs=jobs,
        complete=counts["complete"],
        calls=len(service.calls),
        wasted=sum(1 for _, up in service.calls if not up),
        calls_per_job_after_the_trip=round(len(after) / max(1, jobs - before), 3),
        tripped_after_seconds=round(tripped_at - down_at, 2),
        resumed_after_seconds=round(good[0] - back_at, 2),
        reopened=events[events.index("breaker_closed") :].count("breaker_opened") if closed else 0,
        most_attempts=attempts,
        seconds=round(seconds, 1),
    )


async def _until(condition: Any, timeout: float) -> None:
    async with asyncio.timeout(timeout):
        while not condition():  # noqa: ASYNC110 - other processes cannot set an event here
            await asyncio.sleep(0.01)


async def _until_ended(app: Holdfast, jobs: int, timeout: float) -> dict[str, int]:
    async with asyncio.timeout(timeout):
        while True:
            counts = await app.jobs.counts()
            if counts["complete"] + counts["failed"] >= jobs:
                return counts
            await asyncio.sleep(0.2)


async def _until_open(app: Holdfast, deadline: float) -> float:
    """Return the time at which the breaker was seen open. Raises `TimeoutError`."""
    while time.monotonic() < deadline:
        if any(
            state_of_dependency.breaker.state == "open" for state_of_dependency in await app.breakers.list()
        ):
            return time.monotonic()
        await asyncio.sleep(0.05)
    raise TimeoutError("the breaker did not open while the service was down")


async def _breaker_events(app: Holdfast) -> list[str]:
    kinds: list[str] = []
    after = 0
    while page := await app.events.list(after=after, limit=5000):
        kinds += [event.kind for event in page if event.kind.startswith("breaker_")]
        after = page[-1].id
    return kinds


async def _most_attempts(app: Holdfast) -> int:
    most, after = 0, None
    while True:
        page = await app.jobs.list(after=after, limit=1000)
        most = max([most, *(row.attempt for row in page.rows)])
        after = page.next
        if after is None:
            return most
