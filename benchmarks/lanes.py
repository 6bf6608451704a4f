"""`python -m benchmarks.lanes`: measure the cost of ten thousand lanes with one job each.

One owner enqueues the same number of jobs twice: into one lane, and into as many lanes as there are jobs.
Printed for each store are the drain rate over many lanes relative to the rate over one, and how long a job of
another owner waits for its start: enqueued right after them, and ten seconds later (with slow jobs, so that
most of them still wait). Everything runs in one process, on a private PostgreSQL and on an SQLite file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from devservices.postgres import Postgres
from holdfast import Holdfast

#: The other owner's job may wait this many times as long as in an idle system, or this many seconds.
TIMES, SECONDS = 3, 0.5
#: The least share of one lane's drain rate.
SHARE = 0.3


def make_app(
    url: str, concurrency: int, ended: list[float] | None = None
) -> tuple[Holdfast, dict[int, asyncio.Event]]:
    """Return an app, and a dictionary of events by job number.

    A job sets its event when it starts. *ended* collects the times of all jobs.
    """
    app = Holdfast(url, concurrency=concurrency)
    start_events: dict[int, asyncio.Event] = {}

    @app.task
    async def work(number: int, seconds: float = 0.0) -> None:
        if ended is not None:
            ended.append(time.perf_counter())
        if number in start_events:
            start_events[number].set()
        if seconds:
            await asyncio.sleep(seconds)

    return app, start_events


async def crowd(app: Holdfast, jobs: int, lanes: int, owner: str | None, seconds: float = 0.0) -> None:
    """Enqueue *jobs* jobs in *lanes* lanes, in groups of up to a thousand, as batch requests do."""
    work = app.tasks["work"]

    async def one(number: int) -> None:
        await work.options(queue=f"queue {number % lanes}" if lanes > 1 else "queue", owner=owner).enqueue(
            -number - 1, seconds
        )

    if lanes == 1:
        await work.options(owner=owner, queue="queue").enqueue_many(
            [(-number - 1, seconds) for number in range(jobs)]
        )
        return
    for first in range(0, jobs, 1000):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 1000, jobs))))


async def drain(url: str, jobs: int, lanes: int, owner: str | None) -> float:
    """Drain the jobs, and return their rate from the start of the worker to the last job."""
    ended: list[float] = []
    app, _ = make_app(url, 100, ended)
    async with app:
        await crowd(app, jobs, lanes, owner)
        began = time.perf_counter()
        await app.run_worker(until_idle=True)
        assert len(ended) == jobs
        return jobs / (ended[-1] - began)


async def newcomer(
    app: Holdfast, start_events: dict[int, asyncio.Event], number: int, patience: float = 60.0
) -> float:
    """Return the seconds from the call that enqueues another owner's job to its start."""
    start_events[number] = asyncio.Event()
    began = time.perf_counter()
    await app.tasks["work"].options(owner="bob").enqueue(number)
    try:
        async with asyncio.timeout(patience):
            await start_events[number].wait()
    except TimeoutError:
        pass
    return time.perf_counter() - began


async def waits(url: str, jobs: int, later: float, owner: str | None) -> dict[str, float]:
    """Measure how long another owner's jobs wait.

    The cases are an idle system, right after *jobs* jobs were enqueued, and *later* seconds after that.
    """
    app, start_events = make_app(url, 10)
    async with app:
        working = asyncio.create_task(app.run_worker())
        await newcomer(app, start_events, 1)
        idle_waits = []
        for number in range(2, 12):
            idle_waits.append(await newcomer(app, start_events, number))
            await asyncio.sleep(0.05)
        # Slow enough to outlast the measurement: ten at a time, at least 5 ms each.
        await crowd(app, jobs, jobs, owner, seconds=10 * 3 * later / jobs)
        arrived = time.perf_counter()
        waits_after = [await newcomer(app, start_events, number) for number in range(12, 17)]
        await asyncio.sleep(max(0.0, later - (time.perf_counter() - arrived)))
        left = (await app.jobs.counts())["queued"]
        waits_later = [await newcomer(app, start_events, number) for number in range(17, 22)]
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return {
        "calm, s": round(median(idle_waits), 3),
        "bound, s": round(max(TIMES * median(idle_waits), SECONDS), 3),
        "right behind them, s (worst of 5)": round(max(waits_after), 3),
        f"{later:.0f} s later, s (worst of 5)": round(max(waits_later), 3),
        "jobs still waiting then": left,
    }


async def measure(url_of: Any, jobs: int, rounds: int, later: float) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, owner in (("with an owner", "alice"), ("without", None)):
        ratios, one, many = [], 0.0, 0.0
        for number in range(rounds):
            url = await url_of(f"one_{owner}_{number}")
            one = await drain(url, jobs, 1, owner)
            many = await drain(await url_of(f"many_{owner}_{number}"), jobs, jobs, owner)
            ratios.append(many / one)
        results[name] = {
            "drain, many lanes / one lane": round(median(ratios), 2),
            "jobs a second, last round": [round(many), round(one)],
            **await waits(await url_of(f"waits_{owner}"), jobs, later, owner),
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--later", type=float, default=10.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:

        async def file(name: str) -> str:
            return f"sqlite:///{Path(folder) / name}.db"

        if options.store != "postgres":
            results = asyncio.run(measure(file, options.jobs, options.rounds, options.later))
            print(json.dumps({"SQLite": results}, indent=2), flush=True)
    if options.store != "sqlite":
        with Postgres() as server:

            async def database(name: str) -> str:
                url = server.create_database(name)
                await Holdfast(url).migrate()
                return url

            results = asyncio.run(measure(database, options.jobs, options.rounds, options.later))
            print(json.dumps({"PostgreSQL": results}, indent=2), flush=True)


if __name__ == "__main__":
    main()
