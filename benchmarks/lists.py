"""`python -m benchmarks.lists`: how long a page of 50 takes among a million jobs, by every filter there is.

Fills a SQLite file or a private PostgreSQL, then asks for first pages and for pages from the middle. A page may hold
fewer than 50 where few jobs match; how many pages it took to find what there is, is told too.
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

from holdfast.domain.job import JobBatch, JobFilter, JobId, JobSpec, Lane
from holdfast.domain.moves import State
from holdfast.engine.ports import Store
from holdfast.wiring import SystemClock, SystemIds, SystemThreads, make_store
from tests.services.postgres import Postgres

PAGE = 50
BULK = 1000

#: A million jobs: most are complete, the newest are queued, a few failed, a paused queue is full of old ones.
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
    """Batches of a shape: tasks and owners of all sizes, tags and keys here and there."""
    chance = random.Random(7)
    made = 0
    while made < count:
        number = made // BULK
        lane = Lane("paused" if 100 <= number < 150 else f"queue{number % 5}", f"task{number % 20}")
        if number in (3, 400):
            lane = Lane("rare", "rare")
        owner = "whale" if number % 3 == 0 else f"owner{chance.randrange(1000)}"
        size = 20 if number in (3, 400) else BULK
        spec = JobSpec(
            lane=lane,
            owner="minnow" if lane.task == "rare" else owner,
            tags=("rare",) if lane.task == "rare" else ("red",) if number % 50 == 1 else (),
            key=f"key{number % 7}" if number % 20 == 2 else None,
        )
        yield size, spec
        made += BULK


async def fill(store: Store, count: int) -> None:
    ids = SystemIds()
    for number, (size, spec) in enumerate(specs(count)):
        payloads = [f'{{"number":{number * BULK + n},"kind":"{n % 100}"}}' for n in range(size)]
        await store.enqueue(JobBatch([ids.job_id() for _ in range(size)], payloads, spec))


async def filters(store: Store) -> dict[str, dict[str, Any]]:
    newest = (await store.jobs(JobFilter(), after=None, limit=1)).rows[0].created_at
    oldest = newest - timedelta(days=1)
    failed: dict[str, Any] = {"states": (State.FAILED,)}
    found = {f"state={state}": {"states": (state,)} for state in State}
    return found | {
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
    print(
        f"{'filter':30} {'p50 ms':>8} {'p95 ms':>8} {'mid p95':>8} {'rows':>5}  pages until it is full or ends"
    )
    worst = 0.0
    for name, words in (await filters(store)).items():
        where, spent = JobFilter(**words), []
        for after in (None, middle):
            took = []
            for _ in range(repeat):
                began = time.perf_counter()
                await store.jobs(where, after=after, limit=PAGE)
                took.append((time.perf_counter() - began) * 1000)
            spent.append(sorted(took))
        p95s = [took[int(len(took) * 0.95)] for took in spent]
        rows, pages = await walk(store, where)
        worst = max(worst, *p95s)
        flag = "  <-- slow" if max(p95s) > 50 else ""
        print(
            f"{name:30} {statistics.median(spent[0]):8.1f} {p95s[0]:8.1f} {p95s[1]:8.1f} {rows:5}  {pages}{flag}"
        )
    print(f"worst p95: {worst:.1f} ms")


async def walk(store: Store, where: JobFilter) -> tuple[int, int]:
    """How many pages it takes to fill one, or to come to the end."""
    after, rows, pages = None, 0, 0
    while True:
        page = await store.jobs(where, after=after, limit=PAGE)
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
        after = (await store.jobs(JobFilter(), after=after, limit=10_000)).next
    assert after is not None
    await measure(store, after, repeat)
    began = time.perf_counter()
    total = await store.count(JobFilter(args={"kind": "17"}))
    print(f"counted {total:,} by an argument in {time.perf_counter() - began:.1f} s")
    await store.close()


def age(url: str, count: int) -> None:
    """End all but the newest 10,000 of *count* jobs in the database at *url*, as if workers had."""
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
    """Yield the URL of an empty private database, and a function that ages that many jobs in it."""
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
