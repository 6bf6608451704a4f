"""Write in groups: items that arrive during one write share the next one.

There is no timer. When no write is running, an item is written at once; under load the groups grow by themselves. Each
caller gets its answer after its own commit, never before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import StoreUnavailable

Item = TypeVar("Item")
Out = TypeVar("Out")

MOST_AT_ONCE = 1000


class Coalescer(Generic[Item, Out]):
    """Turns many calls with one item into few calls of *write* with many, at most *most* at a time."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Out]]], most: int = MOST_AT_ONCE
    ) -> None:
        self._write = write
        self._most = most
        self._waiting: deque[tuple[Item, asyncio.Future[Out]]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._busy = False  #: a lone caller is writing

    async def do(self, item: Item) -> Out:
        """Write *item*, and return its answer after the commit. A lone caller writes without a task in between."""
        if self._busy or self._writer is not None:
            return await self.put(item)
        self._busy = True
        try:
            [out] = await self._write([item])
            return out
        finally:
            self._busy = False
            if self._waiting and self._writer is None:
                self._writer = asyncio.ensure_future(self._run())

    def put(self, item: Item) -> asyncio.Future[Out]:
        """Queue *item*, and return a future that is done after the commit that contains it."""
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._writer is None and not self._busy:
            self._writer = asyncio.ensure_future(self._run())
        return answer

    async def flushed(self) -> None:
        """Wait until every item queued so far has its answer."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
                await self._flush(batch)
        finally:
            self._writer = None

    async def _flush(self, batch: list[tuple[Item, asyncio.Future[Out]]]) -> None:
        try:
            outs = await self._write([item for item, _ in batch])
        except BaseException as error:
            if len(batch) > 1 and isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
                # An item that is refused must not fail the others. Halving finds one refused item among a thousand without a
                # thousand writes.
                middle = len(batch) // 2
                await self._flush(batch[:middle])
                await self._flush(batch[middle:])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # retrieved, because a caller that is gone would make asyncio warn
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), out in zip(batch, outs, strict=True):
            if not answer.done():
                answer.set_result(out)
