"""The adapter of Holdfast, on both stores. Its worker is the command `holdfast worker`, see subjects.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.adapters.base import Adapter
from benchmarks.app import make


class Queue(Adapter):
    batch = 20_000

    async def install(self) -> None:
        app = make()
        await app.migrate()
        await app.close()

    async def open(self) -> None:
        self.app = make()
        await self.app.__aenter__()

    async def close(self) -> None:
        await self.app.close()

    async def put(self, task: str, value: float) -> None:
        await self.app.tasks[task].enqueue(value)

    def sync_put(self) -> Callable[[str, int], object]:
        tasks = make().tasks
        return lambda task, value: tasks[task].enqueue_sync(value)

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        await self.app.tasks[task].enqueue_many(values)

    async def put_future(self, count: int) -> None:
        for start in range(0, count, self.batch):
            await (
                self.app.tasks["noop"].options(delay="1d").enqueue_many([0] * min(self.batch, count - start))
            )
