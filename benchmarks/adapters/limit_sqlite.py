"""The floor on SQLite: a hand-written loop as a reference, with WAL, synchronous=FULL and one connection.

A batch is completed in the same transaction that claims the next one.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.adapters.base import Adapter
from benchmarks.marks import mark, mark_delay

TABLE = """
CREATE TABLE job (
    id      INTEGER PRIMARY KEY,
    task    TEXT NOT NULL,
    status  INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    due     REAL NOT NULL,
    lease   REAL,
    payload TEXT NOT NULL
);
CREATE INDEX job_waiting ON job (due, id) WHERE status = 0;
"""
PUT = "INSERT INTO job (task, due, payload) VALUES (?, ?, ?)"
ANY = "SELECT 1 FROM job WHERE status = 0 AND due <= ? LIMIT 1"
CLAIM = """
UPDATE job SET status = 1, attempt = attempt + 1, lease = ?
 WHERE id IN (SELECT id FROM job WHERE status = 0 AND due <= ? ORDER BY due, id LIMIT ?)
RETURNING id, task, attempt, payload
"""
COMPLETE = "UPDATE job SET status = 2, lease = NULL WHERE id = ?"
RETRY = "UPDATE job SET status = 0, lease = NULL WHERE id = ?"
POLL = 0.002
Ids = list[tuple[int]]


class Queue(Adapter):
    batch = 1000
    callers = False

    async def install(self) -> None:
        await self.open()
        self.connection.executescript(TABLE)
        await self.close()

    async def open(self) -> None:
        self.connection = connect(self.url)

    async def close(self) -> None:
        self.connection.close()

    async def put(self, task: str, value: float) -> None:
        self.connection.execute(PUT, (task, time.time(), json.dumps(value)))

    async def put_many(self, task: str, values: Sequence[int]) -> None:
        now = time.time()
        self._insert([(task, now, str(value)) for value in values])

    async def put_future(self, count: int) -> None:
        due = time.time() + 86_400
        self._insert([("noop", due + number * 1e-6, "0") for number in range(count)])

    def _insert(self, rows: list[tuple[str, float, str]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(PUT, rows)
        self.connection.execute("COMMIT")

    async def worker(self, size: int) -> None:
        connection = connect(self.url)
        done: Ids = []
        failed: Ids = []
        while True:
            now = time.time()
            if not done and not failed and connection.execute(ANY, (now,)).fetchone() is None:
                await asyncio.sleep(POLL)
                continue
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(COMPLETE, done)
            connection.executemany(RETRY, failed)
            rows = connection.execute(CLAIM, (now + 30, now, size)).fetchall()
            connection.execute("COMMIT")
            done, failed = [], []
            await asyncio.gather(*[asyncio.create_task(run(row, done, failed)) for row in rows])


def connect(path: str) -> sqlite3.Connection:
    """Open the file with the settings of the floor."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


async def run(row: Sequence[Any], done: Ids, failed: Ids) -> None:
    """Run one job, and add its id to *done* or *failed*."""
    number, task, attempt, payload = row
    value = json.loads(payload)
    if task == "late":
        mark_delay(value)
    else:
        mark()
        if task == "fail" and attempt == 1:
            failed.append((number,))
            return
    done.append((number,))
