"""The clock leaps a day and an hour: what waited for its time is still there, and runs once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import Holdfast
from tests.e2e.faults.app import make_app
from tests.e2e.faults.test_odd_jobs import SteppedClock
from tests.e2e.faults.world import Site, eventually

pytestmark = pytest.mark.slow

LEAP = timedelta(hours=25)
FAR = timedelta(minutes=5)


@asynccontextmanager
async def crew_of_two(site: Site, ahead: timedelta) -> AsyncIterator[list[Holdfast]]:
    """Two workers on a store whose clock is so far *ahead*: the server's own on PostgreSQL, the machine's on SQLite."""
    if site.is_postgres:
        name = site.url.rpartition("/")[2]
        with psycopg.connect(site.url, autocommit=True) as server:
            server.execute(
                f"ALTER DATABASE {name} SET holdfast.clock_offset = '{ahead.total_seconds()} s'".encode()
            )
    apps = [
        make_app(site.url, clock=SteppedClock(ahead), poll="100ms", reclaim_every="200ms") for _ in range(2)
    ]
    workers = [asyncio.create_task(app.run_worker()) for app in apps]
    try:
        yield apps
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for app in apps:
            await app.close()


async def waits_again(app: Holdfast, job_id: str, attempt: int) -> bool:
    row = await app.jobs.get(job_id)
    return row.state == "queued" and row.attempt == attempt


async def test_a_job_in_back_off_outlives_a_leap_of_a_day_and_an_hour(site: Site) -> None:  # E7 E10
    job_id = await site.enqueue("fail_slowly")  # an hour between its three attempts
    delayed = (await site.app.tasks["echo"].options(delay="24h").enqueue(value=5)).id
    for attempt in (1, 2):
        ahead = LEAP * (attempt - 1)
        async with crew_of_two(site, ahead) as (app, _):
            await eventually(
                lambda app=app, attempt=attempt: waits_again(app, job_id, attempt),  # type: ignore[misc]
                f"attempt {attempt} to fail",
            )
            row = await app.jobs.get(job_id)
            due = row.run_at - (datetime.now(UTC) + ahead)
            assert timedelta(hours=1) - FAR < due < timedelta(hours=1) + FAR
            assert len(site.journal("start", job_id)) == attempt
            if attempt == 1:
                assert (await app.jobs.get(delayed)).attempt == 0
    async with crew_of_two(site, 2 * LEAP) as (app, _):
        await eventually(lambda: _is(app, job_id, "failed"), "the last attempt")
        await eventually(lambda: _is(app, delayed, "complete"), "the delayed job")
        row = await app.jobs.get(job_id)
        assert (row.state, row.attempt, row.crashes, row.generation) == ("failed", 3, 0, 1)
        assert (await app.jobs.get(delayed)).result == 5
        kinds = [event.kind for event in await app.events.list(job_id=job_id)]
        assert kinds == ["queued", *["processing", "retry"] * 2, "processing", "failed"]
        assert await (await app.runtime.engine()).store.queries.violations() == []
    assert [start["attempt"] for start in site.journal("start", job_id)] == [1, 2, 3]
    assert len(site.journal("start", delayed)) == 1


async def _is(app: Holdfast, job_id: str, state: str) -> bool:
    return (await app.jobs.get(job_id)).state == state
