"""Many hands that reach for one expired lease, and hands that come too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast.engine.engine import Engine
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.jobs.job import Claimed, Settlement
from holdfast.jobs.verdict import Complete, Release
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import Site
from tests.heartbeats import extend

HOUR = timedelta(hours=1)


@pytest.fixture
async def engines(site: Site) -> AsyncIterator[list[Engine]]:
    """Four more ways to the same database, each with connections of its own."""
    apps = [make_app(site.url) for _ in range(4)]
    yield [await app.runtime.engine() for app in apps]
    for app in apps:
        await app.close()


async def orphans(site: Site, count: int) -> list[Claimed]:
    """Jobs whose worker is gone: claimed by a session that has ended."""
    await site.enqueue_many("echo", [{"value": n} for n in range(count)])
    store = await site.store()
    session = await store.open_session("gone", HOUR)
    claimed = await store.claim(session, [site.app.tasks["echo"].lane], count)
    assert len(claimed) == count
    await store.close_session(session)
    return claimed


async def test_of_four_reclaimers_one_takes_the_job_back(site: Site, engines: list[Engine]) -> None:  # E5 E30
    for _ in range(25):
        [lost] = await orphans(site, 1)
        barrier = asyncio.Barrier(len(engines))

        async def reclaim(engine: Engine, barrier: asyncio.Barrier = barrier) -> int:
            await barrier.wait()
            return await engine.recovery.reclaim()

        assert sum(await asyncio.gather(*map(reclaim, engines))) == 1
        row = await site.app.jobs.get(lost.lease.job_id)
        assert (row.state, row.attempt, row.crashes, row.generation) == ("queued", 1, 1, 1)
        assert await site.kinds(row.id) == ["queued", "processing", "reclaimed"]
        await site.app.jobs.cancel(row.id)
    assert await (await site.store()).queries.violations() == []


async def test_a_job_completed_after_the_reaper_looked_stays_complete(site: Site) -> None:  # E4 E5
    [lost] = await orphans(site, 1)
    engine = await site.app.runtime.engine()
    store = engine.store
    [seen] = await store.expired(10)
    assert await store.settle([Settlement(lost.lease, Complete("1"), lost.attempt)]) == [
        SettlementStatus.APPLIED
    ]
    assert await store.reclaim([engine.recovery._judge_expired(seen)]) == 0
    row = await site.app.jobs.get(lost.lease.job_id)
    assert (row.state, row.result, row.attempt, row.crashes) == ("complete", 1, 1, 0)
    assert await site.kinds(row.id) == ["queued", "processing", "complete"]


async def test_a_job_claimed_again_after_the_reaper_looked_is_left_alone(site: Site) -> None:  # E4
    [lost] = await orphans(site, 1)
    engine = await site.app.runtime.engine()
    seen = await engine.store.expired(10)
    assert await engine.recovery.reclaim() == 1
    session = await engine.store.open_session("next", HOUR)
    [again] = await engine.store.claim(session, [lost.lane], 1)
    assert await engine.store.reclaim([engine.recovery._judge_expired(one) for one in seen]) == 0
    assert (await engine.store.held(session)) == {again.lease}


async def test_an_exhausted_job_does_not_hide_the_orphans_beside_it(site: Site) -> None:  # E2a E30
    last = (await site.app.tasks["echo"].options(max_attempts=1).enqueue(value=0)).id
    lost = await orphans(site, 50)
    mine = [one.lease.job_id for one in lost if one.lease.job_id != last]
    if len(mine) == 50:  # it was behind them in line
        [alone] = await orphans(site, 1)
        assert alone.lease.job_id == last
    engine = await site.app.runtime.engine()
    assert await engine.recovery.reclaim() == 51 - (len(mine) < 50)
    row = await site.app.jobs.get(last)
    assert (row.state, row.error_code) == ("failed", "WORKER_LOST")
    rows = [await site.app.jobs.get(one) for one in mine]
    assert {(row.state, row.attempt, row.crashes) for row in rows} == {("queued", 1, 1)}
    assert await engine.recovery.reclaim() == 0


async def test_more_orphans_than_one_look_can_hold_are_all_reclaimed(site: Site) -> None:  # E30
    lost = [one for _ in range(3) for one in await orphans(site, 400)]
    assert await (await site.app.runtime.engine()).recovery.reclaim() == len(lost) == 1200
    assert (await site.app.jobs.counts())["processing"] == 0


async def test_a_zombie_of_the_same_name_touches_nothing_of_its_replacements(site: Site) -> None:  # E4 E30
    job_id = await site.enqueue("echo", value=1)
    engine, lane = await site.app.runtime.engine(), site.app.tasks["echo"].lane
    store = engine.store
    zombie = await store.open_session("namesake", HOUR)
    [old] = await store.claim(zombie, [lane], 1)
    await store.close_session(zombie)  # as if it had been silent for too long
    assert await engine.recovery.reclaim() == 1
    await store.promote(100)
    heir = await store.open_session("namesake", HOUR)
    [new] = await store.claim(heir, [lane], 1)
    assert (new.lease.job_id, new.lease.epoch > old.lease.epoch) == (job_id, True)
    # It wakes up and does all that it would have done.
    assert not await extend(store, zombie)
    assert await store.held(zombie) == set()
    assert await store.claim(zombie, [lane], 1) == []
    for verdict in (Complete('"old"'), Release()):
        assert await store.settle([Settlement(old.lease, verdict, old.attempt)]) == [SettlementStatus.STALE]
    with pytest.raises(LeaseLost):
        await store.record_progress(old.lease, 50, "half")
    await store.close_session(zombie)
    assert await engine.recovery.reclaim() == 0
    assert await store.held(heir) == {new.lease}
    after = await site.app.jobs.get(job_id)
    assert (after.state, after.epoch) == ("processing", new.lease.epoch)
    assert await store.settle([Settlement(new.lease, Complete('"new"'), new.attempt)]) == [
        SettlementStatus.APPLIED
    ]
    assert (await site.app.jobs.get(job_id)).result == "new"
    await site.consistent([job_id])
