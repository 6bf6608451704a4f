"""The interface of a queue in the benchmark. Uses the standard library only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any


class Adapter:
    """A queue with three tasks.

    `noop` marks, `fail` marks and fails on its first attempt, `late` marks the delay since its argument. Each
    `put` returns after its commit.
    """

    batch = 0  #: jobs per call of `put_many`; 0 if the queue has no bulk call
    callers = True  #: whether `put_among` can be called concurrently

    def __init__(self, url: str) -> None:
        self.url = url  #: a DSN, or the path of an SQLite file

    async def install(self) -> None:
        """Create the tables in an empty database."""

    async def open(self) -> None:
        """Connect to the store."""

    async def close(self) -> None:
        """Disconnect from the store."""

    async def put(self, task: str, value: float) -> None:
        """Enqueue one job."""
        raise NotImplementedError

    async def put_among(self, task: str, value: float) -> None:
        """Enqueue one job, as one of a hundred concurrent callers."""
        await self.put(task, value)

    def sync_put(self) -> Callable[[str, int], object]:
        """Return a function that enqueues one job without an event loop, where the queue has one."""
        raise NotImplementedError

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        """Enqueue many jobs, by the queue's bulk call if it has one."""
        await asyncio.gather(*[self.put_among(task, value) for value in values])

    async def put_future(self, count: int) -> None:
        """Enqueue *count* jobs that are due in a day."""
        raise NotImplementedError

    def worker(self, size: int) -> Any:
        """Run jobs until killed. *size* is the number of concurrent jobs, or of jobs per claim."""
        raise NotImplementedError
