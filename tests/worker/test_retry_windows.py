"""Retry windows in a whole app: the worker judges by the time it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, JobFailed, Retry
from holdfast.policies import Window, Windows
from holdfast.testing import ManualClock, app_in_memory, drain

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
DAYTIME = Windows(deny=[Window(start="08:00", end="18:00")], ramp="10m")


def failing_app() -> Holdfast:
    app = Holdfast("memory://")

    @app.task(retry=Retry(3, base="10s", windows=DAYTIME))
    async def call() -> None:
        raise ConnectionError("down")

    return app


async def test_a_first_attempt_starts_at_once_and_its_retry_after_the_opening() -> None:  # E16
    app, clock = failing_app(), ManualClock(NOON)
    with app_in_memory(app, clock=clock):
        job = await app.tasks["call"].enqueue()
        done = await drain(app)
        assert (done.attempts, done.retried) == (1, 1)
        row = await job.job()
        opening = NOON.replace(hour=18)
        assert opening <= row.run_at <= opening + timedelta(minutes=10)
        assert row.attempt == 1  # the wait burns nothing


async def test_an_opening_after_the_deadline_ends_the_job_now() -> None:  # E15 E16
    app, clock = failing_app(), ManualClock(NOON)
    with app_in_memory(app, clock=clock):
        job = await app.tasks["call"].options(deadline="2h").enqueue()
        await drain(app)
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await job.result()
        assert clock.now() == NOON
