"""Pauses of what enters the line: a hold of the duty `delayed` or `retries`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.tables.holds import end_pause
from holdfast.jobs.job import JobId
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.jobs.moves import Kind
from holdfast.jobs.queue_position import Place
from tests.contract.world import LANE, MINUTE, World, release, retry

DELAYED, RETRIES = Scope(ScopeKind.MAINTENANCE, "delayed"), Scope(ScopeKind.MAINTENANCE, "retries")


async def pause(world: World, scope: Scope, span: timedelta | None = None) -> None:
    await world.store.lanes.hold(scope, Cause.PAUSE, span=span, reason="deploy", by="ann")


async def resume(world: World, scope: Scope) -> None:
    assert await end_pause(world.store, scope, by="ann")


async def claimed(world: World) -> list[JobId]:
    return [one.lease.job_id for one in await world.claim(limit=10)]


async def failed_once(world: World, **spec: Any) -> JobId:
    """A job whose first attempt has failed; the next is due in 30 s."""
    job_id = await world.enqueue(**spec)
    assert await world.settle(await world.claim_one(), retry("30s"))
    return job_id


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_pause_of_delayed_keeps_whatever_is_due_later_out_of_the_line(
    world: World, key: str | None
) -> None:  # E27 S4
    later = await world.enqueue(delay=MINUTE, key=key)
    await pause(world, DELAYED)
    before = await world.row(later)
    await world.advance("61s")
    assert await claimed(world) == []
    assert await world.row(later) == before
    now = await world.enqueue()
    assert await claimed(world) == [now]
    await resume(world, DELAYED)
    assert await claimed(world) == [later]


async def test_a_pause_of_delayed_keeps_retries_and_releases_out_too(world: World) -> None:  # E27 S4
    tried = await failed_once(world)
    given_back = await world.enqueue()
    await world.settle(await world.claim_one(), release("40s"))
    await pause(world, DELAYED)
    await world.advance("61s")
    assert await claimed(world) == []
    await resume(world, DELAYED)
    assert await claimed(world) == [tried, given_back]


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_pause_of_retries_keeps_only_out_what_was_tried_before(
    world: World, key: str | None
) -> None:  # E27 S4
    tried = await failed_once(world, key=key)
    later = await world.enqueue(delay=timedelta(seconds=30))
    await pause(world, RETRIES)
    await world.advance("61s")
    assert await claimed(world) == [later]
    await resume(world, RETRIES)
    assert await claimed(world) == [tried]


@pytest.mark.parametrize("scope", [DELAYED, RETRIES])
async def test_a_pause_of_promotion_ends_by_itself(world: World, scope: Scope) -> None:  # E27 S4
    tried = await failed_once(world)
    await pause(world, scope, span=MINUTE)
    await world.advance("50s")
    assert await claimed(world) == []
    await world.advance("11s")
    assert await claimed(world) == [tried]


@pytest.mark.parametrize("scope", [DELAYED, RETRIES])
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("passed", ["1s", "61s"])
async def test_a_person_lets_a_job_past_the_pause(
    world: World, scope: Scope, key: str | None, passed: str
) -> None:  # E27 E34
    tried = await failed_once(world, key=key)
    await pause(world, scope)
    await world.advance(passed)
    await world.store.promote(1000)
    await world.store.retry(tried, "ann", kind=Kind.manual_retry)
    assert await claimed(world) == [tried]
    assert (await world.row(tried)).retry_type == "MANUAL"


@pytest.mark.parametrize("scope", [DELAYED, RETRIES])
@pytest.mark.parametrize("key", [None, "k"])
async def test_what_goes_back_into_line_at_once_is_not_kept_out(
    world: World, scope: Scope, key: str | None
) -> None:  # E27
    job_id = await world.enqueue(key=key)
    await pause(world, scope)
    await world.settle(await world.claim_one(), release())
    assert await claimed(world) == [job_id]


async def test_who_stood_in_line_before_the_pause_stays_there(world: World) -> None:  # E24 E27
    later = await world.enqueue(delay=MINUTE)
    await world.advance("61s")
    await world.store.promote(1000)
    await pause(world, DELAYED)
    assert await claimed(world) == [later]


async def test_promotion_does_not_promise_what_a_pause_keeps_out(world: World) -> None:  # E27
    await failed_once(world)
    await pause(world, RETRIES)
    await world.advance("61s")
    assert not await world.store.promote(1000)
    await world.enqueue(delay=MINUTE)
    ahead = await world.store.promote(1000)
    assert ahead is not None
    assert timedelta(seconds=30) < ahead <= MINUTE


async def test_a_job_that_is_kept_out_stands_outside_the_line(world: World) -> None:  # E28
    tried = await failed_once(world)
    await pause(world, RETRIES)
    await world.advance("61s")
    await world.claim()
    queue_position = await world.store.queries.queue_position(tried)
    assert queue_position is not None
    assert queue_position.place is Place.LATER


async def test_the_pause_of_another_duty_keeps_nobody_out(world: World) -> None:  # E27
    await pause(world, Scope(ScopeKind.MAINTENANCE, "retention"))
    await pause(world, Scope(ScopeKind.QUEUE, "delayed"))
    later = await world.enqueue(delay=MINUTE, lane=LANE)
    await world.advance("61s")
    assert await claimed(world) == [later]
