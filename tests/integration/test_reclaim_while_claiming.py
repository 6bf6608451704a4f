"""A worker that has room takes back what lost workers hold, whether or not duties run anywhere."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast, State
from tests.apps import Database, kinds, new_app, work

pytestmark = pytest.mark.anyio


async def test_a_lone_worker_without_duties_recovers_a_lost_workers_job(
    db: Database, app: Holdfast
) -> None:  # E30
    ran = asyncio.Event()

    @app.task
    async def ship() -> None:
        ran.set()

    async with app:
        handle = await ship.enqueue()
        store = (await app.runtime.engine()).store
        lost = await store.open_session("killed", timedelta(minutes=1))
        assert len(await store.claim(lost, [ship.lane], 1)) == 1
        await store.close_session(lost)  # as if its time had run out
        async with asyncio.timeout(20):
            await work(app, maintenance=False)
        assert ran.is_set()
        assert (await handle.job()).state is State.COMPLETE
        assert await kinds(app, handle.id) == ["queued", "processing", "reclaimed", "processing", "complete"]


async def test_it_looks_only_as_often_as_the_setting_says(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # E30
    app = new_app(db.url, reclaim_every="1h", poll="5ms")
    looks = 0

    @app.task
    async def ship() -> None: ...

    async with app:
        engine = await app.runtime.engine()
        reclaim = engine.recovery.reclaim

        async def counted() -> int:
            nonlocal looks
            looks += 1
            return await reclaim()

        monkeypatch.setattr(engine.recovery, "reclaim", counted)
        for _ in range(3):
            await ship.enqueue()
            await work(app, maintenance=False)
        assert looks == 1
