"""The statistics: what metrics and health are made of, counted without walking through everything there is."""

from __future__ import annotations

from datetime import timedelta

from holdfast.jobs.stats import JobStats, LaneStats
from holdfast.jobs.verdict import Verdict
from tests.contract.world import LANE, MINUTE, World, bury, done, retry

OTHER = LANE._replace(queue="other")


async def test_an_empty_store_has_an_empty_census(world: World) -> None:  # E62
    assert await world.store.queries.stats(10) == JobStats()


async def test_what_waits_runs_and_comes_later_is_counted_lane_by_lane(world: World) -> None:  # E62 E65
    for _ in range(3):
        await world.enqueue()
    await world.enqueue(delay=MINUTE)
    await world.enqueue(lane=OTHER)
    await world.advance("20s")
    await world.claim_one()
    seen = await world.store.queries.stats(100)
    assert {lane: (line.waiting, line.active) for lane, line in seen.lines.items()} == {
        LANE: (2, 1),
        OTHER: (1, 0),
    }
    oldest = seen.lines[LANE].oldest
    assert oldest is not None
    assert timedelta(seconds=20) <= oldest < timedelta(seconds=30)
    assert (seen.delayed, seen.overdue, seen.dead_letters) == (1, timedelta(), 0)


async def test_a_count_stops_at_the_bound(world: World) -> None:  # E62
    for _ in range(5):
        await world.enqueue()
        await world.enqueue(delay=MINUTE)
    seen = await world.store.queries.stats(3)
    assert (seen.lines[LANE].waiting, seen.delayed) == (3, 3)


async def test_a_job_that_came_due_and_was_not_let_into_line_is_overdue(world: World) -> None:  # E65
    await world.enqueue(delay=MINUTE)
    await world.advance("90s")
    seen = await world.store.queries.stats(10)
    assert timedelta(seconds=30) <= seen.overdue < timedelta(seconds=40)
    await world.claim_one()
    seen = await world.store.queries.stats(10)
    assert (seen.overdue, seen.delayed, seen.lines) == (timedelta(), 0, {LANE: LaneStats(0, 1, None)})


async def test_retries_of_late_are_counted_with_those_in_vain(world: World) -> None:  # E65
    for _ in range(3):
        await world.enqueue()
    session = await world.session()
    for claimed in await world.claim(session, limit=3):
        await world.settle(claimed, retry())  # a first attempt: not counted
    again = await world.claim(session, limit=3)
    verdicts: list[Verdict] = [done(), retry("1h"), bury()]
    for claimed, verdict in zip(again, verdicts, strict=True):
        await world.settle(claimed, verdict)
    seen = await world.store.queries.stats(10)
    assert (seen.retried, seen.failed_retries, seen.dead_letters) == (3, 2, 1)
    await world.advance("6m")
    seen = await world.store.queries.stats(10)
    assert (seen.retried, seen.failed_retries, seen.dead_letters) == (0, 0, 1)
