"""The process on one queue's side, in that queue's environment. Uses the standard library and the queue only.

python -m benchmarks.client ADAPTER             reads commands, one JSON object a line, and answers each with
one python -m benchmarks.client ADAPTER worker N    runs a worker of size N, for queues without a command of
their own
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
    """The commands, each a method that returns its answer."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter

    @contextlib.asynccontextmanager
    async def opened(self) -> Any:
        """Yield the adapter, connected to its store."""
        await self.adapter.open()
        try:
            yield self.adapter
        finally:
            await self.adapter.close()

    async def facts(self) -> Answer:
        """Return whether the queue has a bulk call and supports concurrent callers."""
        return {"bulk": self.adapter.batch > 0, "callers": self.adapter.callers}

    async def install(self) -> Answer:
        """Create the queue's tables."""
        await self.adapter.install()
        return {}

    async def single(self, seconds: float) -> Answer:
        """Enqueue single jobs from one caller for *seconds*, and return their rate."""
        async with self.opened() as queue:
            for value in range(WARM_UP):
                await queue.put("noop", value)
            cpu, started, count = time.process_time(), time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                await queue.put("noop", count)
                count += 1
            return _rate(count, started) | {"client_us": (time.process_time() - cpu) / count * 1e6}

    def single_sync(self, seconds: float) -> Answer:
        """Enqueue single jobs from code without an event loop, and return their rate."""
        put = self.adapter.sync_put()
        for value in range(WARM_UP):
            put("noop", value)
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            put("noop", count)
            count += 1
        return _rate(count, started)

    async def callers(self, seconds: float, callers: int) -> Answer:
        """Enqueue single jobs from concurrent callers, and return their rate.

        Each caller waits for its commit before it calls again.
        """
        count = 0

        async def caller() -> None:
            nonlocal count
            while time.perf_counter() - started < seconds:
                await queue.put_among("noop", count)
                count += 1

        async with self.opened() as queue:
            await queue.put_among("noop", 0)
            started = time.perf_counter()
            await asyncio.gather(*[caller() for _ in range(callers)])
            return _rate(count, started)

    async def fill(self, task: str, count: int, batch: int = 0) -> Answer:
        """Enqueue *count* jobs in bulk, and return their rate."""
        batch = batch or self.adapter.batch or 50
        async with self.opened() as queue:
            started = time.perf_counter()
            for start in range(0, count, batch):
                await queue.put_many(task, range(start, min(start + batch, count)))
            return _rate(count, started)

    async def future(self, count: int) -> Answer:
        """Enqueue *count* jobs that are due in a day, and return their rate."""
        async with self.opened() as queue:
            started = time.perf_counter()
            await queue.put_future(count)
            return _rate(count, started)

    async def latency(self, count: int, gap: float, warm_up: int) -> Answer:
        """Enqueue a job every *gap* seconds, which marks how late it started."""
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
        """Enqueue one job."""
        async with self.opened() as queue:
            await queue.put("late", time.time())
        return {}

    async def produce(self, seconds: float, batch: int, backlog: int) -> Answer:
        """Enqueue jobs for *seconds*, so that about *backlog* of them wait, judged by the marks."""
        count, end = 0, time.monotonic() + seconds
        async with self.opened() as queue:
            while time.monotonic() < end:
                if count - marked() > backlog:
                    await asyncio.sleep(0.003)
                    continue
                await queue.put_many("noop", range(count, count + batch))
                count += batch
        return {"count": count}


def _rate(count: int, started: float) -> Answer:
    return {"n": count, "rate": count / (time.perf_counter() - started)}


def serve(commands: Commands) -> None:
    """Run the commands from stdin, and write their answers to stdout."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # sends what a queue prints to stderr, away from the answers
    for line in sys.stdin:
        command = json.loads(line)
        try:
            outcome = getattr(commands, command.pop("do"))(**command)
            answer = asyncio.run(outcome) if inspect.iscoroutine(outcome) else outcome
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answers.write(json.dumps(answer) + "\n")


def main() -> None:
    module = importlib.import_module(f"benchmarks.adapters.{sys.argv[1]}")
    adapter = module.Queue(os.environ["BENCH_URL"])
    if sys.argv[2:3] == ["worker"]:
        worker = adapter.worker(int(sys.argv[3]))
        if inspect.iscoroutine(worker):
            asyncio.run(worker)
    else:
        serve(Commands(adapter))


if __name__ == "__main__":
    main()
