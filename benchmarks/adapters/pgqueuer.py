"""The adapter of PgQueuer, on asyncpg.

Size: its `batch_size`, the jobs per dequeue, which run concurrently.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.errors import RetryRequested
from pgqueuer.queries import Queries

from benchmarks.adapters.base import Adapter
from benchmarks.marks import mark, mark_delay


class Queue(Adapter):
    batch = 1000

    async def install(self) -> None:
        connection = await asyncpg.connect(self.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        self.connection = await asyncpg.connect(self.url)
        self.pool = await asyncpg.create_pool(self.url, min_size=0, max_size=10)
        self.single = Queries(AsyncpgDriver(self.connection))
        self.pooled = Queries(AsyncpgPoolDriver(self.pool))

    async def close(self) -> None:
        await self.pool.close()
        await self.connection.close()

    async def put(self, task: str, value: float) -> None:
        await self.single.enqueue(task, str(value).encode())

    async def put_among(self, task: str, value: float) -> None:
        await self.pooled.enqueue(task, str(value).encode())

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        payloads: list[bytes | None] = [str(value).encode() for value in values]
        await self.single.enqueue([task] * len(values), payloads, [0] * len(values))

    async def put_future(self, count: int) -> None:
        for start in range(0, count, 5000):
            some = min(5000, count - start)
            await self.single.enqueue(["noop"] * some, [b"0"] * some, [0] * some, [timedelta(days=1)] * some)

    async def worker(self, size: int) -> None:
        async with asyncpg.create_pool(self.url, min_size=2, max_size=10) as pool:
            queue = PgQueuer(AsyncpgPoolDriver(pool))

            @queue.entrypoint("noop")
            async def noop(job) -> None:  # type: ignore[no-untyped-def]
                mark()

            @queue.entrypoint("fail")
            async def fail(job) -> None:  # type: ignore[no-untyped-def]
                mark()
                if job.attempts == 0:
                    raise RetryRequested(delay=timedelta(0))

            @queue.entrypoint("late")
            async def late(job) -> None:  # type: ignore[no-untyped-def]
                mark_delay(float(job.payload))

            await queue.run(batch_size=size, dequeue_timeout=timedelta(seconds=5))
