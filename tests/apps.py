"""Short words for what these tests do most: an app, its database as others see it, and a worker until nothing is left."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from typing import Any

import psycopg

from holdfast import Holdfast, JobRow, Retry

SOON = Retry(3, base="1ms", jitter="none")
ONCE = Retry(1)


def new_app(url: str, **settings: Any) -> Holdfast:
    return Holdfast(url, **{"poll": "20ms", "reclaim_every": "20ms", **settings})


class Database:
    """The database of an app, looked at from outside."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_postgres = url.startswith("postgres")
        self.path = "" if self.is_postgres else url.removeprefix("sqlite:///")

    def prepare(self) -> None:
        self.execute("CREATE TABLE note (text text NOT NULL)")

    def execute(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One committed statement; `?` is the placeholder."""
        if self.is_postgres:
            with psycopg.connect(self.url) as connection:
                cursor = connection.execute(sql.replace("?", "%s").encode(), parameters)
                return cursor.fetchall() if cursor.description else []
        with closing(sqlite3.connect(self.path)) as file, file:
            return file.execute(sql, parameters).fetchall()

    @property
    def notes(self) -> list[str]:
        return [row[0] for row in self.execute("SELECT text FROM note ORDER BY text")]

    @property
    def job_table(self) -> str:
        return "holdfast.job" if self.is_postgres else "holdfast_job"

    @property
    def id_column(self) -> str:
        return "id" if self.is_postgres else "uid"

    def count(self, table: str) -> int:
        [(count,)] = self.execute(
            f"SELECT count(*) FROM {'holdfast.' if self.is_postgres else 'holdfast_'}{table}"
        )
        return int(count)

    def corrupt(self, job_id: str, payload: str) -> None:
        self.execute(f"UPDATE {self.job_table} SET payload = ? WHERE {self.id_column} = ?", payload, job_id)


@asynccontextmanager
async def working(app: Holdfast, **options: Any) -> AsyncIterator[None]:
    worker = asyncio.create_task(app.run_worker(**options))
    try:
        yield
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def until(condition: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():  # noqa: ASYNC110 - asks as a user would; nothing tells of it
            await asyncio.sleep(0.02)


async def work(app: Holdfast, **options: Any) -> None:
    """A real worker, until nothing is left."""
    async with asyncio.timeout(30):
        await app.run_worker(until_idle=True, **options)


async def work_and_look(app: Holdfast, *job_ids: str) -> list[JobRow]:
    async with app:
        await work(app)
        return [await app.jobs.get(job_id) for job_id in job_ids]


async def kinds(app: Holdfast, job_id: str) -> list[str]:
    return [event.kind for event in await app.events.list(job_id=job_id)]
