"""`python -m benchmarks.dispatch`: schedule, cancel and pop one job among a million future ones.

Measures Redis and PostgreSQL. Each operation is called in a sequence, as a busy caller would. PostgreSQL
commits to disk; a bare INSERT is measured too, to show the cost of that. The target of each is a p99 of at
most 5 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
from redis.asyncio import Redis

from devservices import keeper
from devservices.postgres import Postgres
from devservices.redis import RedisServer
from holdfast.dispatch.redis import RedisDispatch
from holdfast.engine.dispatch import DispatchEntry, DispatchHint
from holdfast.engine.ports import Store
from holdfast.jobs.job import JobBatch, JobId, JobSpec, Lane, NewJob
from holdfast.wiring import SystemClock, SystemIds, SystemThreads, make_store

LANE = Lane("default", "screenshot")
TARGET = 5.0
BULK = 1000
NOW = timedelta()
_ids, _random = SystemIds(), random.Random(7)


def later() -> timedelta:
    """Return a random delay of an hour to 30 days."""
    return timedelta(seconds=_random.uniform(3600, 30 * 24 * 3600))


async def timed(
    name: str,
    arguments: Sequence[Any],
    operation: Callable[[Any], Awaitable[Any]],
    before: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Time *operation* with each argument, each after *before*; return whether the target is met."""
    milliseconds = []
    for argument in arguments:
        if before is not None:
            await before()
        started = time.perf_counter()
        await operation(argument)
        milliseconds.append((time.perf_counter() - started) * 1000)
    p99 = statistics.quantiles(milliseconds, n=100, method="inclusive")[98]  # never above the slowest
    met = p99 <= TARGET
    print(
        f"  {name:<28} p50 {statistics.median(milliseconds):6.2f} ms   p99 {p99:6.2f} ms   max {max(milliseconds):6.2f} ms"
        f"   {'ok' if met else f'above {TARGET:g} ms'}",
        flush=True,
    )
    return met


async def redis(jobs: int, calls: int) -> bool:
    """Measure Redis with *jobs* future jobs; return whether all targets are met."""
    with RedisServer() as server:
        dispatch = RedisDispatch(server.url(), "bench")
        started = time.perf_counter()
        ids = [_ids.job_id() for _ in range(jobs)]
        for start in range(0, jobs, BULK):
            await dispatch.offer(
                [DispatchEntry(job_id, 1, LANE, 0, later()) for job_id in ids[start : start + BULK]]
            )
        client: Any = Redis.from_url(server.url())
        memory = (await client.info("memory"))["used_memory"] / jobs
        await client.aclose()
        print(
            f"Redis: {jobs:,} delayed in {time.perf_counter() - started:.0f} s, {memory:.0f} bytes each",
            flush=True,
        )
        new = [DispatchEntry(_ids.job_id(), 1, LANE, 0, later()) for _ in range(calls)]
        met = [
            await timed("schedule", new, lambda entry: dispatch.offer([entry])),
            await timed("cancel", _random.sample(ids, calls), lambda job_id: dispatch.cancel([job_id])),
        ]
        soon = timedelta(milliseconds=1)
        await dispatch.offer([DispatchEntry(_ids.job_id(), 1, LANE, 0, soon) for _ in range(calls)])
        met.append(await timed("pop what is due", range(calls), lambda _: dispatch.take([LANE], 1)))
        await dispatch.close()
    return all(met)


async def postgres(jobs: int, calls: int) -> bool:
    """Measure PostgreSQL with *jobs* future jobs; return whether all targets are met."""
    with Postgres(durable=True, settings=("shared_buffers=1GB",)) as server:  # a million jobs fit
        url = server.create_database("bench")
        store: Store = make_store(url, SystemClock(), SystemThreads())
        await store.migrate()
        await store.open()
        started = time.perf_counter()
        ids: list[JobId] = []
        for _ in range(0, jobs, BULK):
            batch_ids = [_ids.job_id() for _ in range(BULK)]
            spec = JobSpec(lane=LANE, delay=later(), max_attempts=3)
            await store.enqueue(JobBatch(batch_ids, ['{"url":"https://example.org/"}'] * BULK, spec))
            ids += batch_ids
        print(f"PostgreSQL: {jobs:,} delayed in {time.perf_counter() - started:.0f} s", flush=True)
        bare = await asyncpg.connect(url)
        for statement in (
            "VACUUM ANALYZE",
            "CHECKPOINT",
            "CREATE TABLE bare (id uuid)",
        ):  # to start from a settled state
            await bare.execute(statement)
        insert = "INSERT INTO bare VALUES ($1)"
        await timed("(a bare INSERT, to compare)", ids[:calls], lambda job_id: bare.execute(insert, job_id))
        await bare.close()
        met = [
            await timed("schedule", [_new(later()) for _ in range(calls)], lambda job: store.enqueue([job])),
            await timed(
                "cancel", _random.sample(ids, calls), lambda job_id: store.cancel(job_id, "bench", "")
            ),
        ]
        session = await store.open_session("bench", timedelta(hours=1))
        due = [_new(timedelta(milliseconds=1)) for _ in range(calls)]
        await store.enqueue(due)
        hints = [[DispatchHint(job.id, 1)] for job in due[: calls // 2]]
        met.append(
            await timed("claim what is due, by hint", hints, lambda hint: store.claim_jobs(session, hint))
        )

        async def ten_are_due() -> None:
            await store.enqueue([_new(timedelta(milliseconds=1)) for _ in range(10)])
            await asyncio.sleep(0.002)

        await store.promote(BULK)  # promotes all that are due by now
        met.append(
            await timed("promote 10 due jobs", range(calls // 4), lambda _: store.promote(BULK), ten_are_due)
        )
        met.append(
            await timed("claim what is due", range(calls // 2), lambda _: store.claim(session, [LANE], 1))
        )
        await store.close()
    return all(met)


def _new(delay: timedelta) -> NewJob:
    return NewJob(
        _ids.job_id(), '{"url":"https://example.org/"}', JobSpec(lane=LANE, delay=delay, max_attempts=3)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--verbs", type=int, default=2000, help="how often each operation is called")
    parser.add_argument("--only", choices=["redis", "postgres"])
    options = parser.parse_args()
    met = True
    try:
        for name, run in (("redis", redis), ("postgres", postgres)):
            if options.only in (None, name):
                met = asyncio.run(run(options.jobs, options.verbs)) and met
    finally:
        keeper.close()
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
