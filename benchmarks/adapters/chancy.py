"""The adapter of Chancy, with its async executor and eager polling. Size: the queue's `concurrency`.

Completions are sent every 50 ms instead of every second.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chancy import Chancy, Worker, job
from chancy import Queue as Lane

from benchmarks.adapters.base import Adapter
from benchmarks.adapters.sqlcopy import copy_row
from benchmarks.marks import mark, mark_delay

SEEN: set[int] = set()


@job(queue="q")
async def noop(*, value: int) -> None:
    mark()


@job(queue="q", max_attempts=3)
async def fail(*, value: int) -> None:
    mark()
    if value not in SEEN:
        SEEN.add(value)
        raise ValueError("the first attempt fails")


@job(queue="q")
async def late(*, value: float) -> None:
    mark_delay(value)


JOBS: dict[str, Any] = {"noop": noop, "fail": fail, "late": late}


class Queue(Adapter):
    batch = 1000

    def _app(self) -> Chancy:
        return Chancy(self.url, log=logging.getLogger("silent"))

    async def install(self) -> None:
        async with self._app() as app:
            await app.migrate()

    async def open(self) -> None:
        self.app = self._app()
        await self.app.__aenter__()

    async def close(self) -> None:
        await self.app.__aexit__(None, None, None)

    async def put(self, task: str, value: float) -> None:
        await self.app.push(JOBS[task].job.with_kwargs(value=value))

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        jobs = [JOBS[task].job.with_kwargs(value=value) for value in values]
        async for _ in self.app.push_many(jobs, batch_size=len(jobs)):
            pass

    async def put_future(self, count: int) -> None:
        due = datetime.now(UTC) + timedelta(days=1)
        await self.app.push(noop.job.with_kwargs(value=0).with_scheduled_at(due))
        copy_row(self.url, "chancy_jobs", "id", "gen_random_uuid()", count - 1)

    async def worker(self, size: int) -> None:
        async with self._app() as app:
            lane = Lane(
                "q", concurrency=size, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
            )
            await app.declare(lane, upsert=True)
            worker = Worker(app)
            worker.send_outgoing_interval = 0.05
            async with worker:
                await worker.wait_for_shutdown()
