"""`python -m benchmarks.ageing sqlite`, `… postgres`: measure a worker in a new and in an old database.

The same jobs are drained in an empty database, and in one with a million jobs, nearly all finished (as in
`benchmarks.lists`). With `--minutes 60` the old database has seen an hour of work instead: a producer, a
worker, every tenth job failing once, and finished jobs removed after a minute. Rounds alternate; each figure
is their median.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from dataclasses import dataclass

from benchmarks.lists import database, fill
from holdfast import Holdfast, Retention, Retry, current_job
from holdfast.wiring import SystemClock, SystemThreads, make_store


@dataclass(frozen=True, slots=True)
class Round:
    """The figures of one drain."""

    per_second: float
    cpu_us: float  #: of this process, per job


async def work_for(url: str, minutes: float, rate: int) -> int:
    """Enqueue and run *rate* jobs a second for *minutes*, and return their number."""
    app = Holdfast(url, retention=Retention(jobs="1m", events="2m"))

    @app.task(name="lived", queue="lived", retry=Retry(3, base="100ms"))
    async def now_and_then(number: int) -> None:
        if number % 10 == 0 and current_job().attempt == 1:
            raise ConnectionError("unavailable once")

    async with app:
        worker = asyncio.create_task(app.run_worker(queues=["lived"], concurrency=50))
        until, due, number = time.monotonic() + minutes * 60, time.monotonic(), 0
        while (now := time.monotonic()) < until:
            await now_and_then.enqueue_many(range(number, number + rate // 10))
            number, due = number + rate // 10, due + 0.1
            await asyncio.sleep(max(0.0, due - now))
        worker.cancel()
        await asyncio.wait({worker})
        await app.run_worker(queues=["lived"], until_idle=True)
    return number


async def drain(url: str, jobs: int) -> Round:
    """Enqueue *jobs* jobs that do nothing, and measure how a worker runs them."""
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
    """Return the median of each figure."""
    return Round(
        statistics.median(one.per_second for one in done), statistics.median(one.cpu_us for one in done)
    )


async def grow(url: str, count: int) -> None:
    """Create the schema, and fill the store with *count* jobs."""
    store = make_store(url, SystemClock(), SystemThreads())
    await store.migrate()
    await store.open()
    await fill(store, count)
    await store.close()


def compare(
    kind: str, count: int, jobs: int, rounds: int, minutes: float | None = None, rate: int = 500
) -> tuple[Round, Round, str]:
    """Return the median rounds in an empty and in an old database, and a description of the old one."""
    with database(kind) as (empty, _), database(kind) as (old, age):
        asyncio.run(grow(empty, 0))
        if minutes:
            asyncio.run(grow(old, 0))
            history = f"after {minutes:g} minutes, {asyncio.run(work_for(old, minutes, rate)):,} jobs"
        else:
            asyncio.run(grow(old, count))
            age(count)
            history = f"among {count:,} jobs"
        rounds_of: dict[str, list[Round]] = {empty: [], old: []}
        for _ in range(rounds):  # in turn, so that other load on the machine affects both
            for url, done in rounds_of.items():
                done.append(asyncio.run(drain(url, jobs)))
    return median(rounds_of[empty]), median(rounds_of[old]), history


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["sqlite", "postgres"])
    parser.add_argument("--count", type=int, default=1_000_000, help="jobs in the old database")
    parser.add_argument("--jobs", type=int, default=30_000, help="jobs of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--minutes", type=float, help="work for this long in the old database, instead of filling it"
    )
    parser.add_argument("--rate", type=int, default=500, help="jobs a second of this work")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    new, aged, history = compare(
        options.kind, options.count, options.jobs, options.rounds, options.minutes, options.rate
    )
    print(f"new:  {new.per_second:8,.0f} jobs/s, {new.cpu_us:6.0f} µs of CPU a job")
    print(f"old:  {aged.per_second:8,.0f} jobs/s, {aged.cpu_us:6.0f} µs of CPU a job ({history})")
    print(f"{aged.per_second / new.per_second:.2f} × as fast, {aged.cpu_us / new.cpu_us:.2f} × the CPU")


if __name__ == "__main__":
    main()
