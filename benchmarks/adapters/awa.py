"""The adapter of awa, a Rust core with a Python API, on its queue storage. Size: `max_workers` of one queue.

The settings are the fastest found: bulk by COPY, single jobs through its asyncpg bridge, uvloop, one
completion shard, and deferred jobs, which include retries, promoted every 25 ms instead of 250.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import asyncpg
import awa
import uvloop
from awa.bridge import insert_job

from benchmarks.adapters.base import Adapter
from benchmarks.marks import mark, mark_delay


@dataclass
class Value:
    value: float


class Queue(Adapter):
    batch = 1000

    async def install(self) -> None:
        async with awa.AsyncClient(self.url, max_connections=2) as client:
            await client.migrate()
            await client.install_queue_storage()

    async def open(self) -> None:
        self.client = awa.AsyncClient(self.url, max_connections=10)
        self.connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self.connection.close()
        await self.client.close()

    async def put(self, task: str, value: float) -> None:
        await insert_job(self.connection, Value(value), kind=task, queue="q")

    async def put_among(self, task: str, value: float) -> None:
        await self.client.insert(Value(value), kind=task, queue="q")

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        await self.client.enqueue_many_copy([Value(value) for value in values], kind=task, queue="q")

    async def put_future(self, count: int) -> None:
        due = datetime.now(UTC) + timedelta(days=1)
        for start in range(0, count, 5000):
            some = [Value(0)] * min(5000, count - start)
            await self.client.enqueue_many_copy(some, kind="noop", queue="q", run_at=due)

    def worker(self, size: int) -> None:
        uvloop.run(self._work(size))

    async def _work(self, size: int) -> None:
        client = awa.AsyncClient(self.url, max_connections=20)

        @client.task(Value, kind="noop", queue="q")
        async def noop(job) -> None:  # type: ignore[no-untyped-def]
            mark()

        @client.task(Value, kind="fail", queue="q")
        async def fail(job):  # type: ignore[no-untyped-def]
            mark()
            return awa.RetryAfter(0) if job.attempt == 1 else None

        @client.task(Value, kind="late", queue="q")
        async def late(job) -> None:  # type: ignore[no-untyped-def]
            mark_delay(job.args.value)

        await client.start(
            [{"name": "q", "max_workers": size, "claim_batch_size": 512}], promote_interval_ms=25
        )
        await asyncio.Event().wait()
