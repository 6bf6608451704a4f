"""`python -m benchmarks.guarded`: measure the cost of breaker, limiter and budget, and of an owner.

The same jobs are drained in turn on a private PostgreSQL: plain, with `depends_on=`, with an owner, and then
in reverse order, because growing tables are slower. Each app has this one task. Printed are the median ratios
of neighbouring drains by time and by the worker's CPU time, the ratio of the best drains by CPU (other load
only ever adds to it), the time of a call through the guards alone, and how many statements a second a worker
sends for its dependencies.
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

from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.jobs.job import Claimed, JobId, Lease
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.guard import CallPermit
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.worker.dependencies import Dependencies

NONE = timedelta()


class Drain(NamedTuple):
    """The figures of one drain."""

    seconds: float
    cpu: float  #: seconds of this process, which is the worker


def make_app(url: str, *, guarded: bool) -> Holdfast:
    """Return an app with one task, which depends on a service if *guarded*."""
    app = Holdfast(url, concurrency=200)
    app.dependency("gateway", limiter=LimiterPolicy(start=200, most=1000))

    @app.task(depends_on="gateway" if guarded else None)
    async def work(number: int) -> None: ...

    return app


async def drain(url: str, jobs: int, *, guarded: bool = False, **options: Any) -> Drain:
    """Enqueue *jobs* jobs with *options*, and measure how a worker runs them."""
    app = make_app(url, guarded=guarded)
    async with app:
        await app.tasks["work"].options(**options).enqueue_many([(number,) for number in range(jobs)])
        gc.collect()  # so that garbage of another drain is not counted
        began, cpu = time.perf_counter(), time.process_time()
        await app.run_worker(until_idle=True)
        return Drain(time.perf_counter() - began, time.process_time() - cpu)


async def dependency_statements(url: str, seconds: float) -> float:
    """Return how many statements a second a busy worker sends for its dependencies."""
    app = make_app(url, guarded=True)
    async with app:
        store = (await app.runtime.engine()).store
        sent = 0
        for name in ("report", "dependency_states", "swap_breaker"):
            real = getattr(store.lanes, name)

            async def counted(*arguments: Any, _real: Any = real, **options: Any) -> Any:
                nonlocal sent
                sent += 1
                return await _real(*arguments, **options)

            setattr(store.lanes, name, counted)
        working = asyncio.create_task(app.run_worker())
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await app.tasks["work"].enqueue_many([(number,) for number in range(500)])
            await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return sent / seconds


async def guard_time(repeats: int = 1000, calls: int = 100) -> float:
    """Return the microseconds of one call through the guards and back, the best of many short repeats.

    This is what a guarded drain costs per job, in addition to a statement a second.
    """
    app = make_app("memory://", guarded=True)
    async with app:
        engine = await app.runtime.engine()
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
        for _ in range(repeats):
            began = time.perf_counter()
            permits = [one for one in worker.enter(service, jobs) if isinstance(one, CallPermit)]
            for one in permits:
                one.began = engine.clock.monotonic()
            for one in permits:
                worker.answered(one, engine.clock.monotonic())
            best = min(best, time.perf_counter() - began)
        return best / calls * 1e6


async def measure(server: Postgres, rounds: int, jobs: int) -> dict[str, Any]:
    variants: dict[str, dict[str, Any]] = {
        "plain": {},
        "guarded": {"guarded": True},
        "owner": {"owner": "ann"},
    }
    by_time: dict[str, list[float]] = {"guarded": [], "owner": []}
    by_cpu: dict[str, list[float]] = {"guarded": [], "owner": []}
    cpu: dict[str, list[float]] = {"plain": [], "guarded": [], "owner": []}
    for number in range(rounds):
        url = server.create_database(f"guarded_{number}")
        await Holdfast(url).migrate()
        for order in (list(variants), list(reversed(variants))):
            found = {name: await drain(url, jobs, **variants[name]) for name in order}
            for name, drained in found.items():
                cpu[name].append(drained.cpu)
                if name != "plain":
                    by_time[name].append(found["plain"].seconds / drained.seconds)
                    by_cpu[name].append(found["plain"].cpu / drained.cpu)
    url = server.create_database("guarded_talk")
    await Holdfast(url).migrate()
    return {
        "a call's way through the guards, µs": round(await guard_time(), 2),
        "a plain job, µs of CPU (the best drain)": round(min(cpu["plain"]) / jobs * 1e6, 1),
        "guarded / plain, the best by CPU": round(min(cpu["plain"]) / min(cpu["guarded"]), 3),
        "owner / plain, the best by CPU": round(min(cpu["plain"]) / min(cpu["owner"]), 3),
        "guarded / plain, by CPU": round(median(by_cpu["guarded"]), 3),
        "guarded / plain, by time": round(median(by_time["guarded"]), 3),
        "owner / plain, by CPU": round(median(by_cpu["owner"]), 3),
        "owner / plain, by time": round(median(by_time["owner"]), 3),
        "statements a second for dependencies": round(await dependency_statements(url, 5.0), 2),
        "rounds by CPU": {name: [round(ratio, 3) for ratio in found] for name, found in by_cpu.items()},
        "rounds by time": {name: [round(ratio, 3) for ratio in found] for name, found in by_time.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarded", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=20_000)
    options = parser.parse_args()
    with Postgres(durable=True) as server:
        print(
            json.dumps(
                asyncio.run(measure(server, options.rounds, options.jobs)), indent=2, ensure_ascii=False
            )
        )


if __name__ == "__main__":
    main()
