"""Attempts that run on for too long, with a real worker on both stores: reported, or taken back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast import Holdfast, Retry, UsageError, current_job
from tests.integration.world import SOON, Database, kinds, new_app, work

pytestmark = pytest.mark.anyio


async def test_a_stuck_attempt_is_taken_back_and_the_job_runs_again(
    db: Database, app: Holdfast
) -> None:  # E30
    stopped = asyncio.Event()

    @app.task(retry=SOON, stuck_after="200ms", stuck_action="retry")
    async def shoot() -> str:
        job = current_job()
        if job.attempt == 1:
            try:
                await asyncio.sleep(600)
            finally:
                stopped.set()
        return f"attempt {job.attempt}"

    async with app:
        handle = await shoot.enqueue()
        await work(app)
        assert await handle.result("5s") == "attempt 2"
        first, _ = await app.attempts(handle.id)
        assert first.outcome == "reclaimed"
        assert first.failure is not None
        assert first.failure.code == "STUCK"
        assert await kinds(app, handle.id) == ["queued", "processing", "reclaimed", "processing", "complete"]
    assert stopped.is_set()


async def test_a_stuck_attempt_is_reported_once_and_left_alone(
    db: Database, app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:  # E30
    @app.task(stuck_after="100ms")
    async def crawl() -> str:
        await asyncio.sleep(1)
        return "done"

    with caplog.at_level(logging.WARNING, "holdfast"):
        async with app:
            handle = await crawl.enqueue()
            await work(app)
            assert await handle.result("5s") == "done"
            assert (await handle.job()).attempt == 1
    told = [record for record in caplog.records if "job.stuck" in record.getMessage()]
    assert len(told) == 1


async def test_a_task_that_may_run_for_ever_is_never_stuck(db: Database, app: Holdfast) -> None:  # E30
    @app.task(stuck_after=None, stuck_action="retry")
    async def crawl() -> None: ...

    @app.task
    async def usual() -> None: ...

    async with app:
        engine = await app.engine()
        assert set(engine.stuck_limits()) == {"usual"}
        assert engine.stuck_limits("retry") == {}


def test_an_unknown_action_is_refused_in_one_line() -> None:  # E30
    app = new_app("memory://")
    with pytest.raises(UsageError, match="stuck_action is 'kill'; it is one of report, retry"):
        app.task(stuck_action="kill", retry=Retry(1))(_nothing)


async def _nothing() -> None: ...
