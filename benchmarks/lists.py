"""`python -m benchmarks.lists`: measure a page of 50 among a million jobs, with each filter.

Fills an SQLite file or a private PostgreSQL, then reads first pages and pages from the middle. A page may
hold fewer than 50 jobs where few match; the number of pages until 50 jobs or the end is printed too.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from devservices.postgres import Postgres
from holdfast.engine.ports import Store
from holdfast.jobs.job import JobBatch, JobFilter, JobId, JobSpec, Lane
from holdfast.jobs.moves import State
from holdfast.wiring import SystemClock, SystemIds, SystemThreads, make_store

PAGE = 50
BULK = 1000

#: Ages a million jobs: most are complete, the newest are queued, a few failed, and a paused queue holds old
#: ones.
_SQLITE = (
    """UPDATE holdfast_job SET phase = 3, epoch = id, settle_event = 1, started_at = created_at, claimed_at = created_at,
              finished_at = created_at, attempt = 1 WHERE id <= {most} AND NOT lane IN (SELECT id FROM holdfast_lane WHERE queue = 'paused')""",
    "UPDATE holdfast_job SET phase = 4, error_code = CASE WHEN id % 5000 = 7 THEN 'RARE' ELSE 'TIMEOUT' END WHERE phase = 3 AND id % 50 = 7 AND result IS NULL",
    "UPDATE holdfast_job SET phase = 5 WHERE phase = 3 AND id % 500 = 8 AND result IS NULL",
    "ANALYZE",
)
_POSTGRES = (
    """WITH gone AS (DELETE FROM holdfast.ready r USING (SELECT id FROM holdfast.job ORDER BY id LIMIT {most}) j
                      WHERE r.id = j.id AND r.lane NOT IN (SELECT id FROM holdfast.lane WHERE queue = 'paused') RETURNING r.id),
            numbered AS (SELECT id, row_number() OVER (ORDER BY id) AS n FROM gone)
       INSERT INTO holdfast.done (job_id, state, epoch, started_at, finished_at, attempt, crashes, generation, error_code)
       SELECT id, CASE WHEN n % 50 = 7 THEN 4 WHEN n % 500 = 8 THEN 5 ELSE 3 END, n, clock_timestamp(), clock_timestamp(), 1, 0, 1,
              CASE WHEN n % 50 = 7 THEN CASE WHEN n % 5000 = 7 THEN 'RARE' ELSE 'TIMEOUT' END END FROM numbered""",
    "VACUUM ANALYZE",
)  # fmt: skip


def specs(count: int) -> Iterator[tuple[int, JobSpec]]:
    """Yield batch sizes and specs: tasks and owners of various sizes, some with tags and keys."""
    generator = random.Random(7)
    total = 0
    while total < count:
        number = total // BULK
        lane = Lane("paused" if 100 <= number < 150 else f"queue{number % 5}", f"task{number % 20}")
        if number in (3, 400):
            lane = Lane("rare", "rare")
        owner = "whale" if number % 3 == 0 else f"owner{generator.randrange(1000)}"
        size = 20 if number in (3, 400) else BULK
        spec = JobSpec(
            lane=lane,
            owner="minnow" if lane.task == "rare" else owner,
            tags=("rare",) if lane.task == "rare" else ("red",) if number % 50 == 1 else (),
            key=f"key{number % 7}" if number % 20 == 2 else None,
        )
        yield size, spec
        total += BULK


async def fill(store: Store, count: int) -> None:
    """Enqueue *count* jobs."""
    ids = SystemIds()
    for number, (size, spec) in enumerate(specs(count)):
        payloads = [f'{{"number":{number * BULK + n},"kind":"{n % 100}"}}' for n in range(size)]
        await store.enqueue(JobBatch([ids.job_id() for _ in range(size)], payloads, spec))


async def filters(store: Store) -> dict[str, dict[str, Any]]:
    """Return the filters to measure, by name."""
    newest = (await store.queries.jobs(JobFilter(), after=None, limit=1)).rows[0].created_at
    oldest = newest - timedelta(days=1)
    failed: dict[str, Any] = {"states": (State.FAILED,)}
    by_state = {f"state={state}": {"states": (state,)} for state in State}
    return by_state | {
        "nothing": {},
        "task": {"tasks": ("task3",)},
        "task, rare": {"tasks": ("rare",)},
        "task, unknown": {"tasks": ("nobody",)},
        "queue": {"queues": ("queue2",)},
        "queue, old": {"queues": ("paused",)},
        "owner, large": {"owner": "whale"},
        "owner, small": {"owner": "minnow"},
        "owner, unknown": {"owner": "nobody"},
        "tag": {"tag": "red"},
        "tag, rare": {"tag": "rare"},
        "tag, unknown": {"tag": "nothing"},
        "args": {"args": {"kind": "17"}},
        "args, one": {"args": {"number": 4711}},
        "key": {"key": "key2"},
        "key, unknown": {"key": "none"},
        "error_code": {"error_code": "TIMEOUT"},
        "error_code, rare": {"error_code": "RARE"},
        "created_after": {"created_after": oldest},
        "created_before": {"created_before": newest - timedelta(seconds=5)},
        "created_before, nothing": {"created_before": oldest},
        "failed + task": failed | {"tasks": ("task3",)},
        "failed + owner, large": failed | {"owner": "whale"},
        "failed + owner, small": failed | {"owner": "minnow"},
        "failed + args": failed | {"args": {"kind": "17"}},
        "queued + task, rare": {"states": (State.QUEUED,), "tasks": ("rare",)},
        "complete + queue, old": {"states": (State.COMPLETE,), "queues": ("paused",)},
        "queued + owner, large + tag": {"states": (State.QUEUED,), "owner": "whale", "tag": "red"},
        "complete + tag, rare": {"states": (State.COMPLETE,), "tag": "rare"},
    }


async def measure(store: Store, middle: str, repeat: int) -> None:
    """Measure and print each filter: first pages, and pages after *middle*."""
    print(
        f"{'filter':30} {'p50 ms':>8} {'p95 ms':>8} {'mid p95':>8} {'rows':>5}  pages until 50 rows or the end"
    )
    worst = 0.0
    for name, options in (await filters(store)).items():
        job_filter, times = JobFilter(**options), []
        for after in (None, middle):
            milliseconds = []
            for _ in range(repeat):
                began = time.perf_counter()
                await store.queries.jobs(job_filter, after=after, limit=PAGE)
                milliseconds.append((time.perf_counter() - began) * 1000)
            times.append(sorted(milliseconds))
        p95s = [milliseconds[int(len(milliseconds) * 0.95)] for milliseconds in times]
        rows, pages = await walk(store, job_filter)
        worst = max(worst, *p95s)
        flag = "  <-- slow" if max(p95s) > 50 else ""
        print(
            f"{name:30} {statistics.median(times[0]):8.1f} {p95s[0]:8.1f} {p95s[1]:8.1f} {rows:5}  {pages}{flag}"
        )
    print(f"worst p95: {worst:.1f} ms")


async def walk(store: Store, job_filter: JobFilter) -> tuple[int, int]:
    """Read pages until there are 50 rows, or no more; return the numbers of rows and pages."""
    after, rows, pages = None, 0, 0
    while True:
        page = await store.queries.jobs(job_filter, after=after, limit=PAGE)
        rows, pages, after = rows + len(page.rows), pages + 1, page.next
        if after is None or rows >= PAGE:
            return rows, pages


async def run(url: str, count: int, repeat: int, age: Any) -> None:
    store = make_store(url, SystemClock(), SystemThreads())
    await store.migrate()
    await store.open()
    began = time.perf_counter()
    await fill(store, count)
    print(f"{count:,} jobs in {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    await store.close()
    age(count)
    print(f"aged in {time.perf_counter() - began:.0f} s")
    await store.open()
    after: JobId | str | None = None
    for _ in range(count // 2 // 10_000):
        after = (await store.queries.jobs(JobFilter(), after=after, limit=10_000)).next
    assert after is not None
    await measure(store, after, repeat)
    began = time.perf_counter()
    total = await store.queries.count(JobFilter(args={"kind": "17"}))
    print(f"counted {total:,} by an argument in {time.perf_counter() - began:.1f} s")
    await store.close()


def age(url: str, count: int) -> None:
    """Finish all but the newest 10,000 of *count* jobs in the database, as if workers had run them."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            for sql in _SQLITE:
                file.execute(sql.format(most=count - 10_000))
                file.commit()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for sql in _POSTGRES:
            connection.execute(sql.format(most=count - 10_000).encode())


@contextmanager
def database(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield the URL of an empty private database, and a function that ages a number of jobs in it."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="holdfast-lists-") as folder:
            url = f"sqlite:///{Path(folder) / 'jobs.db'}"
            yield url, partial(age, url)
        return
    with Postgres(durable=True) as server:
        url = server.create_database("lists")
        yield url, partial(age, url)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists", description=__doc__)
    parser.add_argument("store", choices=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    with database(options.store) as (url, age):
        asyncio.run(run(url, options.jobs, options.repeat, age))


if __name__ == "__main__":
    main()
