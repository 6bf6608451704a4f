"""`python -m benchmarks.dispatch`: schedule, cancel and pop one job among a million that are due later, in Redis and PostgreSQL.

Each verb is called alone, one after the other, as a busy caller would; PostgreSQL commits to the disk, which a bare INSERT beside
it shows the cost of. A p99 of at most 5 ms is wanted of each.
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

from holdfast.dispatch.redis import RedisDispatch
from holdfast.domain.job import JobBatch, JobId, JobSpec, Lane, NewJob
from holdfast.engine.dispatch import DispatchEntry, DispatchHint
from holdfast.engine.ports import Store
from holdfast.wiring import SystemClock, SystemIds, SystemThreads, make_store
from tests.services import keeper
from tests.services.postgres import Postgres
from tests.services.redis import RedisServer

LANE = Lane("default", "screenshot")
WANTED = 5.0
BULK = 1000
NOW = timedelta()
_ids, _chance = SystemIds(), random.Random(7)


def later() -> timedelta:
    return timedelta(seconds=_chance.uniform(3600, 30 * 24 * 3600))


async def timed(
    name: str,
    things: Sequence[Any],
    verb: Callable[[Any], Awaitable[Any]],
    before: Callable[[], Awaitable[None]] | None = None,
) -> bool:
    """Call *verb* with each of these, and what must be done *before* it; whether it is quick enough."""
    spans = []
    for thing in things:
        if before is not None:
            await before()
        began = time.perf_counter()
        await verb(thing)
        spans.append((time.perf_counter() - began) * 1000)
    p99 = statistics.quantiles(spans, n=100, method="inclusive")[98]  # never above the slowest
    fits = p99 <= WANTED
    print(
        f"  {name:<28} p50 {statistics.median(spans):6.2f} ms   p99 {p99:6.2f} ms   max {max(spans):6.2f} ms"
        f"   {'ok' if fits else f'above {WANTED:g} ms'}",
        flush=True,
    )
    return fits


async def redis(jobs: int, verbs: int) -> bool:
    with RedisServer() as server:
        dispatch = RedisDispatch(server.url(), "bench")
        began = time.perf_counter()
        ids = [_ids.job_id() for _ in range(jobs)]
        for start in range(0, jobs, BULK):
            await dispatch.offer(
                [DispatchEntry(job_id, 1, LANE, 0, later()) for job_id in ids[start : start + BULK]]
            )
        client: Any = Redis.from_url(server.url())
        memory = (await client.info("memory"))["used_memory"] / jobs
        await client.aclose()
        print(
            f"Redis: {jobs:,} delayed in {time.perf_counter() - began:.0f} s, {memory:.0f} bytes each",
            flush=True,
        )
        new = [DispatchEntry(_ids.job_id(), 1, LANE, 0, later()) for _ in range(verbs)]
        fits = [
            await timed("schedule", new, lambda entry: dispatch.offer([entry])),
            await timed("cancel", _chance.sample(ids, verbs), lambda job_id: dispatch.cancel([job_id])),
        ]
        soon = timedelta(milliseconds=1)
        await dispatch.offer([DispatchEntry(_ids.job_id(), 1, LANE, 0, soon) for _ in range(verbs)])
        fits.append(await timed("pop what is due", range(verbs), lambda _: dispatch.take([LANE], 1)))
        await dispatch.close()
    return all(fits)


async def postgres(jobs: int, verbs: int) -> bool:
    with Postgres(durable=True, settings=("shared_buffers=1GB",)) as server:  # a million jobs fit
        url = server.create_database("bench")
        store: Store = make_store(url, SystemClock(), SystemThreads())
        await store.migrate()
        await store.open()
        began = time.perf_counter()
        ids: list[JobId] = []
        for _ in range(0, jobs, BULK):
            some = [_ids.job_id() for _ in range(BULK)]
            spec = JobSpec(lane=LANE, delay=later(), max_attempts=3)
            await store.enqueue(JobBatch(some, ['{"url":"https://example.org/"}'] * BULK, spec))
            ids += some
        print(f"PostgreSQL: {jobs:,} delayed in {time.perf_counter() - began:.0f} s", flush=True)
        bare = await asyncpg.connect(url)
        for calm in ("VACUUM ANALYZE", "CHECKPOINT", "CREATE TABLE bare (id uuid)"):  # as after a while
            await bare.execute(calm)
        insert = "INSERT INTO bare VALUES ($1)"
        await timed("(a bare INSERT, to compare)", ids[:verbs], lambda job_id: bare.execute(insert, job_id))
        await bare.close()
        fits = [
            await timed("schedule", [_new(later()) for _ in range(verbs)], lambda job: store.enqueue([job])),
            await timed(
                "cancel", _chance.sample(ids, verbs), lambda job_id: store.cancel(job_id, "bench", "")
            ),
        ]
        session = await store.open_session("bench", timedelta(hours=1))
        due = [_new(timedelta(milliseconds=1)) for _ in range(verbs)]
        await store.enqueue(due)
        hints = [[DispatchHint(job.id, 1)] for job in due[: verbs // 2]]
        fits.append(
            await timed("claim what is due, by hint", hints, lambda hint: store.claim_jobs(session, hint))
        )

        async def ten_are_due() -> None:
            await store.enqueue([_new(timedelta(milliseconds=1)) for _ in range(10)])
            await asyncio.sleep(0.002)

        await store.promote(BULK)  # it lets all in that are due, however many that is
        fits.append(
            await timed("let 10 into line", range(verbs // 4), lambda _: store.promote(BULK), ten_are_due)
        )
        fits.append(
            await timed("claim what is due", range(verbs // 2), lambda _: store.claim(session, [LANE], 1))
        )
        await store.close()
    return all(fits)


def _new(delay: timedelta) -> NewJob:
    return NewJob(
        _ids.job_id(), '{"url":"https://example.org/"}', JobSpec(lane=LANE, delay=delay, max_attempts=3)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--verbs", type=int, default=2000, help="how often each verb is called")
    parser.add_argument("--only", choices=["redis", "postgres"])
    given = parser.parse_args()
    fits = True
    try:
        for name, run in (("redis", redis), ("postgres", postgres)):
            if given.only in (None, name):
                fits = asyncio.run(run(given.jobs, given.verbs)) and fits
    finally:
        keeper.close()
    raise SystemExit(0 if fits else 1)


if __name__ == "__main__":
    main()
