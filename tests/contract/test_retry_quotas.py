"""Quotas of manual retries: what is refused, and what is counted, in the transaction of the retry."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import StuckAttempt
from holdfast.engine.quotas import MANUAL_RETRIES, manual_retry_charges
from holdfast.engine.tables.usage import quota_use
from holdfast.errors import Changed, Conflict, QuotaExceeded
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.precondition import Precondition, Version
from holdfast.resilience.limits import Quota
from holdfast.values.periods import period_ends
from tests.contract.world import MINUTE, World, bury, failed, retry

ONE_A_DAY = manual_retry_charges("ann", Quota(manual_retries_per_day=1))
TWO_A_DAY = manual_retry_charges("ann", Quota(manual_retries_per_day=2))


async def manual(
    world: World,
    job_id: JobId,
    charges: list[Charge],
    *,
    kind: Kind = Kind.manual_retry,
    token: str | None = None,
    stuck: StuckAttempt | None = None,
) -> None:
    precondition = Precondition(token=token)
    await world.store.retry(job_id, "ann", kind=kind, precondition=precondition, stuck=stuck, charges=charges)


async def dead(world: World, **spec: Any) -> JobId:
    job_id = await world.enqueue(owner="ann", **spec)
    await world.settle(await world.claim_one(), bury())
    return job_id


async def used(world: World, owner: str = "ann") -> dict[str, int]:
    return await quota_use(world.store, f"{MANUAL_RETRIES} {owner}")


def whole_seconds(span: timedelta) -> timedelta:
    return timedelta(seconds=span // timedelta(seconds=1))


async def test_a_manual_retry_beyond_the_quota_is_refused_and_changes_nothing(
    world: World,
) -> None:  # E18 E33
    first, second = await dead(world), await dead(world)
    await manual(world, first, ONE_A_DAY)
    row, kinds = await world.row(second), await world.kinds(second)
    with pytest.raises(QuotaExceeded, match="ann may use 1 manual retries a day") as refused:
        await manual(world, second, ONE_A_DAY)
    error = refused.value
    assert (error.code, error.owner, error.quota, error.limit) == (
        "QUOTA_EXCEEDED",
        "ann",
        "manual_retries_per_day",
        1,
    )
    assert error.resets_at == period_ends("day", await world.store.now())
    assert await world.row(second) == row
    assert await world.kinds(second) == kinds
    assert await used(world) == {"day": 1}


async def test_a_redrive_beyond_the_quota_is_refused_and_keeps_the_dead_letter(
    world: World,
) -> None:  # E18 E34
    first, second = await dead(world), await dead(world)
    await manual(world, first, ONE_A_DAY, kind=Kind.redriven)
    with pytest.raises(QuotaExceeded):
        await manual(world, second, ONE_A_DAY, kind=Kind.redriven)
    await world.store.discard(second, "ann", "it is still there")
    assert await used(world) == {"day": 1}


async def test_the_use_of_manual_retries_begins_anew_with_each_period(world: World) -> None:  # E18
    charges = manual_retry_charges("ann", Quota(manual_retries_per_day=1, manual_retries_per_month=40))
    job_id = await dead(world)
    await manual(world, job_id, charges)
    await world.settle(await world.claim_one(), bury())
    midnight = period_ends("day", await world.store.now())
    await world.advance(whole_seconds(midnight - await world.store.now()) - MINUTE)
    with pytest.raises(QuotaExceeded) as refused:
        await manual(world, job_id, charges)
    assert refused.value.resets_at == midnight
    await world.advance(whole_seconds(midnight - await world.store.now()) + MINUTE)
    await manual(world, job_id, charges)
    assert (await used(world))["day"] == 1


async def test_a_retry_is_charged_to_all_of_its_quotas_or_to_none(world: World) -> None:  # E18
    organization = manual_retry_charges("acme", Quota(manual_retries_per_month=1))
    charges = [*manual_retry_charges("acme/ann", Quota(manual_retries_per_day=5)), *organization]
    others = [*manual_retry_charges("acme/bob", Quota(manual_retries_per_day=5)), *organization]
    first, second = await dead(world), await dead(world)
    await manual(world, first, charges)
    with pytest.raises(QuotaExceeded) as refused:
        await manual(world, second, others)
    assert (refused.value.owner, refused.value.quota) == ("acme", "manual_retries_per_month")
    assert refused.value.resets_at == period_ends("month", await world.store.now())
    assert (await used(world, "acme/ann"), await used(world, "acme")) == ({"day": 1}, {"month": 1})
    assert await used(world, "acme/bob") == {}


async def test_of_two_retries_at_once_with_one_left_one_is_refused(world: World) -> None:  # E18 E33
    first, *jobs = [await dead(world) for _ in range(3)]
    await manual(world, first, TWO_A_DAY)
    answers = await asyncio.gather(
        *(manual(world, job_id, TWO_A_DAY) for job_id in jobs), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["NoneType", "QuotaExceeded"]
    states = sorted([(await world.row(job_id)).state for job_id in jobs])
    assert states == [State.FAILED, State.QUEUED]
    assert await used(world) == {"day": 2}


async def test_two_retries_of_one_job_at_once_are_counted_once(world: World) -> None:  # E18 E33
    job_id = await dead(world)
    answers = await asyncio.gather(
        *(manual(world, job_id, TWO_A_DAY) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "NoneType"]
    assert await used(world) == {"day": 1}


async def test_a_retry_whose_answer_was_lost_is_counted_once(world: World) -> None:  # E6 E18
    job_id = await dead(world)
    await manual(world, job_id, ONE_A_DAY, token="call-1")
    await manual(world, job_id, ONE_A_DAY, token="call-1")
    assert await used(world) == {"day": 1}
    assert (await world.row(job_id)).generation == 2


async def test_a_retry_that_is_refused_for_another_reason_is_not_counted(world: World) -> None:  # E18 E33
    key = b"0123456789abcdef"
    job_id = await dead(world, dedupe=key)
    twin = await world.enqueue(owner="ann", dedupe=key)
    with pytest.raises(Conflict):
        await manual(world, job_id, ONE_A_DAY)
    await world.settle(await world.claim_one(), bury())
    elsewhere = Precondition(versions=frozenset({Version(State.QUEUED, 1, 2, 3, 4)}))
    with pytest.raises(Changed):
        await world.store.retry(
            twin, "ann", kind=Kind.manual_retry, precondition=elsewhere, charges=ONE_A_DAY
        )
    assert await used(world) == {}


async def test_a_retry_that_begins_no_generation_is_not_counted(world: World) -> None:  # E18 E33
    """A waiting job would run anyway, and so would a stuck one."""
    none_a_day = manual_retry_charges("ann", Quota(manual_retries_per_day=0))
    waiting = await world.enqueue(owner="ann")
    await world.settle(await world.claim_one(), retry("1h"))
    await manual(world, waiting, none_a_day)
    stuck = await world.claim_one()
    await manual(world, waiting, none_a_day, stuck=StuckAttempt(stuck.lease, failed("STUCK")))
    assert (await world.row(waiting)).generation == 1
    assert await used(world) == {}


async def test_a_stuck_job_without_attempts_left_stays_with_its_worker_if_the_quota_is_used_up(
    world: World,
) -> None:  # E18 E33
    job_id = await world.enqueue(owner="ann", max_attempts=1)
    claimed = await world.claim_one()
    stuck = StuckAttempt(claimed.lease, failed("STUCK"))
    none_a_day = manual_retry_charges("ann", Quota(manual_retries_per_day=0))
    kinds = await world.kinds(job_id)
    with pytest.raises(QuotaExceeded):
        await manual(world, job_id, none_a_day, stuck=stuck)
    assert (await world.row(job_id)).state is State.PROCESSING
    assert await world.kinds(job_id) == kinds
    await manual(world, job_id, ONE_A_DAY, stuck=stuck)
    assert (await world.row(job_id)).generation == 2
    assert await used(world) == {"day": 1}
