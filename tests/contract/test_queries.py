"""Looking at the store: workers, lanes and their depths, the newest event, dead letters by cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from holdfast.jobs.job import DeadLetterFilter, JobId
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Bury
from tests.contract.world import LANE, MINUTE, World, done, failed
from tests.heartbeats import extend


async def test_live_workers_are_listed_with_their_queues_and_leases(world: World) -> None:  # E49 E52
    assert await world.store.queries.workers() == []
    first = await world.store.open_session("first", MINUTE, ["slow", "default"])
    await world.advance("10s")
    second = await world.store.open_session("second", 2 * MINUTE)
    for _ in range(3):
        await world.enqueue()
    await world.claim(first, limit=2)
    one, two = await world.store.queries.workers()
    assert (one.name, one.queues, one.leases) == ("first", ("default", "slow"), 2)
    assert (two.name, two.queues, two.leases) == ("second", None, 0)
    assert (one.serves("slow"), one.serves("other"), two.serves("other")) == (True, False, True)
    assert timedelta(seconds=59) < one.expires_at - one.started_at <= timedelta(seconds=61)
    assert timedelta(seconds=9) < two.started_at - one.started_at < timedelta(seconds=60)

    await world.advance("40s")
    assert await extend(world.store, first)
    await world.advance("30s")
    assert [worker.name for worker in await world.store.queries.workers()] == ["first", "second"]
    await world.store.close_session(second)
    assert [worker.name for worker in await world.store.queries.workers()] == ["first"]
    await world.advance("61s")
    assert await world.store.queries.workers() == []  # taken for lost, though it still holds jobs


async def test_a_worker_whose_slots_all_wait_is_shown_as_such_while_it_lives(world: World) -> None:  # E52
    first = await world.store.open_session("first", MINUTE)
    second = await world.store.open_session("second", 2 * MINUTE)
    await world.store.report_waiting(first, 10)
    assert [worker.waiting for worker in await world.store.queries.workers()] == [10, 0]
    assert await extend(world.store, first)
    await world.store.report_waiting(first, 0)
    await world.store.report_waiting(second, 3)
    assert [worker.waiting for worker in await world.store.queries.workers()] == [0, 3]
    await world.store.close_session(first)
    await world.store.report_waiting(first, 10)  # too late: a closed session stays closed
    assert [(worker.name, worker.waiting) for worker in await world.store.queries.workers()] == [
        ("second", 3)
    ]


async def test_depths_count_what_waits_due_now_or_later_lane_by_lane(world: World) -> None:  # E52
    other = LANE._replace(queue="other")
    assert (await world.store.lanes.all(), await world.store.lanes.depths()) == (set(), {})
    for _ in range(3):
        await world.enqueue()
    await world.enqueue(delay=MINUTE)
    await world.enqueue(lane=other)
    await world.claim_one()
    assert await world.store.lanes.all() == {LANE, other}
    assert await world.store.lanes.depths() == {LANE: 3, other: 1}
    assert await world.store.lanes.depths({other}) == {other: 1}
    assert await world.store.lanes.waiting() == {LANE, other}
    for claimed in await world.claim(limit=10, lane=other):
        await world.settle(claimed, done())
    assert await world.store.lanes.depths({other}) == {other: 0}
    assert await world.store.lanes.waiting() == {LANE}


async def test_who_begins_at_the_newest_event_sees_what_is_new(world: World) -> None:  # E60
    assert await world.store.queries.event_lag() == timedelta()
    assert await world.store.queries.newest_event() == 0
    for _ in range(3):
        await world.enqueue()
    await world.claim(limit=3)
    newest = await world.store.queries.newest_event()
    assert newest == (await world.store.queries.events(after=0, limit=100))[-1].id
    assert await world.store.queries.events(after=newest, limit=100) == []
    fresh = await world.enqueue()
    assert [event.job_id for event in await world.store.queries.events(after=newest, limit=100)] == [fresh]


async def test_a_group_of_dead_letters_shows_the_newest(world: World) -> None:  # E32
    async def die(code: str, detail: str) -> JobId:
        job_id = await world.enqueue()
        failure = replace(failed(code), fingerprint=code.lower(), detail=detail)
        await world.settle(await world.claim_one(), Bury(failure))
        await world.advance("1s")
        return job_id

    first, second = await die("A", "one"), await die("A", "two")
    older, newer = await die("B", "three"), await die("C", "")
    await world.store.retry(first, "ann", kind=Kind.redriven)
    await world.settle(await world.claim_one(), Bury(replace(failed("A"), fingerprint="a", detail="four")))
    groups = await world.store.queries.dead_letter_groups(DeadLetterFilter(), 10)
    assert [(g.fingerprint, g.count, g.sample, g.message) for g in groups] == [
        ("a", 2, first, "four"),  # buried last, though it is the older job
        ("c", 1, newer, "C happened"),
        ("b", 1, older, "three"),
    ]
    assert groups[0].first_at < groups[1].last_at < groups[0].last_at
    assert [g.sample for g in await world.store.queries.dead_letter_groups(DeadLetterFilter(), 1)] == [first]
    await world.store.discard(first, "ann", "known")
    [group] = await world.store.queries.dead_letter_groups(DeadLetterFilter(codes=("A",)), 10)
    assert (group.sample, group.message, group.count) == (second, "two", 1)
