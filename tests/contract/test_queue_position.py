"""Where a job stands: what `explain` asks a store for, in one look."""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.lane_store import Cap
from holdfast.jobs.job import JobId, Lane, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.queue_position import Place, QueuePosition, Use
from holdfast.jobs.verdict import Release
from tests.contract.world import LANE, MINUTE, World, bury, done, retry

CALLS = Lane("default", "convert", "gateway", "eu")


async def stands(world: World, job_id: JobId, *scopes: str) -> QueuePosition:
    found = await world.store.queries.queue_position(job_id, scopes)
    assert found is not None
    return found


async def test_a_job_in_line_knows_its_lane_and_who_is_ahead(world: World) -> None:  # E28
    ids = [await world.enqueue(lane=CALLS) for _ in range(3)]
    await world.enqueue()
    found = [await stands(world, job_id) for job_id in ids]
    assert [one.ahead for one in found] == [0, 1, 2]
    assert {(one.lane, one.place, one.holder) for one in found} == {(CALLS, Place.LINE, None)}
    assert found[0].last is not None
    assert (found[0].last.kind, found[0].last.attempt) == ("queued", 0)
    await world.enqueue(lane=CALLS, priority=5)
    assert (await stands(world, ids[0])).ahead == 1


async def test_a_job_of_a_fair_lane_knows_who_is_ahead(world: World) -> None:  # E25 E28
    fair = Lane("default", "email", fair=True)
    ids = [await world.enqueue(lane=fair, owner=owner) for owner in ("ann", "ann", "bob")]
    [first] = await world.claim(lane=fair)
    assert first.lease.job_id == ids[0]
    assert [(await stands(world, job_id)).ahead for job_id in (ids[2], ids[1])] == [0, 1]
    assert (await stands(world, ids[1])).lane == fair


async def test_a_job_that_is_due_later_is_not_in_line(world: World) -> None:  # E28
    found = await stands(world, await world.enqueue(delay=MINUTE))
    assert (found.place, found.ahead) == (Place.LATER, None)


async def test_the_last_move_says_why_it_was_given_back(world: World) -> None:  # E28
    job_id = await world.enqueue()
    await world.settle((await world.claim())[0], retry("0s", "BOOM"))
    [again] = await world.claim()
    running = await stands(world, job_id)
    assert running.last is not None
    assert (running.place, running.last.kind, running.last.attempt) == (None, "processing", 2)
    await world.settle(again, Release(MINUTE, "the rate is used up", wait_reason="owner_rate"))
    released = (await stands(world, job_id)).last
    assert released is not None
    assert (released.kind, released.attempt) == ("released", 2)
    assert (released.meta["reason"], released.meta["wait_reason"]) == ("the rate is used up", "owner_rate")


async def test_of_many_moves_in_one_event_a_job_finds_its_own(world: World) -> None:  # E28
    ids = [await world.enqueue() for _ in range(3)]
    claims = await world.claim(limit=3)
    codes = {claim.lease.job_id: f"CODE_{place}" for place, claim in enumerate(claims)}
    await world.store.settle(
        [Settlement(c.lease, retry("1m", codes[c.lease.job_id]), c.attempt) for c in claims]
    )
    for job_id in ids:
        last = (await stands(world, job_id)).last
        assert last is not None
        assert (last.kind, last.meta["error_code"]) == ("retry", codes[job_id])


async def test_what_only_tells_of_a_job_does_not_count_as_its_move(world: World) -> None:  # E28
    job_id = await world.enqueue()
    await world.settle((await world.claim())[0], bury())
    await world.store.discard(job_id, "ann", "no use")
    found = await stands(world, job_id)
    assert found.last is not None
    assert (found.place, found.last.kind) == (None, "failed")


async def test_a_cancel_says_by_whom(world: World) -> None:  # E28
    job_id = await world.enqueue()
    await world.store.cancel(job_id, "ann", "a mistake")
    last = (await stands(world, job_id)).last
    assert last is not None
    assert (last.kind, dict(last.meta)) == ("cancelled", {"by": "ann", "reason": "a mistake"})


async def test_a_job_whose_key_is_busy_knows_who_has_it(world: World) -> None:  # E28
    first, second = [await world.enqueue(key="account-7") for _ in range(2)]
    [claimed] = await world.claim(limit=2)
    assert claimed.lease.job_id == first
    found = await stands(world, second)
    assert (found.place, found.holder, found.ahead) == (Place.KEY, first, None)
    assert (await stands(world, first)).holder is None
    await world.settle(claimed, done())
    await world.store.promote(10)
    assert (await stands(world, second)).place is Place.LINE


async def test_it_tells_how_much_of_a_bound_is_in_use(world: World) -> None:  # E26 E28
    caps = [Cap("queue:default", 2), Cap("task:email", rate=2, per=MINUTE)]
    for _ in range(4):
        await world.enqueue()
    claimed = await world.store.claim(await world.session(), [LANE], 4, caps=caps)
    assert len(claimed) == 2
    waiting = await world.enqueue()
    found = await stands(world, waiting, "queue:default", "task:email", "queue:other")
    assert found.use["queue:default"] == Use(2)
    assert found.use["queue:other"] == Use()
    assert timedelta(seconds=55) < found.use["task:email"].ahead <= MINUTE
    await world.settle(claimed[0], done())
    await world.advance("2m")
    found = await stands(world, waiting, "queue:default", "task:email")
    assert found.use == {"queue:default": Use(1), "task:email": Use()}


async def test_nobody_stands_where_no_job_is(world: World) -> None:  # E28
    assert await world.store.queries.queue_position(JobId("nobody")) is None
    assert (
        await world.store.queries.queue_position(
            JobId("0198c5f0-0000-7000-8000-000000000000"), ["queue:default"]
        )
        is None
    )


async def test_a_retried_job_stands_in_its_new_queue(world: World) -> None:  # E28

    job_id = await world.enqueue()
    await world.settle((await world.claim())[0], bury())
    await world.store.retry(job_id, "ann", kind=Kind.redriven, queue="slow")
    found = await stands(world, job_id)
    assert found.lane == Lane("slow", "email")
    assert found.last is not None
    assert (found.place, found.last.kind) == (Place.LINE, "redriven")
