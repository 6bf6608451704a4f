"""Lanes: what holds them, what limits them, and in which order their jobs are taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.engine.lane_store import Cap, Charge, DependencyReport
from holdfast.engine.ports import Reclaim
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.engine.tables.dependencies import dependency_states, swap_breaker
from holdfast.engine.tables.holds import end_pause, holds_in_force
from holdfast.engine.tables.usage import quota_use
from holdfast.jobs.job import JobId, Lane
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.jobs.moves import Kind
from holdfast.resilience.breaker import Breaker, BreakerState, Trial
from tests.contract.world import LANE, MINUTE, World, done, release, retry

GATEWAY = Dependency("gateway")
CALLS = Lane("default", "convert", "gateway")
EUROPE, ASIA = (Lane("default", "convert", "gateway", shard) for shard in ("eu", "asia"))
FAIR = Lane("default", "email", fair=True)
QUEUE = Scope(ScopeKind.QUEUE, "default")


async def pause(world: World, scope: Scope = QUEUE, span: timedelta | None = None) -> None:
    await world.store.lanes.hold(scope, Cause.PAUSE, span=span, reason="deploy", by="ann")


async def ids(world: World, lane: Lane, limit: int = 10) -> list[JobId]:
    return [claimed.lease.job_id for claimed in await world.claim(limit=limit, lane=lane)]


# -- holding ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "scope",
    [
        QUEUE,
        Scope(ScopeKind.TASK, "convert"),
        Scope(ScopeKind.LANE, "default/convert@gateway"),
        Scope(ScopeKind.DEPENDENCY, "gateway"),
    ],
)
async def test_what_a_scope_covers_is_passed_by_and_not_touched(
    world: World, scope: Scope
) -> None:  # E24 E27
    held = await world.enqueue(lane=CALLS)
    before = await world.row(held)
    other = await world.enqueue(lane=Lane("other", "email"))
    await pause(world, scope)
    claimed = await world.store.claim(await world.session(), [CALLS, Lane("other", "email")], 10)
    assert [c.lease.job_id for c in claimed] == [other]
    assert await world.row(held) == before
    assert await world.kinds(held) == ["queued"]
    assert await end_pause(world.store, scope, by="ann")
    assert await ids(world, CALLS) == [held]


async def test_a_pause_ends_by_itself_when_its_time_is_up(world: World) -> None:  # E27
    job_id = await world.enqueue()
    await pause(world, span=MINUTE)
    assert await ids(world, LANE) == []
    [held] = await holds_in_force(world.store)
    assert held.until is not None
    assert (held.scope, held.cause, held.reason, held.by) == (QUEUE, Cause.PAUSE, "deploy", "ann")
    assert held.until - held.at == MINUTE
    await world.advance("61s")
    assert await holds_in_force(world.store) == []
    assert await ids(world, LANE) == [job_id]


async def test_a_second_pause_replaces_the_first(world: World) -> None:  # E27
    await pause(world)
    await pause(world, span=MINUTE)
    [held] = await holds_in_force(world.store)
    assert held.until is not None
    assert await end_pause(world.store, QUEUE, by="bob")
    assert not await end_pause(world.store, QUEUE, by="bob")
    assert await holds_in_force(world.store) == []


async def test_a_second_retry_after_can_only_lengthen_the_hold(world: World) -> None:  # E12
    scope = Scope(ScopeKind.DEPENDENCY, "gateway")
    for seconds in (30, 60, 10):
        span = timedelta(seconds=seconds)
        await world.store.lanes.hold(scope, Cause.RETRY_AFTER, span=span, reason="429", by="worker")
    [held] = await holds_in_force(world.store)
    assert held.until is not None
    assert timedelta(seconds=31) < held.until - await world.store.now() <= MINUTE


async def test_a_pause_and_a_retry_after_do_not_undo_each_other(world: World) -> None:  # E12 E27
    scope = Scope(ScopeKind.DEPENDENCY, "gateway")
    job_id = await world.enqueue(lane=CALLS)
    await world.store.lanes.hold(scope, Cause.RETRY_AFTER, span=MINUTE, reason="429", by="worker")
    await pause(world, scope)
    await end_pause(world.store, scope, by="ann")
    assert await ids(world, CALLS) == []
    await world.advance("61s")
    assert await ids(world, CALLS) == [job_id]


async def test_a_dependency_held_by_name_holds_all_its_shards_and_a_shard_only_itself(
    world: World,
) -> None:  # E24
    europe, asia = await world.enqueue(lane=EUROPE), await world.enqueue(lane=ASIA)
    scope = Scope(ScopeKind.DEPENDENCY, "gateway#eu")
    await pause(world, scope)
    both = await world.store.claim(await world.session(), [EUROPE, ASIA], 10)
    assert [c.lease.job_id for c in both] == [asia]
    await world.settle(both[0], release())
    await end_pause(world.store, scope, by="ann")
    await pause(world, Scope(ScopeKind.DEPENDENCY, "gateway"))
    assert await world.store.claim(await world.session(), [EUROPE, ASIA], 10) == []
    assert (await world.row(europe)).attempt == 0


async def test_pauses_of_people_are_events_of_no_job(world: World) -> None:  # E27 E60
    after = await world.store.queries.newest_event()
    await pause(world, span=MINUTE)
    await end_pause(world.store, QUEUE, by="bob")
    events = await world.store.queries.events(after=after, limit=10)
    assert [(event.kind, event.job_id) for event in events] == [("paused", ""), ("resumed", "")]
    assert events[0].meta["scope"] == "queue default"
    assert (events[0].meta["by"], events[0].meta["reason"]) == ("ann", "deploy")
    assert events[1].meta["by"] == "bob"


async def test_deferred_jobs_of_a_held_lane_wait_too(world: World) -> None:  # E9
    await world.enqueue(delay=MINUTE)
    await pause(world)
    await world.advance("2m")
    assert await ids(world, LANE) == []
    await end_pause(world.store, QUEUE, by="ann")
    assert len(await ids(world, LANE)) == 1


# -- breakers ---------------------------------------------------------------------------------------------------------
def seen(dependency: Dependency = GATEWAY, *, version: int = 0, vote: bool = False) -> DependencyReport:
    return DependencyReport(
        dependency, version, vote, limit=20, in_flight=3, latency=0.25, calls=10, failures=4 if vote else 0
    )


async def test_an_open_breaker_holds_its_lanes_and_a_trial_passes_it(world: World) -> None:  # E20 E24
    held, other = await world.enqueue(lane=CALLS), await world.enqueue()
    now = await world.store.now()
    opened = Breaker(BreakerState.OPEN, 1, now, now, now + MINUTE)
    assert await swap_breaker(
        world.store, GATEWAY, opened, holds=True, kind=Kind.breaker_opened, meta={"votes": 2}
    )
    session = await world.session()
    assert [c.lease.job_id for c in await world.store.claim(session, [CALLS, LANE], 10)] == [other]
    trial = await world.store.claim(session, [CALLS], 1, trial=True)
    assert [c.lease.job_id for c in trial] == [held]
    [told] = [e for e in await world.store.queries.events(after=0, limit=100) if e.kind == "breaker_opened"]
    assert (told.job_id, told.meta["dependency"], told.meta["votes"]) == ("", "gateway", 2)


async def test_a_trial_does_not_pass_a_pause(world: World) -> None:  # E27
    await world.enqueue(lane=CALLS)
    await pause(world)
    assert await world.store.claim(await world.session(), [CALLS], 1, trial=True) == []


async def test_a_breaker_that_does_not_hold_lets_its_lanes_be_claimed(world: World) -> None:  # E21
    job_id = await world.enqueue(lane=CALLS)
    now = await world.store.now()
    assert await swap_breaker(
        world.store, GATEWAY, Breaker(BreakerState.OPEN, 1, now, now, now + MINUTE), holds=False
    )
    assert await ids(world, CALLS) == [job_id]


async def test_a_breaker_is_swapped_only_from_the_version_before(world: World) -> None:  # E20
    now = await world.store.now()
    first = Breaker(BreakerState.OPEN, 1, now, now, now + MINUTE, 2)
    assert await swap_breaker(world.store, GATEWAY, first, holds=True)
    assert not await swap_breaker(world.store, GATEWAY, first, holds=True)
    trials = (Trial("w1", now + MINUTE), Trial(), Trial("w2", now, True))
    second = replace(first, state=BreakerState.HALF_OPEN, version=2, trials=trials)
    assert await swap_breaker(world.store, GATEWAY, second, holds=True)
    assert not await swap_breaker(world.store, GATEWAY, replace(first, version=2), holds=False)
    [state_of_dependency] = await dependency_states(world.store)
    assert (state_of_dependency.dependency, state_of_dependency.breaker) == (GATEWAY, second)


async def test_reports_become_one_outlook(world: World) -> None:  # E20
    one, two = await world.session(), await world.session()
    await world.store.lanes.report(one, [seen(vote=True)])
    [state_of_dependency] = await world.store.lanes.report(two, [seen()])
    assert (
        state_of_dependency.votes,
        state_of_dependency.callers,
        state_of_dependency.limit,
        state_of_dependency.in_flight,
    ) == (1, 2, 40, 6)
    assert (state_of_dependency.calls, state_of_dependency.failures, state_of_dependency.latency) == (
        20,
        4,
        0.25,
    )
    assert state_of_dependency.breaker == Breaker()
    [state_of_dependency] = await world.store.lanes.report(two, [seen(vote=True)])
    assert state_of_dependency.votes == 2


async def test_a_vote_about_an_earlier_version_does_not_count(world: World) -> None:  # E20
    session, now = await world.session(), await world.store.now()
    await swap_breaker(world.store, GATEWAY, Breaker(BreakerState.CLOSED, 1, now), holds=False)
    [state_of_dependency] = await world.store.lanes.report(session, [seen(vote=True)])
    assert (state_of_dependency.votes, state_of_dependency.callers) == (0, 1)
    [state_of_dependency] = await world.store.lanes.report(session, [seen(vote=True, version=1)])
    assert state_of_dependency.votes == 1


async def test_a_report_that_is_not_renewed_stops_counting(world: World) -> None:  # E20
    one, two = await world.session(), await world.session()
    await world.store.lanes.report(one, [seen(vote=True)])
    await world.advance("11s")
    [state_of_dependency] = await world.store.lanes.report(two, [seen()])
    assert (state_of_dependency.votes, state_of_dependency.callers) == (0, 1)


async def test_a_worker_learns_only_of_the_dependencies_it_reports(world: World) -> None:  # E20
    one, two = await world.session(), await world.session()
    other = Dependency("bank", "eu")
    await world.store.lanes.report(one, [seen(other)])
    [state_of_dependency] = await world.store.lanes.report(two, [seen()])
    assert state_of_dependency.dependency == GATEWAY
    assert {
        state_of_dependency.dependency for state_of_dependency in await dependency_states(world.store)
    } == {GATEWAY, other}


# -- limits -----------------------------------------------------------------------------------------------------------
async def test_a_cap_bounds_what_all_workers_run_at_a_time(world: World) -> None:  # E26
    for _ in range(5):
        await world.enqueue()
    one, two = await world.session(), await world.session()
    cap = Cap("queue:default", concurrency=3)
    first = await world.store.claim(one, [LANE], 2, caps=[cap])
    second = await world.store.claim(two, [LANE], 10, caps=[cap])
    assert (len(first), len(second)) == (2, 1)
    assert await world.store.claim(one, [LANE], 10, caps=[cap]) == []
    await world.settle(first[0], done())
    await world.settle(second[0], retry("1h"))
    assert len(await world.store.claim(one, [LANE], 10, caps=[cap])) == 2


async def test_a_slot_is_free_again_when_its_job_was_given_back(world: World) -> None:  # E26
    for _ in range(2):
        await world.enqueue()
    cap = Cap("task:email", concurrency=1)
    session = await world.session()
    [claimed] = await world.store.claim(session, [LANE], 10, caps=[cap])
    await world.settle(claimed, release("1h"))
    [again] = await world.store.claim(session, [LANE], 10, caps=[cap])
    assert again.lease.job_id != claimed.lease.job_id


async def test_the_room_of_a_lost_worker_comes_back_with_its_job(world: World) -> None:  # E26 E30
    job_id, cap = await world.enqueue(), Cap("queue:default", concurrency=1)
    [claimed] = await world.store.claim(await world.session(), [LANE], 10, caps=[cap])
    await world.advance("2m")
    [lost] = await world.store.expired(10)
    assert await world.store.reclaim([Reclaim(lost.lease, retry(0, "WORKER_LOST"), crashed=True)]) == 1
    [again] = await world.store.claim(await world.session(), [LANE], 10, caps=[cap])
    assert again.lease.job_id == claimed.lease.job_id == job_id


async def test_a_smaller_cap_holds_from_now_on_and_a_larger_one_at_once(world: World) -> None:  # E26
    for _ in range(6):
        await world.enqueue()
    session = await world.session()
    assert len(await world.store.claim(session, [LANE], 10, caps=[Cap("q", concurrency=2)])) == 2
    assert len(await world.store.claim(session, [LANE], 10, caps=[Cap("q", concurrency=3)])) == 1
    assert await world.store.claim(session, [LANE], 10, caps=[Cap("q", concurrency=1)]) == []


async def test_two_caps_bind_together(world: World) -> None:  # E26
    for _ in range(4):
        await world.enqueue()
    caps = [Cap("queue:default", concurrency=3), Cap("task:email", concurrency=2)]
    assert len(await world.store.claim(await world.session(), [LANE], 10, caps=caps)) == 2


async def test_a_rate_lets_a_burst_through_and_then_so_many_in_a_time(world: World) -> None:  # E26
    for _ in range(20):
        await world.enqueue()
    session, cap = await world.session(timedelta(hours=2)), Cap("queue:default", rate=6, per=MINUTE)
    assert len(await world.store.claim(session, [LANE], 10, caps=[cap])) == 6
    assert await world.store.claim(session, [LANE], 10, caps=[cap]) == []
    await world.advance("21s")  # one in ten seconds
    assert len(await world.store.claim(session, [LANE], 10, caps=[cap])) == 2
    await world.advance("1h")
    assert len(await world.store.claim(session, [LANE], 10, caps=[cap])) == 6


async def test_a_burst_taken_one_by_one_is_as_large_as_one_taken_at_once(world: World) -> None:  # E26
    for _ in range(9):
        await world.enqueue()
    session, cap = await world.session(), Cap("queue:default", rate=7, per=timedelta(hours=1))
    taken = [len(await world.store.claim(session, [LANE], 1, caps=[cap])) for _ in range(9)]
    assert taken == [1] * 7 + [0] * 2
    charge = Charge("owner:ann", "rate", 7, 1, timedelta(hours=1))
    assert (await world.store.lanes.charge([[charge]] * 8)).count(None) == 7


async def test_a_rate_that_was_raised_counts_at_once(world: World) -> None:  # E26
    for _ in range(3):
        await world.enqueue()
    session, slow = await world.session(), Cap("queue:default", rate=1, per=timedelta(hours=1))
    taken = [len(await world.store.claim(session, [LANE], 9, caps=[slow])) for _ in range(2)]
    assert taken == [1, 0]
    fast = slow._replace(rate=9, per=timedelta(seconds=1))
    assert len(await world.store.claim(session, [LANE], 9, caps=[fast])) == 2
    charge = Charge("owner:ann", "rate", 1, 1, timedelta(hours=1))
    assert (await world.store.lanes.charge([[charge]] * 2)).count(None) == 1
    [allowed] = await world.store.lanes.charge([[charge._replace(limit=9, per=MINUTE)]])
    assert allowed is None


async def test_a_rate_is_not_used_up_by_claims_that_found_nothing(world: World) -> None:  # E26
    session, cap = await world.session(), Cap("queue:default", rate=2, per=MINUTE)
    for _ in range(3):
        assert await world.store.claim(session, [LANE], 10, caps=[cap]) == []
    await world.enqueue()
    await world.enqueue()
    assert len(await world.store.claim(session, [LANE], 10, caps=[cap])) == 2


async def test_a_quota_is_taken_whole_or_not_at_all_and_says_when_it_is_new(world: World) -> None:  # E18
    day, month = Charge("owner:ann", "day", 2), Charge("org:acme", "month", 3)
    assert await world.store.lanes.charge([[day, month], [day, month]]) == [None, None]
    [refused] = await world.store.lanes.charge([[day, month]])
    assert refused is not None
    assert (refused.charge, refused.used) == (day, 2)
    assert timedelta() < refused.resets_in <= timedelta(days=1)
    assert await quota_use(world.store, "org:acme") == {"month": 2}
    assert await world.store.lanes.charge([[month]]) == [None]
    [refused] = await world.store.lanes.charge([[month]])
    assert refused is not None
    assert timedelta(days=1) > timedelta() < refused.resets_in <= timedelta(days=31)
    await world.advance("25h")
    assert await world.store.lanes.charge([[day]]) == [None]
    assert await quota_use(world.store, "owner:ann") == {"day": 1}


async def test_a_charge_may_cost_more_than_one(world: World) -> None:  # E18
    large = Charge("org:acme", "day", 10, 8)
    assert await world.store.lanes.charge([[large]]) == [None]
    [refused] = await world.store.lanes.charge([[large]])
    assert refused is not None
    assert await world.store.lanes.charge([[large._replace(amount=2)]]) == [None]


async def test_what_is_given_back_can_be_taken_again_and_no_more(world: World) -> None:  # E18
    day = Charge("owner:ann", "day", 2)
    back = day._replace(amount=-1, limit=1 << 53)
    assert await world.store.lanes.charge([[day], [day], [back]]) == [None, None, None]
    assert await quota_use(world.store, "owner:ann") == {"day": 1}
    assert await world.store.lanes.charge([[day]]) == [None]
    [refused] = await world.store.lanes.charge([[day]])
    assert refused is not None
    await world.advance("25h")  # what yesterday has paid is not today's
    assert await world.store.lanes.charge([[back]]) == [None]
    assert (await quota_use(world.store, "owner:ann")).get("day", 0) == 0
    assert await world.store.lanes.charge([[day], [day]]) == [None, None]
    [refused] = await world.store.lanes.charge([[day]])
    assert refused is not None


async def test_a_rate_per_owner_is_refused_until_there_is_room_again(world: World) -> None:  # E26
    one = Charge("owner:ann", "rate", 2, 1, MINUTE)
    assert await world.store.lanes.charge([[one], [one]]) == [None, None]
    [refused] = await world.store.lanes.charge([[one]])
    assert refused is not None
    assert timedelta(seconds=25) < refused.resets_in <= timedelta(seconds=30)
    await world.advance("31s")
    assert await world.store.lanes.charge([[one]]) == [None]


# -- order ------------------------------------------------------------------------------------------------------------
async def owners(world: World, limit: int = 100) -> list[str | None]:
    claimed: list[str | None] = []
    while found := await world.claim(limit=min(limit, 3), lane=FAIR):
        claimed += [job.owner for job in found]
    return claimed


async def test_owners_are_served_in_turn_whoever_came_first(world: World) -> None:  # E25
    for owner in ("ann",) * 4 + ("bob",) * 2 + ("eve",):
        await world.enqueue(lane=FAIR, owner=owner)
    served = await owners(world)
    assert sorted(str(owner) for owner in served[:3]) == ["ann", "bob", "eve"]
    assert sorted(str(owner) for owner in served[3:5]) == ["ann", "bob"]
    assert served[5:] == ["ann", "ann"]


async def test_jobs_of_one_owner_keep_their_order(world: World) -> None:  # E25
    wanted = [await world.enqueue(lane=FAIR, owner="ann") for _ in range(7)]
    claimed = [job.lease.job_id for _ in range(3) for job in await world.claim(limit=3, lane=FAIR)]
    assert claimed == wanted


async def test_a_newcomer_is_served_next_and_not_more_often_for_having_been_away(world: World) -> None:  # E25
    for _ in range(30):
        await world.enqueue(lane=FAIR, owner="hog")
    assert [job.owner for job in await world.claim(limit=10, lane=FAIR)] == ["hog"] * 10
    for _ in range(10):
        await world.enqueue(lane=FAIR, owner="new")
    served = [job.owner for _ in range(4) for job in await world.claim(limit=3, lane=FAIR)]
    assert "new" in served[:2]
    assert served.count("new") in (5, 6, 7)


async def test_who_weighs_more_is_served_more_often(world: World) -> None:  # E25
    await world.store.lanes.weigh({"gold": 3.0})
    for _ in range(20):
        await world.enqueue(lane=FAIR, owner="gold")
        await world.enqueue(lane=FAIR, owner="tin")
    served = [job.owner for _ in range(5) for job in await world.claim(limit=4, lane=FAIR)]
    assert served.count("gold") in (14, 15, 16)


async def test_retried_and_released_jobs_of_a_fair_lane_come_back(world: World) -> None:  # E25
    for owner in ("ann", "bob"):
        await world.enqueue(lane=FAIR, owner=owner)
    first, second = await world.claim(limit=2, lane=FAIR)
    await world.settle(first, retry("1m"))
    await world.settle(second, release())
    [again] = await world.claim(limit=5, lane=FAIR)
    assert again.lease.job_id == second.lease.job_id
    await world.advance("61s")
    [late] = await world.claim(limit=5, lane=FAIR)
    assert (late.lease.job_id, late.attempt, late.lane) == (first.lease.job_id, 2, FAIR)


async def test_fair_and_plain_lanes_are_served_in_turn(world: World) -> None:  # E25
    for _ in range(8):
        await world.enqueue()
        await world.enqueue(lane=FAIR, owner="ann")
    session = await world.session()
    served = [job.lane.fair for _ in range(4) for job in await world.store.claim(session, [LANE, FAIR], 2)]
    assert served.count(True) in (3, 4, 5)


async def test_low_priority_is_served_now_and_then(world: World) -> None:  # E25
    for _ in range(30):
        await world.enqueue(priority=10)
        await world.enqueue(priority=-10)
        await world.enqueue()
    session = await world.session()
    taken = [
        (await world.row(job.lease.job_id)).priority
        for _ in range(13)
        for job in await world.claim(session, limit=1)
    ]
    assert taken[:8] == [10] * 8  # the weights are 8, 4 and 1
    assert (taken.count(10), taken.count(0), taken.count(-10)) == (8, 4, 1)


async def test_a_claim_fills_up_from_the_other_levels(world: World) -> None:  # E25
    wanted = [await world.enqueue(priority=priority) for priority in (5, 10, 0, -1)]
    claimed = [job.lease.job_id for job in await world.claim(limit=10)]
    assert claimed == [wanted[1], wanted[0], wanted[2], wanted[3]]


# -- schedules --------------------------------------------------------------------------------------------------------
async def test_one_of_many_moves_a_schedule_on(world: World) -> None:  # E39
    now = await world.store.now()
    first, second, third = now, now + MINUTE, now + 2 * MINUTE
    assert await schedule_ticks.move(world.store, "nightly", before=None, last=first, due=second)
    assert not await schedule_ticks.move(world.store, "nightly", before=None, last=first, due=second)
    assert await schedule_ticks.move(world.store, "nightly", before=first, last=second, due=third)
    assert not await schedule_ticks.move(world.store, "nightly", before=first, last=second, due=third)
    [tick] = await schedule_ticks.every(world.store)
    assert tick == ("nightly", second, third, None)
    # What was enqueued last stays on record while the schedule moves on without a tick.
    assert await schedule_ticks.move(
        world.store, "nightly", before=second, last=third, due=third + MINUTE, ticked=third
    )
    assert await schedule_ticks.move(
        world.store, "nightly", before=third, last=third + MINUTE, due=third + 2 * MINUTE
    )
    [tick] = await schedule_ticks.every(world.store)
    assert tick.ticked == third
    assert await schedule_ticks.forget(world.store, "nightly")
    assert not await schedule_ticks.forget(world.store, "nightly")
