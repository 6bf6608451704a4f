"""A retry by hand that gives the job another priority: it overtakes what waits, and a refused one changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Conflict
from holdfast.jobs.job import JobId, JobSpec, Lane, NewJob
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.verdict import Failure
from holdfast.wiring import SystemIds
from tests.contract.world import LANE, World, bury, retry

HIGHEST = 1000
FAIR = Lane("default", "email", fair=True)
OTHER = Lane("default", "letter")
Way = Callable[[World], Awaitable[tuple[JobId, StuckAttempt | None]]]
_ids = SystemIds()


async def failed(world: World) -> tuple[JobId, None]:
    job_id = await world.enqueue(priority=7)
    await world.settle(await world.claim_one(), bury())
    return job_id, None


async def cancelled(world: World) -> tuple[JobId, None]:
    job_id = await world.enqueue(priority=7)
    await world.store.cancel(job_id, "ann", "")
    return job_id, None


async def waiting(world: World) -> tuple[JobId, None]:
    job_id = await world.enqueue(priority=7)
    await world.settle(await world.claim_one(), retry("1h"))
    return job_id, None


async def keyed(world: World) -> tuple[JobId, None]:
    """Wait for an automatic retry, with a key of which one job runs at a time."""
    job_id = await world.enqueue(priority=7, key="k")
    await world.settle(await world.claim_one(), retry("1h"))
    return job_id, None


async def lost(world: World) -> tuple[JobId, None]:
    job_id = await world.enqueue(priority=7)
    await world.claim_one()
    await world.advance("61s")
    return job_id, None


async def stuck(world: World, attempts: int = 3) -> tuple[JobId, StuckAttempt]:
    job_id = await world.enqueue(priority=7, max_attempts=attempts)
    claimed = await world.claim_one(await world.session(ttl=timedelta(hours=2)))
    return job_id, StuckAttempt(claimed.lease, Failure.of("STUCK"))


async def stuck_in_its_last_attempt(world: World) -> tuple[JobId, StuckAttempt]:
    return await stuck(world, attempts=1)


WAYS = [failed, cancelled, waiting, keyed, lost, stuck, stuck_in_its_last_attempt]


async def by_hand(world: World, way: Way, priority: int | None) -> tuple[JobId, int]:
    for known in (HIGHEST, 10, 7):  # PostgreSQL looks for priorities that are new to a worker once a second
        await world.enqueue(priority=known)
    assert len(await world.claim(limit=3)) == 3
    job_id, found = await way(world)
    for _ in range(3):
        await world.enqueue(priority=10)
    await world.advance("1s")
    place = await world.store.retry(job_id, "ann", kind=Kind.manual_retry, priority=priority, stuck=found)
    return job_id, place


@pytest.mark.parametrize("way", WAYS)
async def test_a_retry_can_change_the_priority(world: World, way: Way) -> None:  # E33 E76
    job_id, place = await by_hand(world, way, HIGHEST)
    assert place == 1
    assert (await world.row(job_id)).priority == HIGHEST
    event = (await world.store.queries.events(after=0, limit=100, job_id=job_id))[-1]
    assert (event.kind, event.meta) == ("manual_retry", {"by": "ann", "priority": HIGHEST})
    hints = [entry.priority for entry in await world.store.dispatch.waiting([job_id])]
    assert hints == ([] if way is keyed else [HIGHEST])  # a broker gets no jobs with a key
    claimed = next(one for one in await world.claim(limit=10) if one.lease.job_id == job_id)
    assert claimed.priority == HIGHEST
    await world.settle(claimed, retry("1m"))
    await world.advance("61s")
    assert (await world.row(job_id)).priority == HIGHEST  # an automatic retry keeps it


@pytest.mark.parametrize("way", WAYS)
async def test_without_one_a_retry_keeps_the_priority(world: World, way: Way) -> None:  # E33
    job_id, place = await by_hand(world, way, None)
    assert place == 4 or way is keyed
    assert (await world.row(job_id)).priority == 7
    event = (await world.store.queries.events(after=0, limit=100, job_id=job_id))[-1]
    assert event.meta == {"by": "ann"}
    claimed = next(one for one in await world.claim(limit=10) if one.lease.job_id == job_id)
    assert claimed.priority == 7


async def test_a_refused_retry_changes_no_priority(world: World) -> None:  # E33
    running, queued = await world.enqueue(priority=7), await world.enqueue(priority=5)
    claimed = await world.claim_one()
    for job_id in (running, queued):
        with pytest.raises(Conflict):
            await world.store.retry(job_id, "ann", kind=Kind.manual_retry, priority=HIGHEST)
    assert [(await world.row(job_id)).priority for job_id in (running, queued)] == [7, 5]
    await world.settle(claimed, retry())
    assert [one.priority for one in await world.claim(limit=2)] == [7, 5]


async def crowd(world: World, lane: Lane) -> None:
    """Let 2,100 jobs wait on three levels, half of them of ann."""
    owners = ("ann",) * 5 + tuple(f"other-{number}" for number in range(5))
    spec = JobSpec(lane=lane, max_attempts=3)
    jobs = [
        NewJob(_ids.job_id(), "{}", replace(spec, owner=owner, priority=priority))
        for owner in owners
        for priority in (10, 0, -10)
        for _ in range(70)
    ]
    await world.store.enqueue(jobs)


@pytest.mark.parametrize("turn", [0, 8])
@pytest.mark.parametrize("lane", [LANE, FAIR])
async def test_a_retry_of_the_highest_priority_overtakes_two_thousand_that_wait(
    world: World, lane: Lane, turn: int
) -> None:  # E76 E25
    urgent = await world.enqueue(lane=lane, owner="ann")
    await world.store.cancel(urgent, "ann", "")
    await crowd(world, lane)
    for _ in range(turn):  # of 13 claims 8 begin with the high level, then 4 with normal and 1 with low
        await world.enqueue(lane=OTHER)
        await world.claim(lane=OTHER)
    await world.advance("1s")
    assert await world.store.retry(urgent, "ann", kind=Kind.manual_retry, priority=HIGHEST) == 1
    started: list[JobId] = []
    while urgent not in started and len(started) < 100:
        started += [one.lease.job_id for one in await world.claim(limit=2, lane=lane)]
    assert (await world.row(urgent)).state is State.PROCESSING
    assert started.index(urgent) == (10 if turn else 0)  # five claims of two, or none
