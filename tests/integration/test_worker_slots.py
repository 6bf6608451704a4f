"""A real worker whose number of slots varies: more under load, the least again without work."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.resilience.limiter import Limiter
from holdfast.worker import slots
from tests.apps import Database, new_app, working


@pytest.mark.slow
async def test_a_worker_runs_more_jobs_at_once_under_load_and_the_least_after_a_rest(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # E26
    monkeypatch.setattr(slots, "IDLE", 0.1)
    app = new_app(db.url, min_concurrency=2, concurrency=40)
    running, peak = 0, 0
    grown, rested = asyncio.Event(), asyncio.Event()
    restart = Limiter.restart

    def watched(limiter: Limiter, share: float, now: float) -> None:
        restart(limiter, share, now)
        rested.set()

    monkeypatch.setattr(Limiter, "restart", watched)

    @app.task
    async def nap() -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        if peak >= 4:
            grown.set()
        await asyncio.sleep(0.02)
        running -= 1

    async def load() -> int:
        """Keep jobs waiting until the worker has grown; return how many it ran at once in the first round."""
        nonlocal peak
        peak = 0
        grown.clear()
        await nap.enqueue_many([()] * 20)
        while (await app.jobs.counts())["queued"] > 10:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
        first = peak
        while not grown.is_set():
            await nap.enqueue_many([()] * 200)
            while (await app.jobs.counts())["queued"] > 100 and not grown.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return first

    async with asyncio.timeout(90), app, working(app):
        assert await load() <= 3
        while (await app.jobs.counts())["queued"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        rested.clear()
        await rested.wait()
        assert await load() <= 3
