"""Jobs that a broker hands out: claimed by hints, which may be wrong in every way."""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.engine.tables.holds import end_pause
from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.jobs.moves import Kind, State
from tests.contract.world import LANE, MINUTE, World, bury, retry

OTHER = Lane("mail", "letter", "post", "eu")


async def claim(world: World, *hints: tuple[JobId, int]) -> list[JobId]:
    claimed = await world.store.dispatch.claim_jobs(
        await world.session(), [DispatchHint(*hint) for hint in hints]
    )
    return [one.lease.job_id for one in claimed]


async def test_many_are_claimed_by_their_hints_in_the_order_of_these(world: World) -> None:  # E45
    first, second, third = [await world.enqueue(f'{{"n":{n}}}', priority=5) for n in range(3)]
    session = await world.session()
    one, two = await world.store.dispatch.claim_jobs(
        session, [DispatchHint(third, 1), DispatchHint(first, 1)]
    )
    assert (one.lease.job_id, one.payload, one.attempt, one.lane) == (third, '{"n":2}', 1, LANE)
    assert one.priority == 5
    assert two.lease.job_id == first
    assert await world.store.held(session) == {one.lease, two.lease}
    assert await world.kinds(third) == ["queued", "processing"]
    assert (await world.claim_one()).lease.job_id == second


async def test_a_hint_that_came_twice_claims_once(world: World) -> None:  # E45
    job_id = await world.enqueue()
    assert await claim(world, (job_id, 1), (job_id, 1)) == [job_id]
    assert await claim(world, (job_id, 1)) == []
    assert await world.kinds(job_id) == ["queued", "processing"]


async def test_a_wrong_hint_does_nothing_and_keeps_no_other_from_being_claimed(world: World) -> None:  # E45
    good, cancelled, again = [await world.enqueue() for _ in range(3)]
    await world.store.cancel(cancelled, "ann", "")
    session = await world.session()
    [one] = await world.store.dispatch.claim_jobs(session, [DispatchHint(again, 1)])
    await world.settle(one, bury())
    await world.store.retry(again, "ann", kind=Kind.manual_retry)
    unknown = JobId("0190a0b0-1111-7abc-8def-000000000000")
    wrong = [(cancelled, 1), (again, 1), (unknown, 1), (JobId("no id' at all"), 1), (good, 2)]
    assert await claim(world, *wrong, (good, 1)) == [good]
    assert (await world.row(cancelled)).state is State.CANCELLED
    assert await claim(world, (again, 2)) == [again]


async def test_what_is_not_due_is_not_claimed_by_a_hint(world: World) -> None:  # E45 E22
    job_id = await world.enqueue(delay=MINUTE)
    assert await claim(world, (job_id, 1)) == []
    assert (await world.row(job_id)).state is State.QUEUED
    await world.advance("61s")
    assert await claim(world, (job_id, 1)) == [job_id]


async def test_what_a_hold_keeps_back_is_not_claimed_by_a_hint(world: World) -> None:  # E45 S4
    due, tried = await world.enqueue(), await world.enqueue(lane=OTHER)
    [one] = await world.claim(lane=OTHER)
    await world.settle(one, retry("1s"))
    duty = Scope(ScopeKind.MAINTENANCE, "retries")
    queue = Scope(ScopeKind.QUEUE, "default")
    for scope in (duty, queue):
        await world.store.lanes.hold(scope, Cause.PAUSE, span=None, reason="", by="ann")
    await world.advance("2s")
    assert await claim(world, (due, 1), (tried, 1)) == []
    for scope in (duty, queue):
        await end_pause(world.store, scope, by="ann")
    assert await claim(world, (due, 1), (tried, 1)) == [due, tried]


async def test_one_with_a_key_is_left_to_the_store(world: World) -> None:  # E45 E26
    job_id = await world.enqueue(key="k")
    await world.store.promote(10)
    assert await claim(world, (job_id, 1)) == []
    assert await world.store.dispatch.waiting([job_id]) == []
    assert await world.store.dispatch.all_waiting(after=None, limit=10) == []
    assert not any(depth != Depth(0, 0) for depth in (await world.store.dispatch.count_waiting()).values())
    assert (await world.claim_one()).lease.job_id == job_id


async def test_without_a_live_session_no_hint_claims(world: World) -> None:  # E45 E30
    job_id = await world.enqueue()
    session = await world.session()
    await world.store.close_session(session)
    assert await world.store.dispatch.claim_jobs(session, [DispatchHint(job_id, 1)]) == []
    assert (await world.row(job_id)).state is State.QUEUED


async def test_what_waits_is_found_by_id_and_page_by_page(world: World) -> None:  # E45
    now = await world.enqueue(priority=7)
    later = await world.enqueue(delay=timedelta(hours=1), lane=OTHER)
    running, ended = await world.enqueue(), await world.enqueue()
    assert await claim(world, (running, 1)) == [running]
    await world.store.cancel(ended, "ann", "")
    found = {
        entry.job_id: entry for entry in await world.store.dispatch.waiting([ended, now, running, later])
    }
    assert found.keys() == {now, later}
    assert found[now] == DispatchEntry(now, 1, LANE, 7, timedelta())
    assert found[later][:4] == (later, 1, OTHER, 0)
    assert timedelta(minutes=59) < found[later].delay <= timedelta(hours=1)
    [first] = await world.store.dispatch.all_waiting(after=None, limit=1)
    [second] = await world.store.dispatch.all_waiting(after=first.job_id, limit=5)
    assert [first.job_id, second.job_id] == [now, later]
    assert await world.store.dispatch.count_waiting() == {LANE: Depth(1, 0), OTHER: Depth(0, 1)}


async def test_what_is_due_soon_is_found_soonest_first(world: World) -> None:  # E45
    second = await world.enqueue(delay=timedelta(seconds=50))
    first = await world.enqueue(delay=timedelta(seconds=40))
    await world.enqueue(delay=timedelta(hours=1))
    await world.enqueue()
    assert [entry.job_id for entry in await world.store.dispatch.due_soon(MINUTE, 10)] == [first, second]
    assert [entry.job_id for entry in await world.store.dispatch.due_soon(MINUTE, 1)] == [first]
