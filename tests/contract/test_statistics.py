"""Statistics: what is folded from the events is what the events tell, once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import JobSpec, NewJob, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Failure, Verdict
from holdfast.statistics import folding, table
from holdfast.statistics.folding import fold, lag, rebuild
from holdfast.statistics.metrics import HOUR, MINUTE, Metric, SeriesKey
from holdfast.statistics.sampling import sample
from holdfast.testing import ManualClock
from holdfast.values.histogram import bucket_of
from holdfast.wiring import new_job_id
from tests.contract.conftest import STORES
from tests.contract.world import LANE, World, bury, done, release, retry
from tests.contract.world import MINUTE as A_MINUTE
from tests.statistics.recount import check, stored

OTHER_LANE = LANE._replace(queue="slow", task="render", dependency="browser", shard="a")
SPENT = timedelta(milliseconds=70)


#: The memory store keeps no statistics.
pytestmark = pytest.mark.parametrize("world", [name for name in STORES if name != "memory"], indirect=True)


async def fold_all(world: World) -> None:
    while await fold(world.store):
        pass


async def set_back(world: World, by: timedelta) -> None:
    """Set the wall clock back; the monotonic one goes on."""
    if isinstance(world.clock, ManualClock):
        world.clock._start -= by
    else:
        await world.store.shift_clock(-by)  # type: ignore[attr-defined]


async def live_through_everything(world: World) -> None:
    """Every counted kind of event, in two lanes, alone and in groups."""
    for lane in (LANE, OTHER_LANE):
        jobs = [await world.enqueue(lane=lane, max_attempts=2) for _ in range(8)]
        session = await world.session(timedelta(hours=1))
        claimed = await world.claim(session, limit=8, lane=lane)
        verdicts: list[Verdict] = [done(), retry(), bury(), release(), retry(0, "OTHER"), done()]
        await world.store.settle(
            [
                Settlement(one.lease, verdict, one.attempt, SPENT * n, (), lane, one.waited, cost=n / 2)
                for n, (one, verdict) in enumerate(zip(claimed, verdicts, strict=False))
            ]
        )
        await world.store.cancel(claimed[6].lease.job_id, "ann", "")
        await world.settle(claimed[6], done())  # late
        lost = claimed[7].lease
        [overrun] = [Reclaim(lost, retry(0, "WORKER_LOST"), crashed=True)]
        await world.store.reclaim([overrun], stuck=True)
        await world.advance("61s")
        again = await world.claim(session, limit=10, lane=lane)
        await world.store.settle([Settlement(one.lease, bury(), one.attempt, SPENT) for one in again])
        await world.store.retry(again[0].lease.job_id, "ann", kind=Kind.manual_retry)
        await world.store.retry(again[1].lease.job_id, "ann", kind=Kind.redriven)
        timed = await world.enqueue(lane=lane, deadline=timedelta(seconds=5))
        later = await world.enqueue(lane=lane, delay=A_MINUTE)
        await world.store.retry(later, "ann", kind=Kind.manual_retry)
        await world.advance("6s")
        assert timed in await world.store.time_out(100)
        refused = NewJob(new_job_id(), "{}", JobSpec(lane=lane))
        await world.store.reject(refused, Failure.of("VALIDATION_ERROR", "no"))
        assert len(jobs) == 8


async def test_statistics_say_what_the_events_tell(world: World) -> None:  # E68a
    await live_through_everything(world)
    await fold_all(world)
    await check(world.store)


async def test_jobs_of_several_lanes_in_one_event_are_counted_in_their_own(world: World) -> None:  # E68a
    for lane in (LANE, OTHER_LANE):
        for _ in range(3):
            await world.enqueue(lane=lane)
    session = await world.session()
    claimed = await world.store.claim(session, [LANE, OTHER_LANE], 6)
    assert {one.lane for one in claimed} == {LANE, OTHER_LANE}
    await world.store.settle([Settlement(one.lease, done(), 1, SPENT, lane=one.lane) for one in claimed])
    await fold_all(world)
    await check(world.store)


async def test_nothing_is_counted_twice_by_two_that_fold_at_once(world: World) -> None:  # E68a
    await live_through_everything(world)
    await asyncio.gather(*(fold_all(world) for _ in range(4)))
    await check(world.store)


async def test_a_fold_that_is_ended_in_the_middle_counts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E68a
    await live_through_everything(world)
    real = table.add

    async def add(*given: object) -> None:
        await real(*given)  # type: ignore[arg-type]
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(table, "add", add)
        with pytest.raises(RuntimeError, match="killed"):
            await fold(world.store)
    assert not await stored(world.store)
    await fold_all(world)
    await check(world.store)


async def test_a_fold_is_bounded_and_goes_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:  # E68a
    monkeypatch.setattr(folding, "ROWS", 3)
    monkeypatch.setattr(folding, "READS", 2)
    await live_through_everything(world)
    assert await fold(world.store)
    assert await lag(world.store) > timedelta()
    await fold_all(world)
    assert await lag(world.store) == timedelta()
    await check(world.store)


async def test_a_clock_that_is_set_back_loses_nothing(world: World) -> None:  # E68a
    await world.enqueue()
    await world.advance("2h")
    await world.enqueue()
    await fold_all(world)
    await set_back(world, timedelta(minutes=90))
    await world.enqueue()
    await fold_all(world)
    await check(world.store)


async def test_waiting_begins_when_a_job_is_due(world: World) -> None:  # E68a
    await world.enqueue(delay=timedelta(minutes=5))
    await world.advance("5m")
    await world.advance("90s")
    claimed = await world.claim_one()
    await world.store.settle([Settlement(claimed.lease, done(), 1, SPENT, lane=LANE, waited=claimed.waited)])
    await fold_all(world)
    now = await world.store.now()
    range_ = (HOUR, now - timedelta(hours=1), now + timedelta(hours=1))
    found = await table.sums(world.store, *range_, [Metric.waited, Metric.took], SeriesKey())
    assert [(metric, bucket, value) for _, _, metric, bucket, value in sorted(found)] == [
        (Metric.waited, bucket_of(90_000), 1),
        (Metric.took, bucket_of(390_070), 1),
    ]


async def test_a_rebuild_counts_again_what_events_cover_and_leaves_the_rest(world: World) -> None:  # E68a
    await live_through_everything(world)
    await fold_all(world)
    before = await stored(world.store)
    assert await rebuild(world.store) is not None
    await fold_all(world)
    assert await stored(world.store) == before


async def test_a_rebuild_during_a_fold_counts_nothing_twice(world: World) -> None:  # E68a
    await live_through_everything(world)
    await fold_all(world)
    before = await stored(world.store)
    await world.enqueue()

    async def rebuild_now() -> None:
        await rebuild(world.store)

    await asyncio.gather(fold_all(world), rebuild_now(), fold_all(world))
    await fold_all(world)
    after = await stored(world.store)
    assert sum(after.values()) > sum(before.values())
    now = await world.store.now()
    assert await rebuild(world.store) is not None
    await fold_all(world)
    assert await stored(world.store) == after
    assert now is not None


async def test_samples_are_taken_once_a_minute(world: World) -> None:  # E68a
    await world.enqueue()
    await world.enqueue()
    await world.session()
    await world.advance("10s")
    assert await sample(world.store)
    assert not await sample(world.store)
    await world.claim_one()
    await world.advance("61s")
    assert await sample(world.store)
    now = await world.store.now()
    found = await table.sums(
        world.store, HOUR, now - timedelta(days=1), now + timedelta(days=1), [Metric.backlog], SeriesKey()
    )
    assert max(value for *_, value in found) == 2  # the highest of its minutes
    found = await table.sums(
        world.store, MINUTE, now - timedelta(days=1), now + timedelta(days=1), [Metric.backlog], SeriesKey()
    )
    assert [value for *_, value in found] == [2, 1]


async def test_old_figures_are_purged_by_their_period(world: World) -> None:  # E68a E38
    await world.enqueue()
    await fold_all(world)
    await world.advance("49h")
    await world.enqueue()
    await fold_all(world)
    now = await world.store.now()
    assert await table.purge(world.store, MINUTE, now) == 1
    assert await table.purge(world.store, MINUTE, now) == 0
    assert await table.purge(world.store, HOUR, now) == 0


async def test_series_beyond_the_cap_are_counted_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E68a
    monkeypatch.setattr(table, "MOST_SERIES", 3)
    for number in range(6):
        await world.enqueue(lane=LANE._replace(queue=f"queue {number}"))
    await fold_all(world)
    await world.enqueue(lane=LANE._replace(queue="queue 0"))
    await world.enqueue(lane=LANE._replace(queue="queue 9"))
    await fold_all(world)
    found = {key[2]: value for key, value in (await stored(world.store)).items() if key[0] == 1440}
    assert found == {"queue 0": 2, "queue 1": 1, "queue 2": 1, "(other)": 4}
