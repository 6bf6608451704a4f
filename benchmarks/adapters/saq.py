"""The adapter of SAQ, on PostgreSQL. Size: its `concurrency`. SAQ has no bulk call."""

from __future__ import annotations

import logging
import time
from typing import Any

from saq import Queue as Saq
from saq import Worker

from benchmarks.adapters.base import Adapter
from benchmarks.adapters.sqlcopy import copy_row
from benchmarks.marks import mark, mark_delay


async def noop(context: Any, *, value: int) -> None:
    mark()


async def fail(context: Any, *, value: int) -> None:
    mark()
    if context["job"].attempts == 1:
        raise ValueError("the first attempt fails")


async def late(context: Any, *, value: float) -> None:
    mark_delay(value)


class Queue(Adapter):
    def _queue(self) -> Any:
        return Saq.from_url(self.url, name="q", min_size=4, max_size=20)

    async def install(self) -> None:
        await self.open()  # creates the tables
        await self.close()

    async def open(self) -> None:
        self.queue = self._queue()
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    async def put(self, task: str, value: float) -> None:
        await self.queue.enqueue(task, value=value, retries=3, retry_delay=0.0)

    async def put_future(self, count: int) -> None:
        await self.queue.enqueue("noop", value=0, scheduled=int(time.time()) + 86_400)
        copy_row(self.url, "saq_jobs", "key", "key || '-' || n", count - 1)

    async def worker(self, size: int) -> None:
        logging.disable(logging.CRITICAL)
        queue = self._queue()
        await queue.connect()
        await Worker(queue, functions=[noop, fail, late], concurrency=size).start()
