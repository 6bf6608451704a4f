"""`python -m benchmarks.ageing sqlite`, `… postgres`: how fast a worker is in a new database, and among a million jobs.

The same jobs are drained on an empty database and beside a million that are there already, nearly all finished (as in
`benchmarks.lists`). Rounds alternate; each figure is their median.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from dataclasses import dataclass

from benchmarks.lists import database, fill
from holdfast import Holdfast
from holdfast.wiring import SystemClock, SystemThreads, make_store


@dataclass(frozen=True, slots=True)
class Round:
    per_second: float
    cpu_us: float  #: of this process, for one job


async def drain(url: str, jobs: int) -> Round:
    app = Holdfast(url)

    @app.task(name="ageing", queue="ageing")
    async def nothing(number: int) -> None: ...

    async with app:
        await nothing.enqueue_many(range(jobs))
        wall, cpu = time.perf_counter(), time.process_time()
        await app.run_worker(until_idle=True, concurrency=100)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Round(jobs / wall, cpu / jobs * 1e6)


def median(done: list[Round]) -> Round:
    return Round(
        statistics.median(one.per_second for one in done), statistics.median(one.cpu_us for one in done)
    )


async def grow(url: str, count: int) -> None:
    store = make_store(url, SystemClock(), SystemThreads())
    await store.migrate()
    await store.open()
    await fill(store, count)
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["sqlite", "postgres"])
    parser.add_argument("--count", type=int, default=1_000_000, help="jobs that are there already")
    parser.add_argument("--jobs", type=int, default=30_000, help="jobs of one round")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with database(options.kind) as (empty, _), database(options.kind) as (full, age):
        asyncio.run(grow(empty, 0))
        asyncio.run(grow(full, options.count))
        age(options.count)
        found: dict[str, list[Round]] = {empty: [], full: []}
        for _ in range(options.rounds):  # in turn: whatever else the machine does, it does to both
            for url, done in found.items():
                done.append(asyncio.run(drain(url, options.jobs)))
    new, old = median(found[empty]), median(found[full])
    print(f"new:                {new.per_second:8,.0f} jobs/s, {new.cpu_us:6.0f} µs of CPU a job")
    print(f"among {options.count:>9,}:    {old.per_second:8,.0f} jobs/s, {old.cpu_us:6.0f} µs of CPU a job")
    print(f"{old.per_second / new.per_second:.2f} × as fast, {old.cpu_us / new.cpu_us:.2f} × the CPU")


if __name__ == "__main__":
    main()
