"""The face that every queue shows to the benchmark. Standard library only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any


class Adapter:
    """One queue with the tasks `noop` (marks), `fail` (marks, and fails on its first attempt) and `late` (marks the
    delay since its argument). Every `put` returns after its commit."""

    batch = 0  #: jobs per call of `put_many`; 0: the queue has no such call
    callers = True  #: may `put_among` be called by many at once?

    def __init__(self, url: str) -> None:
        self.url = url  #: a DSN, or the path of an SQLite file

    async def install(self) -> None:
        """Make the tables, in an empty database."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def put(self, task: str, value: float) -> None:
        raise NotImplementedError

    async def put_among(self, task: str, value: float) -> None:
        """`put`, as one of a hundred concurrent callers."""
        await self.put(task, value)

    def sync_put(self) -> Callable[[str, int], object]:
        """A `put` for code without an event loop, where that is a way of its own."""
        raise NotImplementedError

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        await asyncio.gather(*[self.put_among(task, value) for value in values])

    async def put_future(self, count: int) -> None:
        """Jobs that are due in a day."""
        raise NotImplementedError

    def worker(self, size: int) -> Any:
        """Run jobs until killed. *size*: jobs at once, or jobs per claim."""
        raise NotImplementedError
