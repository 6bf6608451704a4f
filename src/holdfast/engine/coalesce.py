"""Group writes: whatever arrives while one write is under way travels together in the next.

There is no timer. When nothing is under way an item leaves at once; under load the batches grow by themselves.
Each caller is answered after its own commit, never before.
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
    """Turns calls for one item into calls of *write* for many."""

    def __init__(
        self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Out]]], most: int = MOST_AT_ONCE
    ) -> None:
        self._write = write
        self._most = most
        self._waiting: deque[tuple[Item, asyncio.Future[Out]]] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._busy = False  #: a lone caller is writing

    async def do(self, item: Item) -> Out:
        """`put` and wait. A lone caller writes by itself; who comes meanwhile travels together after it."""
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
        """Hand over *item*; the future is done after the commit that contains it."""
        answer: asyncio.Future[Out] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        if self._writer is None and not self._busy:
            self._writer = asyncio.ensure_future(self._run())
        return answer

    async def flushed(self) -> None:
        """Wait until everything handed over so far has been answered."""
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
                # An item that cannot be written must not take its neighbours down. By halves: where one of a thousand is
                # refused (its owner has no credits), the others should not need a thousand writes.
                middle = len(batch) // 2
                await self._flush(batch[:middle])
                await self._flush(batch[middle:])
                return
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
                    answer.exception()  # asked for: a caller that went away must not make a warning
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), out in zip(batch, outs, strict=True):
            if not answer.done():
                answer.set_result(out)
