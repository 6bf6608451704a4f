"""The adapter of Huey, on SQLite with synchronous=FULL. Size: consumer threads.

Huey delivers at most once: it deletes a task when it takes it. Its own command imports `consumer`, see
subjects.py.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import Any

from huey import SqliteHuey

from benchmarks.adapters.base import Adapter
from benchmarks.marks import mark, mark_delay

SEEN: set[int] = set()


def make(path: str) -> tuple[SqliteHuey, dict[str, Any]]:
    """Return a queue on the file at *path*, and its tasks by name."""
    queue = SqliteHuey("q", filename=path, results=False, fsync=True)

    def noop(value: int) -> None:
        mark()

    def fail(value: int) -> None:
        mark()
        if value not in SEEN:
            SEEN.add(value)
            raise ValueError("the first attempt fails")

    def late(value: float) -> None:
        mark_delay(value)

    tasks = {
        "noop": queue.task(name="noop")(noop),
        "fail": queue.task(name="fail", retries=3, retry_delay=0)(fail),
        "late": queue.task(name="late")(late),
    }
    return queue, tasks


class Queue(Adapter):
    callers = False

    async def install(self) -> None:
        make(self.url)

    async def open(self) -> None:
        self.queue, self.tasks = make(self.url)

    async def close(self) -> None:
        self.queue.storage.close()

    async def put(self, task: str, value: float) -> None:
        self.tasks[task](value)

    async def put_future(self, count: int) -> None:
        """Write the tasks directly to the schedule, to which a consumer would move them."""
        self.tasks["noop"].schedule((0,), delay=86_400)
        one = self.queue.storage.dequeue()
        due = time.time() + 86_400
        with sqlite3.connect(self.url) as connection:
            connection.executemany(
                "INSERT INTO schedule (queue, data, timestamp) VALUES ('q', ?, ?)",
                ((one, due + number * 1e-3) for number in range(count)),
            )
        connection.close()


def __getattr__(name: str) -> SqliteHuey:
    if name == "consumer":
        return make(os.environ["BENCH_URL"])[0]
    raise AttributeError(name)
