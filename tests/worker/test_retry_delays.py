"""The waits between attempts in a whole app: what a worker makes of a jitter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast, Retry
from holdfast.testing import app_in_memory, drain

pytestmark = pytest.mark.anyio


async def test_jobs_that_failed_together_drift_apart() -> None:  # E11
    app = Holdfast("memory://")

    @app.task(retry=Retry(3, base="10s", factor=1, jitter="decorrelated"))
    async def call() -> None:
        raise ConnectionError("down")

    waits: list[list[timedelta]] = []
    with app_in_memory(app):
        jobs = await call.enqueue_many([()] * 30)
        await drain(app, advance=True)
        for job in jobs:
            first, second, third = await app.jobs.attempts(job.id)
            assert first.ended_at
            assert second.ended_at
            waits.append([second.started_at - first.ended_at, third.started_at - second.ended_at])

    low, tick = timedelta(seconds=10), timedelta(milliseconds=1)
    for place in (0, 1):
        taken = [wait[place] for wait in waits]
        assert low <= min(taken)
        assert max(taken) <= low * 3 ** (place + 1) + tick
        assert len(set(taken)) > 20
    assert max(wait[1] for wait in waits) > low * 3  # three times the wait before, not three times the first
