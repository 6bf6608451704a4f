"""`python -m benchmarks.lanes`: what ten thousand lanes of one job each cost everybody.

One owner enqueues the same number of jobs twice: into one lane, and into as many lanes as there are jobs. Printed for each
store are the drain rate over many lanes relative to the rate over one, and how long a job of another owner waits for its
start beside them: enqueued right behind them, and ten seconds after they arrived (beside slow jobs, so that most of them
still wait). All in one process, on a private PostgreSQL and on a file of SQLite.
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

from holdfast import Holdfast
from tests.services.postgres import Postgres

#: The job of the other owner may wait for this many times as long as in a calm system, or for this many seconds.
TIMES, SECONDS = 3, 0.5
#: The least share of one lane's drain rate.
SHARE = 0.3


def make_app(
    url: str, concurrency: int, ended: list[float] | None = None
) -> tuple[Holdfast, dict[int, asyncio.Event]]:
    """Return an app, and the events that tell when a job with this number begins; *ended* takes the moments of all jobs."""
    app = Holdfast(url, concurrency=concurrency)
    begun: dict[int, asyncio.Event] = {}

    @app.task
    async def work(number: int, seconds: float = 0.0) -> None:
        if ended is not None:
            ended.append(time.perf_counter())
        if number in begun:
            begun[number].set()
        if seconds:
            await asyncio.sleep(seconds)

    return app, begun


async def crowd(app: Holdfast, jobs: int, lanes: int, owner: str | None, seconds: float = 0.0) -> None:
    """Enqueue jobs in groups of up to a thousand, as batch requests do."""
    work = app.tasks["work"]

    async def one(number: int) -> None:
        await work.options(queue=f"queue {number % lanes}" if lanes > 1 else "queue", owner=owner).enqueue(
            -number - 1, seconds
        )

    if lanes == 1:
        await work.enqueue_many(
            [(-number - 1, seconds) for number in range(jobs)], owner=owner, queue="queue"
        )
        return
    for first in range(0, jobs, 1000):
        await asyncio.gather(*(one(number) for number in range(first, min(first + 1000, jobs))))


async def drain(url: str, jobs: int, lanes: int, owner: str | None) -> float:
    """Return the jobs a second, from the start of the worker to the last job: not until it knows that there are no more."""
    ended: list[float] = []
    app, _ = make_app(url, 100, ended)
    async with app:
        await crowd(app, jobs, lanes, owner)
        began = time.perf_counter()
        await app.run_worker(until_idle=True)
        assert len(ended) == jobs
        return jobs / (ended[-1] - began)


async def newcomer(
    app: Holdfast, begun: dict[int, asyncio.Event], number: int, patience: float = 60.0
) -> float:
    """Return the seconds from the call that enqueues another owner's job to its start."""
    begun[number] = asyncio.Event()
    began = time.perf_counter()
    await app.tasks["work"].options(owner="bob").enqueue(number)
    try:
        async with asyncio.timeout(patience):
            await begun[number].wait()
    except TimeoutError:
        pass
    return time.perf_counter() - began


async def waits(url: str, jobs: int, later: float, owner: str | None) -> dict[str, float]:
    app, begun = make_app(url, 10)
    async with app:
        working = asyncio.create_task(app.run_worker())
        await newcomer(app, begun, 1)
        calm = []
        for number in range(2, 12):
            calm.append(await newcomer(app, begun, number))
            await asyncio.sleep(0.05)
        # Slow enough that they outlast the measurement: ten at a time, 5 ms at the least each.
        await crowd(app, jobs, jobs, owner, seconds=10 * 3 * later / jobs)
        arrived = time.perf_counter()
        meanwhile = [await newcomer(app, begun, number) for number in range(12, 17)]
        await asyncio.sleep(max(0.0, later - (time.perf_counter() - arrived)))
        left = (await app.counts())["queued"]
        then = [await newcomer(app, begun, number) for number in range(17, 22)]
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return {
        "calm, s": round(median(calm), 3),
        "bound, s": round(max(TIMES * median(calm), SECONDS), 3),
        "right behind them, s (worst of 5)": round(max(meanwhile), 3),
        f"{later:.0f} s later, s (worst of 5)": round(max(then), 3),
        "jobs still waiting then": left,
    }


async def measure(url_of: Any, jobs: int, rounds: int, later: float) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, owner in (("with an owner", "alice"), ("without", None)):
        ratios, one, many = [], 0.0, 0.0
        for number in range(rounds):
            url = await url_of(f"one_{owner}_{number}")
            one = await drain(url, jobs, 1, owner)
            many = await drain(await url_of(f"many_{owner}_{number}"), jobs, jobs, owner)
            ratios.append(many / one)
        found[name] = {
            "drain, many lanes / one lane": round(median(ratios), 2),
            "jobs a second, last round": [round(many), round(one)],
            **await waits(await url_of(f"waits_{owner}"), jobs, later, owner),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes", description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--later", type=float, default=10.0)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:

        async def file(name: str) -> str:
            return f"sqlite:///{Path(folder) / name}.db"

        if given.store != "postgres":
            found = asyncio.run(measure(file, given.jobs, given.rounds, given.later))
            print(json.dumps({"SQLite": found}, indent=2), flush=True)
    if given.store != "sqlite":
        with Postgres() as server:

            async def database(name: str) -> str:
                url = server.create_database(name)
                await Holdfast(url).migrate()
                return url

            found = asyncio.run(measure(database, given.jobs, given.rounds, given.later))
            print(json.dumps({"PostgreSQL": found}, indent=2), flush=True)


if __name__ == "__main__":
    main()
