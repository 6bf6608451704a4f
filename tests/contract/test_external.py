"""Jobs that others execute: claimed by their id, ended by their generation."""

from __future__ import annotations

from datetime import timedelta

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import JobId, Lease, Settlement
from holdfast.jobs.moves import Kind, State
from tests.contract.world import MINUTE, World, bury, done


async def claim(world: World, job_id: JobId, generation: int = 1) -> Lease | None:
    session = await world.store.open_session("celery@one", MINUTE)
    claimed = await world.store.claim_job(session, job_id, generation)
    return None if claimed is None else claimed.lease


async def late(world: World, job_id: JobId, generation: int = 1) -> SettlementStatus:
    return await world.store.settle_unheld(job_id, generation, done('"late"'), by="celery@one")


async def test_one_job_is_claimed_by_its_id_ahead_of_its_line(world: World) -> None:  # E45
    first, second = await world.enqueue(), await world.enqueue()
    session = await world.store.open_session("celery@one", MINUTE)
    claimed = await world.store.claim_job(session, second, 1)
    assert claimed is not None
    assert (claimed.lease.job_id, claimed.attempt, claimed.generation) == (second, 1, 1)
    assert await world.store.claim_job(session, second, 1) is None  # it does not wait any more
    assert (await world.row(second)).state is State.PROCESSING
    assert await world.kinds(second) == ["queued", "processing"]
    [attempt] = await world.store.queries.attempts(second)
    assert attempt.worker == "celery@one"
    assert (await world.claim_one()).lease.job_id == first
    assert await world.store.settle([Settlement(claimed.lease, done("1"), 1)]) == [SettlementStatus.APPLIED]


async def test_one_that_is_due_later_can_be_claimed_by_its_id(world: World) -> None:  # E45
    job_id = await world.enqueue(delay=timedelta(hours=1))
    lease = await claim(world, job_id)
    assert lease is not None
    assert await world.store.settle([Settlement(lease, done("1"), 1)]) == [SettlementStatus.APPLIED]
    assert (await world.row(job_id)).state is State.COMPLETE


async def test_of_another_generation_it_is_left_alone(world: World) -> None:  # E45
    job_id = await world.enqueue()
    assert await claim(world, job_id, 2) is None
    await world.settle(await world.claim_one(), bury())
    await world.store.retry(job_id, "ann", kind=Kind.manual_retry)
    assert await claim(world, job_id, 1) is None
    assert await claim(world, job_id, 2) is not None


async def test_without_a_live_session_nothing_is_claimed(world: World) -> None:  # E45 E30
    job_id = await world.enqueue()
    session = await world.store.open_session("celery@one", MINUTE)
    await world.store.close_session(session)
    assert await world.store.claim_job(session, job_id, 1) is None
    assert (await world.row(job_id)).state is State.QUEUED


async def test_its_lease_runs_out_like_any_other(world: World) -> None:  # E30 E45
    job_id = await world.enqueue()
    assert await claim(world, job_id) is not None
    await world.advance("2m")
    [lost] = await world.store.expired(10)
    assert (lost.lease.job_id, lost.worker) == (job_id, "celery@one")


async def test_what_comes_late_for_a_job_that_never_ran_is_kept_once(world: World) -> None:  # E35
    job_id = await world.enqueue(deadline=MINUTE)
    await world.advance("61s")
    await world.store.time_out(10)
    assert [await late(world, job_id), await late(world, job_id)] == [
        SettlementStatus.LATE,
        SettlementStatus.LATE,
    ]
    [kept] = await world.store.queries.late_results(job_id)
    assert (kept.epoch, kept.reason, kept.outcome, kept.result) == (-1, "timed_out", "complete", "late")
    row = await world.row(job_id)
    assert (row.state, row.error_code) == (State.FAILED, "TIMEOUT")
    assert await world.kinds(job_id) == ["queued", "timed_out", "late_result"]


async def test_what_comes_late_for_one_that_ran_is_kept_under_its_lease(world: World) -> None:  # E35
    job_id = await world.enqueue()
    lease = await claim(world, job_id)
    assert lease is not None
    await world.store.cancel(job_id, "ann", "")
    assert await world.store.settle([Settlement(lease, done('"late"'), 1)]) == [SettlementStatus.LATE]
    assert await late(world, job_id) is SettlementStatus.LATE
    [kept] = await world.store.queries.late_results(job_id)
    assert (kept.epoch, kept.reason) == (lease.epoch, "cancelled")


async def test_each_generation_keeps_a_late_result_of_its_own(world: World) -> None:  # E35
    job_id = await world.enqueue(deadline=MINUTE)
    for generation in (1, 2):
        await world.advance("61s")
        await world.store.time_out(10)
        assert await late(world, job_id, generation) is SettlementStatus.LATE
        if generation == 1:
            await world.store.retry(job_id, "ann", kind=Kind.manual_retry)
    assert {kept.epoch for kept in await world.store.queries.late_results(job_id)} == {-1, -2}


async def test_what_comes_again_after_the_end_changes_nothing(world: World) -> None:  # E5
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), done("1"))
    before = await world.kinds(job_id)
    assert await late(world, job_id) is SettlementStatus.REPEATED
    assert await world.kinds(job_id) == before
    assert (await world.row(job_id)).result == 1
    assert await world.store.queries.late_results(job_id) == []


async def test_what_comes_for_another_generation_is_on_record_and_changes_nothing(world: World) -> None:  # E5
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    await world.store.retry(job_id, "ann", kind=Kind.manual_retry)
    before = await world.row(job_id)
    assert await late(world, job_id, 1) is SettlementStatus.STALE
    assert await late(world, job_id, 1) is SettlementStatus.STALE  # however often: one event
    assert (await world.row(job_id)).state == before.state
    [told] = [
        event
        for event in await world.store.queries.events(after=0, limit=100, job_id=job_id)
        if event.kind == "stale_write"
    ]
    assert told.meta == {"name": "generation 1", "by": "celery@one", "generation": 1}
