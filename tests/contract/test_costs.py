"""What attempts cost: it stands in their records and in the events of their ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import Claimed, JobId, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Complete, Verdict
from tests.contract.world import MINUTE, World, bury, done, release, retry


async def settle(world: World, claimed: Claimed, verdict: Verdict, cost: float) -> None:
    await world.store.settle([Settlement(claimed.lease, verdict, claimed.attempt, cost=cost)])


async def costs(world: World, job_id: JobId) -> list[float | None]:
    return [attempt.cost for attempt in await world.store.queries.attempts(job_id)]


async def last_meta(world: World, job_id: JobId) -> dict[str, object]:
    return (await world.store.queries.events(after=0, limit=100, job_id=job_id))[-1].meta


@pytest.mark.parametrize(
    "verdict", [done(), retry(), bury(), release()], ids=["complete", "retry", "failed", "released"]
)
async def test_the_cost_of_an_attempt_is_in_its_record_and_its_event(
    world: World, verdict: Verdict
) -> None:  # E8 E68a
    job_id = await world.enqueue()
    await settle(world, await world.claim_one(), verdict, 0.25)
    assert await costs(world, job_id) == [0.25]
    assert (await last_meta(world, job_id))["cost"] == 0.25


async def test_an_ordinary_cost_is_not_in_the_event(world: World) -> None:  # E68a
    job_id = await world.enqueue()
    await settle(world, await world.claim_one(), done(), 1.0)
    assert await costs(world, job_id) == [1.0]
    assert "cost" not in await last_meta(world, job_id)


async def test_each_attempt_of_a_group_has_its_own_cost(world: World) -> None:  # E8 E68a
    ids = [await world.enqueue() for _ in range(3)]
    claimed = {one.lease.job_id: one for one in await world.claim(limit=3)}
    own = dict(zip(ids, (1.0, 0.0, 7.5), strict=True))
    await world.store.settle([Settlement(claimed[one].lease, done(), 1, cost=own[one]) for one in ids])
    assert [await costs(world, one) for one in ids] == [[1.0], [0.0], [7.5]]


async def test_a_handlers_own_transaction_records_its_cost(world: World) -> None:  # E8 E68a
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    async with world.store.transaction() as connection:
        await world.store.complete_in(connection, Settlement(claimed.lease, Complete("1"), 1, cost=3.0))
    assert await costs(world, job_id) == [3.0]


async def test_a_reclaimed_attempt_costs_what_its_task_says(world: World) -> None:  # E8 E68a
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.advance("61s")
    await world.store.reclaim([Reclaim(claimed.lease, retry(0, "WORKER_LOST"), crashed=True, cost=4.0)])
    assert (await costs(world, job_id), (await last_meta(world, job_id))["cost"]) == ([4.0], 4.0)
    claimed = await world.claim_one()
    await world.advance("61s")
    await world.store.reclaim([Reclaim(claimed.lease, bury("WORKER_LOST"), crashed=True, cost=5.0)])
    assert (await costs(world, job_id), (await last_meta(world, job_id))["cost"]) == ([4.0, 5.0], 5.0)


async def test_the_cost_of_a_running_or_cancelled_attempt_is_not_known(world: World) -> None:  # E8
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await costs(world, job_id) == [None]
    await world.store.cancel(job_id, "ann", "")
    assert await costs(world, job_id) == [None]
    await settle(world, claimed, done(), 2.0)  # too late: its cost is in the event
    assert (await costs(world, job_id), (await last_meta(world, job_id))["cost"]) == ([None], 2.0)


async def test_a_timed_out_attempt_has_no_cost_until_its_worker_reports(world: World) -> None:  # E8 E68a
    job_id = await world.enqueue(deadline=MINUTE)
    claimed = await world.claim_one(await world.session(timedelta(hours=1)))
    await world.advance("61s")
    await settle(world, claimed, retry(), 2.0)
    assert await costs(world, job_id) == [None]
    events = await world.store.queries.events(after=0, limit=100, job_id=job_id)
    assert [(e.kind, e.meta.get("cost")) for e in events[-2:]] == [("timed_out", None), ("late_result", 2.0)]


async def test_a_manual_retry_costs_nothing_by_itself(world: World) -> None:  # E8
    job_id = await world.enqueue()
    await settle(world, await world.claim_one(), bury(), 0.5)
    await world.store.retry(job_id, "ann", kind=Kind.manual_retry)
    assert await costs(world, job_id) == [0.5]
