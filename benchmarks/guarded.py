"""`python -m benchmarks.guarded`: what breaker, limiter and budget cost a drain, and what an owner costs.

Drains of the same jobs in turn, on a private PostgreSQL: plain, with `depends_on=`, with an owner, and then backwards, for
tables that grow are slower; each by an app that has this one task. Told are the medians of the ratios of neighbours, by the
clock and by the CPU time of the worker's process, the ratio of the best drains by CPU (other load on the machine only ever adds
to it), what a call's way through the guards takes by itself, and how many statements a worker sends for its dependencies in a
second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import time
from datetime import timedelta
from statistics import median
from typing import Any, NamedTuple

from holdfast import Holdfast
from holdfast.domain.guard import CallPermit
from holdfast.domain.job import Claimed, JobId, Lease
from holdfast.domain.lanes import Dependency
from holdfast.domain.limiter import LimiterPolicy
from holdfast.worker.dependencies import Dependencies
from tests.services.postgres import Postgres

NONE = timedelta()


class Drain(NamedTuple):
    seconds: float
    cpu: float  #: of this process, which is the worker's


def make_app(url: str, *, guarded: bool) -> Holdfast:
    app = Holdfast(url, concurrency=200)
    app.dependency("gateway", limiter=LimiterPolicy(start=200, most=1000))

    @app.task(depends_on="gateway" if guarded else None)
    async def work(number: int) -> None: ...

    return app


async def drain(url: str, jobs: int, *, guarded: bool = False, **options: Any) -> Drain:
    app = make_app(url, guarded=guarded)
    async with app:
        await app.tasks["work"].enqueue_many([(number,) for number in range(jobs)], **options)
        gc.collect()  # what another drain has left is not this one's
        began, cpu = time.perf_counter(), time.process_time()
        await app.run_worker(until_idle=True)
        return Drain(time.perf_counter() - began, time.process_time() - cpu)


async def talk(url: str, seconds: float) -> float:
    """Statements a second that a busy worker sends about its dependencies."""
    app = make_app(url, guarded=True)
    async with app:
        store = (await app.engine()).store
        sent = 0
        for name in ("report", "dependency_states", "swap_breaker"):
            real = getattr(store, name)

            async def counted(*given: Any, _real: Any = real, **options: Any) -> Any:
                nonlocal sent
                sent += 1
                return await _real(*given, **options)

            setattr(store, name, counted)
        working = asyncio.create_task(app.run_worker())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await app.tasks["work"].enqueue_many([(number,) for number in range(500)])
            await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return sent / seconds


async def way(loops: int = 1000, calls: int = 100) -> float:
    """Microseconds of a call's way through the guards and back, the best of many loops: short enough that no other load on the
    machine gets between. What a drain pays for each job, beside a statement a second."""
    app = make_app("memory://", guarded=True)
    async with app:
        engine = await app.engine()
        worker, service = Dependencies(engine, lambda: None), Dependency("gateway")
        await worker.serve([service])
        lane = app.tasks["work"].lane
        jobs = [
            Claimed(
                Lease(JobId(str(number)), 1),
                lane,
                "{}",
                1,
                1,
                0,
                1,
                None,
                None,
                None,
                None,
                NONE,
                None,
                1,
                None,
            )
            for number in range(calls)
        ]
        best = math.inf
        for _ in range(loops):
            began = time.perf_counter()
            given = [one for one in worker.enter(service, jobs) if isinstance(one, CallPermit)]
            for one in given:
                one.began = engine.clock.monotonic()
            for one in given:
                worker.answered(one, engine.clock.monotonic())
            best = min(best, time.perf_counter() - began)
        return best / calls * 1e6


async def measure(server: Postgres, rounds: int, jobs: int) -> dict[str, Any]:
    ways: dict[str, dict[str, Any]] = {"plain": {}, "guarded": {"guarded": True}, "owner": {"owner": "ann"}}
    by_time: dict[str, list[float]] = {"guarded": [], "owner": []}
    by_cpu: dict[str, list[float]] = {"guarded": [], "owner": []}
    cpu: dict[str, list[float]] = {"plain": [], "guarded": [], "owner": []}
    for number in range(rounds):
        url = server.create_database(f"guarded_{number}")
        await Holdfast(url).migrate()
        for order in (list(ways), list(reversed(ways))):
            found = {name: await drain(url, jobs, **ways[name]) for name in order}
            for name, took in found.items():
                cpu[name].append(took.cpu)
                if name != "plain":
                    by_time[name].append(found["plain"].seconds / took.seconds)
                    by_cpu[name].append(found["plain"].cpu / took.cpu)
    url = server.create_database("guarded_talk")
    await Holdfast(url).migrate()
    return {
        "a call's way through the guards, µs": round(await way(), 2),
        "a plain job, µs of CPU (the best drain)": round(min(cpu["plain"]) / jobs * 1e6, 1),
        "guarded / plain, the best by CPU": round(min(cpu["plain"]) / min(cpu["guarded"]), 3),
        "owner / plain, the best by CPU": round(min(cpu["plain"]) / min(cpu["owner"]), 3),
        "guarded / plain, by CPU": round(median(by_cpu["guarded"]), 3),
        "guarded / plain, by time": round(median(by_time["guarded"]), 3),
        "owner / plain, by CPU": round(median(by_cpu["owner"]), 3),
        "owner / plain, by time": round(median(by_time["owner"]), 3),
        "statements a second for dependencies": round(await talk(url, 5.0), 2),
        "rounds by CPU": {name: [round(ratio, 3) for ratio in found] for name, found in by_cpu.items()},
        "rounds by time": {name: [round(ratio, 3) for ratio in found] for name, found in by_time.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    asked = parser.parse_args()
    with Postgres(durable=True) as server:
        print(
            json.dumps(asyncio.run(measure(server, asked.rounds, asked.jobs)), indent=2, ensure_ascii=False)
        )


if __name__ == "__main__":
    main()
