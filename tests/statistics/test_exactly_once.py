"""Each event counts once: through kills, with several processes, and beside a transaction that stays open."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.engine.ports import Store
from holdfast.statistics.folding import fold, lag
from tests.apps import ONCE, SOON, new_app, until, work
from tests.statistics.recount import check, stored

pytestmark = pytest.mark.anyio


class Folder:
    """A process that folds until it is killed, or with "kill" until its first figures are written."""

    def __init__(self, url: str, *options: str) -> None:
        command = [sys.executable, "-m", "tests.statistics.folder", url, *options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        with self._process.stdout as out:
            assert out.readline() == b"folding\n"

    def kill(self) -> None:
        self._process.kill()
        self.killed()

    def killed(self) -> None:
        """Wait until it has been killed."""
        assert self._process.wait(30) == -signal.SIGKILL


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Holdfast, Store]]:
    app = new_app(url)
    async with app:
        yield app, (await app.runtime.engine()).store


async def run_jobs(app: Holdfast, count: int) -> None:
    """Run jobs by a worker without maintenance, which neither folds nor promotes retries."""
    task = app.tasks.get("flaky") or app.task(retry=ONCE, name="flaky")(_flaky)
    for number in range(count):
        await task.enqueue(number)
    await work(app, maintenance=False)


async def _flaky(number: int) -> int:
    if number % 3 == 0:
        raise RuntimeError("every third")
    return number


async def fold_all(store: Store) -> None:
    while await fold(store):
        pass


@pytest.mark.slow
async def test_a_kill_between_the_figures_and_the_commit_counts_nothing_twice(
    database_url: str,
) -> None:  # E68a
    async with opened(database_url) as (app, store):
        await run_jobs(app, 30)
        for _ in range(2):
            Folder(database_url, "kill").killed()
            assert not await stored(store)
        await fold_all(store)
        await check(store)


@pytest.mark.slow
async def test_processes_that_fold_at_once_and_are_killed_count_each_event_once(
    database_url: str,
) -> None:  # E68a
    async with opened(database_url) as (app, store):
        for _ in range(3):
            first, second = Folder(database_url), Folder(database_url)
            await run_jobs(app, 40)
            first.kill()
            await run_jobs(app, 20)
            second.kill()
        assert await stored(store)
        await fold_all(store)
        await check(store)


async def test_a_transaction_that_stays_open_delays_the_statistics_and_loses_nothing(
    postgres_url: str,
) -> None:  # E68a
    async with opened(postgres_url) as (app, store):
        await run_jobs(app, 3)
        await fold_all(store)
        before = await stored(store)
        with psycopg.connect(postgres_url) as connection:
            app.tasks["flaky"].options(connection=connection).enqueue_sync(1)
            await run_jobs(app, 5)
            await fold_all(store)
            assert await stored(store) == before
            assert await lag(store) > timedelta()
            connection.commit()
        await fold_all(store)
        assert await lag(store) == timedelta()
        await check(store)


async def test_workers_keep_the_statistics(database_url: str) -> None:  # E68a
    async with opened(database_url) as (app, store):
        task = app.task(retry=SOON, name="flaky")(_flaky)
        worker = asyncio.create_task(app.run_worker())
        for number in range(10):
            await task.enqueue(number)

        async def is_folded() -> bool:
            counts = await app.jobs.counts()
            return counts["complete"] + counts["failed"] == 10 and await lag(store) == timedelta()

        await until(is_folded)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        await fold_all(store)
        await check(store)
