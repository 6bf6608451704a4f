"""Leases: sessions, fencing, reclaim, deadlines, late results."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.jobs.job import DeadLetterFilter, Settlement
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Bury, Failure, RetryAfter, Verdict
from tests.contract.world import MINUTE, World, bury, done, release, retry
from tests.heartbeats import extend

LOST = RetryAfter(timedelta(), Failure.of("WORKER_LOST"))


async def test_a_stale_settlement_does_not_time_out_a_job_that_is_queued_again(
    world: World,
) -> None:  # E2 E4 E9
    job_id = await world.enqueue(deadline=MINUTE)
    claimed = await world.claim_one(await world.session(ttl=10 * MINUTE))
    assert await world.settle(claimed, release(10 * MINUTE)) is SettlementStatus.APPLIED
    await world.advance(2 * MINUTE)
    for verdict in (done(), bury(), retry(), release()):
        assert await world.settle(claimed, verdict) is SettlementStatus.REPEATED
        assert (await world.row(job_id)).state is State.QUEUED


async def test_a_session_that_is_extended_keeps_its_leases(world: World) -> None:  # E2 E30
    await world.enqueue()
    session = await world.session()
    claimed = await world.claim_one(session)
    for _ in range(4):
        await world.advance("40s")
        assert await extend(world.store, session)
    assert await world.store.expired(10) == []
    assert await world.store.held(session) == {claimed.lease}
    assert await world.settle(claimed, done()) is SettlementStatus.APPLIED


async def test_a_session_that_ended_cannot_come_back(world: World) -> None:  # E4
    await world.enqueue()
    session = await world.session()
    await world.advance("61s")
    assert not await extend(world.store, session)
    assert await world.store.claim(session, [], 1) == []
    assert await world.claim(session) == []


async def test_a_lost_workers_job_is_reclaimed_and_the_crash_counts(world: World) -> None:  # E2a E30
    job_id = await world.enqueue()
    first = await world.claim_one()
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    assert (lost.lease, lost.attempt, lost.crashes, lost.overran) == (first.lease, 1, 0, False)
    assert await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)]) == 1
    row = await world.row(job_id)
    assert (row.state, row.attempt, row.crashes) == (State.QUEUED, 1, 1)
    assert (await world.claim_one()).attempt == 2
    assert (await world.kinds(job_id))[:3] == ["queued", "processing", "reclaimed"]


async def test_a_reclaim_sent_twice_or_by_two_happens_once(world: World) -> None:  # E6
    job_id = await world.enqueue()
    await world.claim_one()
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    assert await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)]) == 1
    assert await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)]) == 0
    assert (await world.row(job_id)).crashes == 1


async def test_a_lease_that_is_alive_cannot_be_reclaimed(world: World) -> None:  # E4 E30
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await world.store.reclaim([Reclaim(claimed.lease, LOST, crashed=True)]) == 0
    assert (await world.row(job_id)).state is State.PROCESSING


async def test_a_job_that_was_completed_is_not_reclaimed(world: World) -> None:  # E4
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    assert (
        await world.settle(claimed, done("1")) is SettlementStatus.APPLIED
    )  # late, but nobody had taken it away yet
    assert await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)]) == 0
    assert (await world.row(job_id)).result == 1


async def test_a_stale_holder_is_refused_and_the_refusal_is_recorded_once(world: World) -> None:  # E4 E2a
    job_id = await world.enqueue()
    old = await world.claim_one()
    await world.advance("61s")
    await world.store.reclaim([Reclaim(old.lease, LOST, crashed=True)])
    new = await world.claim_one()
    for verdict in (done("1"), retry(), bury()):
        assert await world.settle(old, verdict) is SettlementStatus.STALE
    assert (await world.row(job_id)).state is State.PROCESSING
    assert await world.settle(new, done("2")) is SettlementStatus.APPLIED
    assert await world.settle(old, done("3")) is SettlementStatus.STALE
    assert (await world.row(job_id)).result == 2
    assert (await world.kinds(job_id)).count("stale_write") == 1
    outcomes = [attempt.outcome for attempt in await world.store.queries.attempts(job_id)]
    assert outcomes == ["reclaimed", "complete"]


async def test_a_reclaim_can_bury(world: World) -> None:  # E2a E32
    job_id = await world.enqueue(max_attempts=1)
    await world.claim_one()
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    verdict = Bury(Failure.of("WORKER_LOST"))
    assert await world.store.reclaim([Reclaim(lost.lease, verdict, crashed=True)]) == 1
    row = await world.row(job_id)
    assert (row.state, row.error_code, row.crashes) == (State.FAILED, "WORKER_LOST", 1)
    assert len(await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10)) == 1


async def test_a_completed_attempt_ends_the_row_of_crashes(world: World) -> None:  # E2a
    job_id = await world.enqueue()
    await world.claim_one()
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)])
    await world.settle(await world.claim_one(), retry())
    assert (await world.row(job_id)).crashes == 0


async def test_a_closed_session_gives_its_leases_up_at_once(world: World) -> None:  # E31
    await world.enqueue()
    session = await world.session()
    claimed = await world.claim_one(session)
    await world.store.close_session(session)
    assert [lost.lease for lost in await world.store.expired(10)] == [claimed.lease]


async def test_an_attempt_past_its_hard_timeout_can_be_taken_from_a_live_worker(
    world: World,
) -> None:  # E2 E41
    job_id = await world.enqueue(timeout=timedelta(seconds=10))
    session = await world.session()
    claimed = await world.claim_one(session)
    row = await world.row(job_id)
    assert row.lease_expires_at is not None
    assert row.last_attempt_at is not None
    assert row.lease_expires_at - row.last_attempt_at <= timedelta(seconds=11)
    await world.advance("12s")
    assert await world.store.expired(10) == []  # within the margin its own worker may still say so itself
    await world.advance("10s")
    [lost] = await world.store.expired(10)
    assert (lost.lease, lost.overran) == (claimed.lease, True)
    over = RetryAfter(timedelta(), Failure.of("EXECUTION_TIMEOUT"))
    assert await world.store.reclaim([Reclaim(lost.lease, over, crashed=True)]) == 0  # its worker is not lost
    assert await world.store.reclaim([Reclaim(lost.lease, over, crashed=False)]) == 1
    assert (await world.row(job_id)).crashes == 0


async def test_what_passes_its_deadline_fails_wherever_it_is(world: World) -> None:  # E34
    waiting = await world.enqueue(deadline=MINUTE, delay=timedelta(hours=1))
    running = await world.enqueue(deadline=MINUTE)
    relaxed = await world.enqueue(deadline=timedelta(hours=1))
    session = await world.session(ttl=timedelta(hours=1))
    await world.claim_one(session)
    assert await world.store.time_out(10) == []
    await world.advance("61s")
    assert set(await world.store.time_out(10)) == {waiting, running}
    assert await world.store.time_out(10) == []
    for job_id in (waiting, running):
        row = await world.row(job_id)
        assert (row.state, row.error_code) == (State.FAILED, "TIMEOUT")
        assert (await world.kinds(job_id))[-1] == "timed_out"
    assert (await world.row(relaxed)).state is State.QUEUED
    assert (
        len(
            await world.store.queries.dead_letters(DeadLetterFilter(codes=("TIMEOUT",)), after=None, limit=10)
        )
        == 2
    )


async def test_a_result_after_the_deadline_is_late_whether_or_not_the_sweep_came(
    world: World,
) -> None:  # E2a E35
    for sweep in (True, False):
        job_id = await world.enqueue(deadline=MINUTE)
        claimed = await world.claim_one(await world.session(ttl=timedelta(hours=1)))
        await world.advance("61s")
        if sweep:
            await world.store.time_out(10)
        assert await world.settle(claimed, done('"too late"')) is SettlementStatus.LATE
        assert await world.settle(claimed, done('"too late"')) is SettlementStatus.LATE
        row = await world.row(job_id)
        assert (row.state, row.error_code, row.result) == (State.FAILED, "TIMEOUT", None)
        [late] = await world.store.queries.late_results(job_id)
        assert (late.result, late.reason, late.outcome) == ("too late", "timed_out", "complete")
        assert (await world.kinds(job_id)).count("late_result") == 1


@pytest.mark.parametrize("world", ["memory", "sqlite"], indirect=True)  # their clocks stand still
@pytest.mark.parametrize(
    "verdict", [done("1"), retry(), release(), bury()], ids=["complete", "retry", "release", "bury"]
)
async def test_an_attempt_that_ends_at_the_very_deadline_is_in_time(
    world: World, verdict: Verdict
) -> None:  # E34 E35
    for past, answer in (
        (timedelta(), SettlementStatus.APPLIED),
        (timedelta(microseconds=1), SettlementStatus.LATE),
    ):
        await world.enqueue(deadline=MINUTE)
        claimed = await world.claim_one(await world.session(ttl=timedelta(hours=1)))
        await world.advance(MINUTE)
        assert await world.store.time_out(10) == []
        await world.advance(past)
        assert await world.settle(claimed, verdict) is answer
        await world.advance(MINUTE)
        await world.store.time_out(10)  # so that a retried one does not come first in the next round


async def test_a_result_after_a_cancel_is_late(world: World) -> None:  # E2a E29
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.store.cancel(job_id, "ann", "no longer needed")
    assert await world.settle(claimed, done("1")) is SettlementStatus.LATE
    row = await world.row(job_id)
    assert (row.state, row.result) == (State.CANCELLED, None)
    [late] = await world.store.queries.late_results(job_id)
    assert (late.result, late.reason) == (1, "cancelled")


async def test_a_whole_page_of_expired_leases_hides_none(world: World) -> None:  # E30
    ids = {await world.enqueue() for _ in range(25)}
    await world.claim(limit=25)
    await world.advance("61s")
    seen = set()
    while lost := await world.store.expired(10):
        seen |= {one.lease.job_id for one in lost}
        await world.store.reclaim([Reclaim(one.lease, LOST, crashed=True) for one in lost])
    assert seen == ids


async def test_only_the_newest_of_many_holders_can_settle(world: World) -> None:  # E4 E5
    job_id = await world.enqueue(max_attempts=10)
    holders = []
    for _ in range(5):
        claimed = await world.claim_one()
        holders.append(claimed)
        await world.advance("61s")
        if len(holders) < 5:
            [lost] = await world.store.expired(10)
            await world.store.reclaim([Reclaim(lost.lease, LOST, crashed=True)])
    answers = await world.store.settle(
        [Settlement(c.lease, done(str(n)), c.attempt) for n, c in enumerate(holders)]
    )
    assert answers == [SettlementStatus.STALE] * 4 + [SettlementStatus.APPLIED]
    assert (await world.row(job_id)).result == 4
    assert (await world.kinds(job_id)).count("complete") == 1


async def test_a_step_or_progress_of_a_reclaimed_lease_is_refused_on_record(world: World) -> None:  # E4
    job_id = await world.enqueue()
    old = await world.claim_one()
    await world.advance("61s")
    await world.store.reclaim([Reclaim(old.lease, LOST, crashed=True)])
    with pytest.raises(LeaseLost):
        await world.store.record_step(old.lease, "llm", "1")
    with pytest.raises(LeaseLost):
        await world.store.record_progress(old.lease, 10.0, "")
    assert await world.store.queries.steps(job_id) == {}
    assert (await world.kinds(job_id)).count("stale_write") == 1
