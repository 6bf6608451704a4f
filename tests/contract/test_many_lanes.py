"""Very many lanes: what holds for a few of them holds for hundreds, and one owner's lanes do not keep others waiting (E25)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from holdfast.engine.lane_store import Cap
from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.engine.tables.holds import end_pause
from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob, Session
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.resilience.breaker import Breaker, BreakerState
from holdfast.wiring import SystemIds
from tests.contract.world import World, done, release, retry
from tests.heartbeats import extend

LANES = [Lane(f"queue {number}", "email") for number in range(200)]
FAIR = [lane._replace(fair=True) for lane in LANES]
BOBS = Lane("default", "email", fair=True)
_ids = SystemIds()


async def fill(world: World, lanes: list[Lane], each: int = 1, **spec: object) -> list[JobId]:
    jobs = [
        NewJob(_ids.job_id(), "{}", JobSpec(lane=lane, max_attempts=3, **spec))  # type: ignore[arg-type]
        for lane in lanes
        for _ in range(each)
    ]
    return [answer.id for answer in await world.store.enqueue(jobs)]


async def drain(world: World, session: Session, lanes: list[Lane], limit: int) -> list[Claimed]:
    """Claim and complete until there is nothing more."""
    claimed: list[Claimed] = []
    while found := await world.store.claim(session, lanes, limit):
        for one in found:
            await world.settle(one, done())
        claimed += found
    return claimed


def ids_of(claimed: list[Claimed]) -> list[JobId]:
    return [one.lease.job_id for one in claimed]


async def test_every_job_is_claimed_once(world: World) -> None:  # E18
    session = await world.session()
    lanes = [*LANES[:100], *FAIR[100:]]
    jobs = await fill(world, LANES[:100], 2) + await fill(world, FAIR[100:], 2, owner="alice")
    claimed = ids_of(await drain(world, session, lanes, 7))
    assert sorted(claimed) == sorted(jobs)
    [late] = await fill(world, [LANES[33]])
    assert ids_of(await world.store.claim(session, lanes, 7)) == [late]


async def test_another_owner_does_not_wait_for_all_lanes_of_one(world: World) -> None:  # E25
    session = await world.session()
    lanes = [*FAIR, BOBS]
    await fill(world, FAIR, 2, owner="alice")
    assert len(await world.store.claim(session, lanes, 10)) == 10
    [first] = await fill(world, [BOBS], owner="bob")
    assert first in ids_of(await world.store.claim(session, lanes, 10))
    # In a lane where the other one waits, too.
    [second] = await fill(world, [FAIR[150]], owner="bob")
    before: list[JobId] = []
    for _ in range(2):
        before += ids_of(await world.store.claim(session, lanes, 10))
    assert second in before


async def test_owners_take_turns_however_many_lanes_each_has(world: World) -> None:  # E25
    session = await world.session()
    shares = {"alice": FAIR[:150], "bob": FAIR[150:190], "carol": FAIR[190:]}
    for owner, lanes in shares.items():
        await fill(world, lanes, 600 // len(lanes), owner=owner)
    owners = Counter[str | None]()
    for _ in range(6):
        owners.update(one.owner for one in await world.store.claim(session, FAIR, 15))
    assert set(owners) == shares.keys()
    assert min(owners.values()) >= 20


async def test_better_priorities_come_first(world: World) -> None:  # E25
    session = await world.session()
    await fill(world, LANES, priority=-5)
    urgent = await fill(world, LANES[120:123], priority=7)
    assert set(urgent) <= set(ids_of(await world.store.claim(session, LANES, 10)))


async def test_held_lanes_are_passed_by_until_they_are_resumed(world: World) -> None:  # E24 E27
    session = await world.session()
    await fill(world, LANES[:-1])
    [free] = await fill(world, LANES[-1:])
    for lane in LANES[:-1]:
        scope = Scope(ScopeKind.QUEUE, lane.queue)
        await world.store.lanes.hold(scope, Cause.PAUSE, span=None, reason="deploy", by="ann")
    assert ids_of(await drain(world, session, LANES, 10)) == [free]
    assert await end_pause(world.store, Scope(ScopeKind.QUEUE, "queue 5"), by="ann")
    assert [one.lane.queue for one in await drain(world, session, LANES, 10)] == ["queue 5"]


async def test_lanes_behind_breakers_are_passed_by_until_these_close(world: World) -> None:  # E15
    session = await world.session()
    lanes = [Lane("default", "convert", "gateway", f"shard {number}") for number in range(100)]
    await fill(world, lanes)
    for lane in lanes:
        opened = Breaker(state=BreakerState.OPEN, version=1)
        assert await swap_breaker(world.store, Dependency(lane.dependency, lane.shard), opened, holds=True)
    [free] = await fill(world, [BOBS], owner="bob")
    assert ids_of(await drain(world, session, [*lanes, BOBS], 10)) == [free]
    closed = Breaker(state=BreakerState.CLOSED, version=2)
    assert await swap_breaker(world.store, Dependency("gateway", "shard 7"), closed, holds=False)
    assert [one.lane.shard for one in await drain(world, session, [*lanes, BOBS], 10)] == ["shard 7"]


async def test_a_trial_passes_the_breaker_of_many_lanes(world: World) -> None:  # E22
    session = await world.session()
    lanes = [Lane(f"queue {number}", "convert", "gateway") for number in range(100)]
    await fill(world, lanes)
    opened = Breaker(state=BreakerState.OPEN, version=1)
    assert await swap_breaker(world.store, Dependency("gateway"), opened, holds=True)
    assert await world.store.claim(session, lanes, 10) == []
    assert len(await world.store.claim(session, lanes, 1, trial=True)) == 1
    assert await world.store.claim(session, lanes, 10) == []


async def test_what_comes_back_is_claimed_again(world: World) -> None:  # E5
    session = await world.session()
    jobs = await fill(world, FAIR[:100], owner="alice")
    claimed = await world.store.claim(session, FAIR, 100)
    for one in claimed:
        await world.settle(one, retry("1m") if one.lease.job_id == jobs[40] else release())
    assert sorted(ids_of(await drain(world, session, FAIR, 9))) == sorted(set(jobs) - {jobs[40]})
    await world.advance("2m")
    await extend(world.store, session)
    await world.store.promote(1000)
    again = await world.store.claim(await world.session(), FAIR, 9)
    assert ids_of(again) == [jobs[40]]


async def test_of_one_key_one_runs_at_a_time(world: World) -> None:  # E18
    session = await world.session()
    await fill(world, LANES[:100], key="account 7")
    [other] = await fill(world, LANES[100:101])
    claimed = await world.store.claim(session, LANES, 50)
    assert len(claimed) == 2
    assert other in ids_of(claimed)
    assert await world.store.claim(session, LANES, 50) == []
    for one in claimed:
        await world.settle(one, done())
    assert len(await world.store.claim(session, LANES, 50)) == 1


async def test_a_limit_over_them_holds(world: World) -> None:  # E18
    session, cap = await world.session(), Cap("task:email", concurrency=3)
    await fill(world, LANES)
    assert len(await world.store.claim(session, LANES, 10, caps=[cap])) == 3
    assert await world.store.claim(session, LANES, 10, caps=[cap]) == []


async def test_a_lane_that_is_made_later_is_claimed_from(world: World) -> None:  # E18
    session = await world.session()
    await fill(world, LANES[:100])
    assert len(await drain(world, session, LANES, 30)) == 100
    [late] = await fill(world, [LANES[150]])
    await world.advance(timedelta(seconds=2))
    found: list[JobId] = []
    for _ in range(200):
        found += ids_of(await drain(world, session, LANES, 30))
        if found:
            break
    assert found == [late]
