"""Keys with more than one slot: so many jobs of one key at a time, over all workers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from holdfast.engine.ports import Reclaim
from holdfast.jobs.concurrency_keys import owner_key
from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob
from holdfast.jobs.moves import Kind
from holdfast.jobs.queue_position import Place
from holdfast.wiring import SystemIds
from tests.contract.world import LANE, MINUTE, World, done, release, retry

FAIR = Lane("default", "email", fair=True)
_ids = SystemIds()


async def enqueue(world: World, count: int, key: str = "k", slots: int = 2, **spec: Any) -> list[JobId]:
    return [await world.enqueue(key=key, key_slots=slots, **spec) for _ in range(count)]


def ids(claimed: list[Claimed]) -> list[JobId]:
    return [one.lease.job_id for one in claimed]


async def test_so_many_jobs_of_one_key_run_at_a_time(world: World) -> None:  # E26
    first, second, third, fourth = await enqueue(world, 4)
    claimed = await world.claim(limit=10)
    assert ids(claimed) == [first, second]
    assert await world.claim(limit=10) == []
    await world.settle(claimed[1], done())
    after = await world.claim(limit=10)
    assert ids(after) == [third]
    await world.settle(claimed[0], done())
    await world.settle(after[0], done())
    assert ids(await world.claim(limit=10)) == [fourth]


async def test_a_slot_that_became_free_is_given_on_at_once(world: World) -> None:  # E26
    jobs, session = await enqueue(world, 4), await world.session()
    claimed = await world.store.claim(session, [LANE], 10)
    for one in claimed:
        await world.settle(one, done())
    assert ids(await world.store.claim(session, [LANE], 10)) == jobs[2:]


async def test_claims_one_by_one_fill_the_slots_and_no_more(world: World) -> None:  # E26
    await enqueue(world, 5, slots=3)
    sessions = [await world.session() for _ in range(5)]
    assert [len(await world.claim(session)) for session in sessions] == [1, 1, 1, 0, 0]


async def test_whoever_has_another_key_or_none_passes(world: World) -> None:  # E26
    await enqueue(world, 300, slots=2)
    [other] = await enqueue(world, 1, key="other")
    plain = await world.enqueue()
    claimed = await world.claim(limit=4)
    assert {other, plain} <= set(ids(claimed))
    assert len(claimed) == 4


async def test_a_retry_and_a_release_give_the_slot_to_who_is_next(world: World) -> None:  # E26
    first, second, third, fourth = await enqueue(world, 4)
    claimed = await world.claim(limit=10)
    await world.settle(claimed[0], retry("1m"))
    await world.settle(claimed[1], retry("2m"))
    assert ids(await world.claim(limit=10)) == [third, fourth]
    await world.advance("61s")
    assert await world.claim(limit=10) == []
    assert (await world.row(first)).attempt == (await world.row(second)).attempt == 1


async def test_a_released_job_may_take_its_slot_again(world: World) -> None:  # E26
    jobs = await enqueue(world, 2)
    for claimed in await world.claim(limit=10):
        await world.settle(claimed, release())
    assert sorted(ids(await world.claim(limit=10))) == sorted(jobs)


async def test_the_slots_of_a_lost_worker_come_back_with_its_jobs(world: World) -> None:  # E26 E30
    jobs = await enqueue(world, 3)
    session = await world.session()
    assert len(await world.claim(session, limit=10)) == 2
    await world.advance("2m")
    lost = await world.store.expired(10)
    verdict = retry(0, "WORKER_LOST")
    assert await world.store.reclaim([Reclaim(one.lease, verdict, crashed=True) for one in lost]) == 2
    again = ids(await world.claim(limit=10))
    assert len(again) == 2
    assert set(again) <= set(jobs)


async def test_cancelling_frees_a_slot(world: World) -> None:  # E26 E29
    jobs = await enqueue(world, 3, slots=1)
    [claimed] = await world.claim(limit=10)
    await world.store.cancel(claimed.lease.job_id, "ann", "")
    await world.store.cancel(jobs[1], "ann", "")
    assert ids(await world.claim(limit=10)) == [jobs[2]]


async def test_a_smaller_number_holds_from_the_first_job_that_says_so(world: World) -> None:  # E26
    many = await enqueue(world, 3, slots=3)
    running = await world.claim(limit=10)
    assert ids(running) == many
    fewer = await enqueue(world, 2, slots=1)
    await world.settle(running[0], done())
    await world.settle(running[1], done())
    assert await world.claim(limit=10) == []
    await world.settle(running[2], done())
    assert ids(await world.claim(limit=10)) == fewer[:1]


async def test_a_larger_number_holds_at_once_for_who_says_so(world: World) -> None:  # E26
    [running] = await enqueue(world, 1, slots=1)
    assert ids(await world.claim(limit=10)) == [running]
    more = await enqueue(world, 3, slots=3)
    assert ids(await world.claim(limit=10)) == more[:2]


async def test_better_priorities_of_a_key_go_first(world: World) -> None:  # E25 E26
    running = await enqueue(world, 1) + await enqueue(world, 1, priority=5)
    claimed = await world.claim(limit=10)
    assert sorted(ids(claimed)) == sorted(running)
    [normal] = await enqueue(world, 1)
    [urgent] = await enqueue(world, 1, priority=5)
    await world.settle(claimed[0], done())
    assert ids(await world.claim(limit=10)) == [urgent]
    await world.settle(claimed[1], done())
    assert ids(await world.claim(limit=10)) == [normal]


async def test_a_job_that_is_due_later_takes_no_slot(world: World) -> None:  # E9 E26
    [later] = await enqueue(world, 1, slots=1, delay=MINUTE)
    [now] = await enqueue(world, 1, slots=1)
    [claimed] = await world.claim(limit=10)
    assert claimed.lease.job_id == now
    await world.advance("50s")
    await world.settle(claimed, done())
    await world.advance("11s")
    assert ids(await world.claim(limit=10)) == [later]


async def test_a_batch_is_bounded_too(world: World) -> None:  # E26
    spec = JobSpec(lane=LANE, key="k", key_slots=4, max_attempts=3)
    answers = await world.store.enqueue([NewJob(_ids.job_id(), "{}", spec) for _ in range(20)])
    assert ids(await world.claim(limit=50)) == [answer.id for answer in answers[:4]]


async def test_the_owners_of_a_fair_lane_have_slots_of_their_own(world: World) -> None:  # E25 E26
    spec = JobSpec(lane=FAIR, key_slots=2, max_attempts=3)
    for owner in ("ann", "bob"):
        own = replace(spec, owner=owner, key=owner_key("email", owner))
        await world.store.enqueue([NewJob(_ids.job_id(), "{}", own) for _ in range(5)])
    claimed = await world.claim(limit=10, lane=FAIR)
    assert sorted(one.owner or "" for one in claimed) == ["ann", "ann", "bob", "bob"]
    await world.settle(claimed[0], done())
    [after] = await world.claim(limit=10, lane=FAIR)
    assert after.owner == claimed[0].owner


async def test_a_key_of_ours_is_nobodys_to_see(world: World) -> None:  # E3a E26
    job_id = await world.enqueue(key=owner_key("email", "ann"), key_slots=2, owner="ann")
    assert (await world.row(job_id)).key is None
    assert (await world.row(await world.enqueue(key="mine", key_slots=2))).key == "mine"


async def test_a_job_whose_key_is_used_up_says_so(world: World) -> None:  # E26 E28
    first, second, third = await enqueue(world, 3)
    await world.claim(limit=1)
    waiting = await world.store.queries.queue_position(second)
    assert waiting is not None
    assert (waiting.place, waiting.holder) == (Place.LINE, None)
    await world.claim(limit=1)
    full = await world.store.queries.queue_position(third)
    assert full is not None
    assert full.place is Place.KEY
    assert full.holder in (first, second)
    assert full.key_slots == 2


async def test_a_retried_job_of_a_key_waits_for_a_slot(world: World) -> None:  # E26 E33
    [first] = await enqueue(world, 1, slots=1)
    [claimed] = await world.claim(limit=1)
    await world.settle(claimed, retry(timedelta(minutes=5)))
    [second] = await enqueue(world, 1, slots=1)
    [running] = await world.claim(limit=1)
    assert running.lease.job_id == second
    await world.store.retry(first, "ann", kind=Kind.manual_retry)
    assert await world.claim(limit=10) == []
    await world.settle(running, done())
    assert ids(await world.claim(limit=10)) == [first]
