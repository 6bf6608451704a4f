"""Attempts that run on for too long while their worker lives."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import JobId, Lane
from tests.contract.world import LANE, MINUTE, World, bury, done, retry

FAIR = LANE._replace(fair=True)
HALF_HOUR = {"email": timedelta(minutes=30)}


async def last_said(world: World, job_id: JobId) -> dict[str, Any]:
    return (await world.store.queries.events(after=0, limit=100, job_id=job_id))[-1].meta


async def test_an_attempt_is_stuck_when_it_runs_longer_than_its_task_may(world: World) -> None:  # E30
    session = await world.session(ttl=timedelta(hours=2))
    job_id = await world.enqueue()
    await world.enqueue()
    claimed = await world.claim_one(session)
    await world.advance("29m")
    young = await world.claim_one(session)
    assert await world.store.stuck(HALF_HOUR, 10) == []
    await world.advance("2m")
    [found] = await world.store.stuck(HALF_HOUR, 10)
    assert found.lease == claimed.lease
    assert found.lease.job_id == job_id
    assert (found.lane, found.attempt, found.max_attempts) == (LANE, 1, 3)
    assert (found.worker, found.overran) == (session.worker, False)
    await world.settle(claimed, done())
    assert await world.store.stuck(HALF_HOUR, 10) == []
    assert await world.store.expired(10) == []
    await world.settle(young, done())


async def test_only_tasks_with_a_limit_get_stuck_each_by_its_own(world: World) -> None:  # E30
    other = Lane("default", "report")
    session = await world.session(ttl=timedelta(hours=2))
    await world.enqueue()
    slow = await world.enqueue(lane=other)
    await world.claim(session)
    await world.claim(session, lane=other)
    await world.advance("31m")
    assert await world.store.stuck({}, 10) == []
    assert await world.store.stuck({"email": timedelta(hours=1), "nobody": MINUTE}, 10) == []
    limits = {"email": timedelta(hours=1), "report": MINUTE}
    assert [one.lease.job_id for one in await world.store.stuck(limits, 10)] == [slow]


async def test_the_oldest_are_found_first(world: World) -> None:  # E30
    session = await world.session(ttl=timedelta(hours=2))
    jobs = [await world.enqueue() for _ in range(3)]
    for _ in jobs:
        await world.claim_one(session)
        await world.advance("1m")
    await world.advance("31m")
    assert [one.lease.job_id for one in await world.store.stuck(HALF_HOUR, 2)] == jobs[:2]


async def test_a_lost_or_overrun_attempt_is_not_stuck_but_expired(world: World) -> None:  # E30
    await world.enqueue()
    await world.claim_one(await world.session(ttl=MINUTE))
    await world.enqueue(timeout=MINUTE)
    await world.claim_one(await world.session(ttl=timedelta(hours=2)))
    await world.advance("31m")
    assert await world.store.stuck(HALF_HOUR, 10) == []
    assert len(await world.store.expired(10)) == 2


async def test_a_stuck_attempt_is_reclaimed_under_its_epoch_and_counts(world: World) -> None:  # E30 S8
    session = await world.session(ttl=timedelta(hours=2))
    job_id = await world.enqueue()
    old = await world.claim_one(session)
    await world.advance("31m")
    take = [Reclaim(old.lease, retry(0, "STUCK"), crashed=False, by="ann")]
    assert await world.store.reclaim(take) == 0  # its lease has not run out
    assert await world.store.reclaim(take, stuck=True) == 1
    assert await world.store.reclaim(take, stuck=True) == 0
    assert await world.store.held(session) == set()
    row = await world.row(job_id)
    assert (row.state, row.attempt, row.crashes, row.retry_type) == ("queued", 1, 0, "AUTOMATIC")
    assert await world.kinds(job_id) == ["queued", "processing", "reclaimed"]
    assert await last_said(world, job_id) == {"error_code": "STUCK", "by": "ann"}
    [attempt] = await world.store.queries.attempts(job_id)
    assert attempt.outcome == "reclaimed"
    assert attempt.failure is not None
    assert attempt.failure.code == "STUCK"
    new = await world.claim_one(session)
    assert new.attempt == 2
    assert await world.store.reclaim(take, stuck=True) == 0
    assert await world.settle(old, done("1")) == "stale"
    assert await world.settle(new, done("2")) == "applied"


async def test_the_last_attempt_of_a_stuck_job_ends_it(world: World) -> None:  # E30 E32 S8
    job_id = await world.enqueue(max_attempts=1)
    claimed = await world.claim_one(await world.session(ttl=timedelta(hours=2)))
    await world.advance("31m")
    take = [Reclaim(claimed.lease, bury("STUCK"), crashed=False, by="ann")]
    assert await world.store.reclaim(take, stuck=True) == 1
    assert await last_said(world, job_id) == {"error_code": "STUCK", "by": "ann"}
    row = await world.row(job_id)
    assert (row.state, row.error_code) == ("failed", "STUCK")


async def test_those_of_one_owner_or_with_certain_ids_are_found_among_all(world: World) -> None:  # E30 S5
    session = await world.session(ttl=timedelta(hours=2))
    hers, his = [await world.enqueue(owner=owner, lane=FAIR) for owner in ("ann", "bob")]
    while len(await world.store.held(session)) < 2:
        await world.claim(session, 2, FAIR)
    await world.advance("31m")

    async def found(**only: Any) -> set[str]:
        return {one.lease.job_id for one in await world.store.stuck(HALF_HOUR, 10, **only)}

    assert await found() == {hers, his}
    assert await found(owner="ann") == await found(ids=[hers, "no id at all"]) == {hers}
    assert await found(owner="ann", ids=[his]) == await found(ids=[]) == set()
