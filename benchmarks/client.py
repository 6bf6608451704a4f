"""One queue's side of the benchmark, in that queue's own environment. Standard library and the queue only.

python -m benchmarks.client ADAPTER             reads commands, one JSON object a line, and answers each with one
python -m benchmarks.client ADAPTER worker N    is a worker of size N, for queues that bring no command for it
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import sys
import time
import traceback
from typing import Any

from benchmarks.adapters.base import Adapter
from benchmarks.marks import marked

Answer = dict[str, Any]
WARM_UP = 20


class Commands:
    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    @contextlib.asynccontextmanager
    async def opened(self) -> Any:
        await self.adapter.open()
        try:
            yield self.adapter
        finally:
            await self.adapter.close()

    async def facts(self) -> Answer:
        return {"bulk": self.adapter.batch > 0, "callers": self.adapter.callers}

    async def install(self) -> Answer:
        await self.adapter.install()
        return {}

    async def single(self, seconds: float) -> Answer:
        """One caller, one job a call."""
        async with self.opened() as queue:
            for value in range(WARM_UP):
                await queue.put("noop", value)
            busy, began, count = time.process_time(), time.perf_counter(), 0
            while time.perf_counter() - began < seconds:
                await queue.put("noop", count)
                count += 1
            return _rate(count, began) | {"client_us": (time.process_time() - busy) / count * 1e6}

    def single_sync(self, seconds: float) -> Answer:
        """The same from code without an event loop."""
        put = self.adapter.sync_put()
        for value in range(WARM_UP):
            put("noop", value)
        began, count = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            put("noop", count)
            count += 1
        return _rate(count, began)

    async def callers(self, seconds: float, callers: int) -> Answer:
        """Many callers at once, each answered after its own commit before it calls again."""
        count = 0

        async def caller() -> None:
            nonlocal count
            while time.perf_counter() - began < seconds:
                await queue.put_among("noop", count)
                count += 1

        async with self.opened() as queue:
            await queue.put_among("noop", 0)
            began = time.perf_counter()
            await asyncio.gather(*[caller() for _ in range(callers)])
            return _rate(count, began)

    async def fill(self, task: str, count: int, batch: int = 0) -> Answer:
        batch = batch or self.adapter.batch or 50
        async with self.opened() as queue:
            began = time.perf_counter()
            for start in range(0, count, batch):
                await queue.put_many(task, range(start, min(start + batch, count)))
            return _rate(count, began)

    async def future(self, count: int) -> Answer:
        async with self.opened() as queue:
            began = time.perf_counter()
            await queue.put_future(count)
            return _rate(count, began)

    async def latency(self, count: int, gap: float, warm_up: int) -> Answer:
        """A job every *gap* seconds; its body says how late it began."""
        async with self.opened() as queue:
            await queue.put("late", time.time())
            while not marked():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            due = time.perf_counter()
            for _ in range(warm_up + count):
                await queue.put("late", time.time())
                due += gap
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
        return {}

    async def one(self) -> Answer:
        async with self.opened() as queue:
            await queue.put("late", time.time())
        return {}

    async def produce(self, seconds: float, batch: int, backlog: int) -> Answer:
        """Keep about *backlog* jobs waiting, by what the bodies have marked."""
        count, end = 0, time.monotonic() + seconds
        async with self.opened() as queue:
            while time.monotonic() < end:
                if count - marked() > backlog:
                    await asyncio.sleep(0.003)
                    continue
                await queue.put_many("noop", range(count, count + batch))
                count += batch
        return {"count": count}


def _rate(count: int, began: float) -> Answer:
    return {"n": count, "rate": count / (time.perf_counter() - began)}


def serve(commands: Commands) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a queue prints must not stand between the answers
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            said = getattr(commands, asked.pop("do"))(**asked)
            answer = asyncio.run(said) if inspect.iscoroutine(said) else said
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")


def main() -> None:
    module = importlib.import_module(f"benchmarks.adapters.{sys.argv[1]}")
    adapter = module.Queue(os.environ["BENCH_URL"])
    if sys.argv[2:3] == ["worker"]:
        running = adapter.worker(int(sys.argv[3]))
        if inspect.iscoroutine(running):
            asyncio.run(running)
    else:
        serve(Commands(adapter))


if __name__ == "__main__":
    main()
