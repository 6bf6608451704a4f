"""The floor on PostgreSQL: a hand-written loop as a reference, not a queue to use.

It has one table, one partial index, and asyncpg. Two loops each claim *size* jobs in a statement, run them as
tasks, and complete them in a statement. It stores only what a durable queue needs: status, attempt and lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from benchmarks.adapters.base import Adapter
from benchmarks.marks import mark, mark_delay

TABLE = """
CREATE TABLE job (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task    text NOT NULL,
    status  smallint NOT NULL DEFAULT 0, -- 0 waiting, 1 running, 2 done
    attempt int NOT NULL DEFAULT 0,
    due     timestamptz NOT NULL DEFAULT now(),
    lease   timestamptz,
    payload jsonb NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX job_waiting ON job (due, id) WHERE status = 0;
"""
PUT = "WITH put AS (INSERT INTO job (task, payload) VALUES ($1, $2) RETURNING id) SELECT pg_notify('job', '') FROM put"
PUT_MANY = "INSERT INTO job (task, payload) SELECT $1, unnest($2::text[])::jsonb"
PUT_FUTURE = """
INSERT INTO job (task, payload, due) SELECT 'noop', '0', now() + interval '1 day' FROM generate_series(1, $1::int)
"""
CLAIM = """
WITH next AS MATERIALIZED (
    SELECT id FROM job WHERE status = 0 AND due <= now() ORDER BY due, id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE job SET status = 1, attempt = attempt + 1, lease = now() + interval '30 s' FROM next WHERE job.id = next.id
RETURNING job.id, job.task, job.attempt, job.payload::text
"""
COMPLETE = "UPDATE job SET status = 2, lease = NULL WHERE id = ANY($1::bigint[])"
RETRY = "UPDATE job SET status = 0, due = now(), lease = NULL WHERE id = ANY($1::bigint[])"


class Queue(Adapter):
    batch = 1000
    callers = False  # one connection

    async def install(self) -> None:
        await self.open()
        await self.connection.execute(TABLE)
        await self.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self.connection.close()

    async def put(self, task: str, value: float) -> None:
        await self.connection.execute(PUT, task, json.dumps(value))

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        await self.connection.execute(PUT_MANY, task, [str(value) for value in values])

    async def put_future(self, count: int) -> None:
        await self.connection.execute(PUT_FUTURE, count)

    async def worker(self, size: int) -> None:
        wake_up = asyncio.Event()
        listener = await asyncpg.connect(self.url)
        await listener.add_listener("job", lambda *_: wake_up.set())
        await asyncio.gather(*[self._loop(size, wake_up) for _ in range(2)])

    async def _loop(self, size: int, wake_up: asyncio.Event) -> None:
        connection = await asyncpg.connect(self.url)
        while True:
            wake_up.clear()
            rows = await connection.fetch(CLAIM, size)
            if not rows:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wake_up.wait(), 0.5)
                continue
            done: list[int] = []
            failed: list[int] = []
            await asyncio.gather(*[asyncio.create_task(run(tuple(row), done, failed)) for row in rows])
            if done:
                await connection.execute(COMPLETE, done)
            if failed:
                await connection.execute(RETRY, failed)


async def run(row: Sequence[Any], done: list[int], failed: list[int]) -> None:
    """Run one job, and add its id to *done* or *failed*."""
    number, task, attempt, payload = row
    try:
        body(task, attempt, json.loads(payload))
        done.append(number)
    except Exception:
        failed.append(number)


def body(task: str, attempt: int, value: float) -> None:
    """Do what the task does, see `base.Adapter`."""
    if task == "late":
        mark_delay(value)
        return
    mark()
    if task == "fail" and attempt == 1:
        raise ValueError("the first attempt fails")
