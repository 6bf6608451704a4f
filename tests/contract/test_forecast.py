"""The forecast: how many retries and delayed jobs will be due from now on, by time and dependency."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.world import LANE, MINUTE, World, release, retry

GATEWAY = LANE._replace(dependency="gateway")
HOUR = timedelta(hours=1)


async def _retry_in(world: World, delay: str) -> None:
    await world.enqueue(lane=GATEWAY)
    [claimed] = await world.claim(lane=GATEWAY)
    await world.settle(claimed, retry(delay))


async def test_an_empty_store_has_an_empty_forecast(world: World) -> None:  # E68
    seen = await world.store.queries.forecast(HOUR, MINUTE, 100)
    assert (seen.scheduled, seen.is_capped, seen.bucket) == ([], False, MINUTE)
    assert seen.until == seen.at + HOUR


async def test_retries_and_delayed_jobs_are_counted_by_time_and_dependency(world: World) -> None:  # E68
    for delay in ("90s", "100s", "10m30s", "2h"):
        await _retry_in(world, delay)
    for seconds in (95, 30 * 60 + 30):
        await world.enqueue(lane=GATEWAY, delay=timedelta(seconds=seconds))
    await world.enqueue(delay=timedelta(seconds=95))
    await world.enqueue()  # due now
    seen = await world.store.queries.forecast(HOUR, MINUTE, 100)
    found = [((one.at - seen.at) // MINUTE, *one[1:]) for one in seen.scheduled]
    assert found == [(1, "", 0, 1), (1, "gateway", 2, 1), (10, "gateway", 1, 0), (30, "gateway", 0, 1)]
    assert not seen.is_capped


async def test_an_attempt_that_was_given_back_is_no_retry(world: World) -> None:  # E68 E9
    await world.enqueue()
    await world.settle(await world.claim_one(), release("5m"))
    [one] = (await world.store.queries.forecast(HOUR, HOUR, 100)).scheduled
    assert (one.retries, one.delayed) == (0, 1)


async def test_a_forecast_reads_those_that_are_due_first_and_says_how_far(world: World) -> None:  # E68
    for minutes in (30, 20, 10):
        await world.enqueue(delay=timedelta(minutes=minutes))
    seen = await world.store.queries.forecast(HOUR, MINUTE, 2)
    assert seen.is_capped
    assert timedelta(minutes=19) < seen.until - seen.at <= timedelta(minutes=20)
    assert sum(one.delayed for one in seen.scheduled) == 2


async def test_a_job_that_is_due_leaves_the_forecast(world: World) -> None:  # E68
    await world.enqueue(delay=MINUTE)
    await world.advance("2m")
    assert (await world.store.queries.forecast(HOUR, MINUTE, 10)).scheduled == []
    await world.store.promote(10)
    assert (await world.store.queries.forecast(HOUR, MINUTE, 10)).scheduled == []
