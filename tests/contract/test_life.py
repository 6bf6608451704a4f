"""The life of a job: enqueue, claim, settle, and what each leaves behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.jobs.job import JobSpec, Lane, Lease, NewJob, Settlement
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Verdict
from holdfast.wiring import SystemIds
from tests.contract.conftest import STORES
from tests.contract.world import LANE, MINUTE, World, bury, done, release, retry

# E51 E52: the whole file
pytestmark = pytest.mark.parametrize("world", [*STORES, "postgres18"], indirect=True)


async def test_an_enqueued_job_is_queued_and_on_record(world: World) -> None:  # E1 E3a E8 E60
    job_id = await world.enqueue('{"to":"ann"}', owner="ann", tags=("a", "b"), priority=3)
    row = await world.row(job_id)
    assert (row.state, row.attempt, row.max_attempts, row.generation) == (State.QUEUED, 0, 3, 1)
    assert (row.task, row.queue, row.owner, row.priority, row.tags) == (
        "email",
        "default",
        "ann",
        3,
        ("a", "b"),
    )
    assert row.payload == {"to": "ann"}
    assert (row.retry_type, row.manual_retry_count) == ("AUTOMATIC", 0)
    assert row.run_at == row.queued_at == row.created_at
    assert await world.kinds(job_id) == ["queued"]


async def test_a_claim_starts_an_attempt_under_a_new_epoch(world: World) -> None:  # E2 E8
    job_id = await world.enqueue(priority=3)
    session = await world.session()
    claimed = await world.claim_one(session)
    row = await world.row(job_id)
    assert (claimed.lease.job_id, claimed.attempt, claimed.payload) == (job_id, 1, "{}")
    assert claimed.priority == 3
    assert (row.state, row.attempt, row.epoch) == (State.PROCESSING, 1, claimed.lease.epoch)
    assert row.leased_by == session.worker
    assert row.lease_expires_at is not None
    assert timedelta(seconds=50) < row.lease_expires_at - row.last_attempt_at <= timedelta(seconds=61)  # type: ignore[operator]
    assert row.started_at == row.last_attempt_at
    assert await world.kinds(job_id) == ["queued", "processing"]


async def test_a_claim_has_the_values_of_the_spec(world: World) -> None:  # E8
    """The fields that `Claimed` and `JobSpec` have in common, each with a value that no other has."""
    job_id = await world.enqueue(
        owner="ann",
        priority=4,
        max_attempts=7,
        timeout=timedelta(seconds=11),
        start_within=timedelta(seconds=12.000001),
        key="k",
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        version=6,
    )
    session = await world.session()
    claimed = await world.claim_one(session)
    fields = (claimed.owner, claimed.priority, claimed.max_attempts, claimed.timeout, claimed.start_within)
    assert fields == ("ann", 4, 7, timedelta(seconds=11), timedelta(seconds=12.000001))
    assert (claimed.key, claimed.version) == ("k", 6)
    assert claimed.trace == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await world.settle(claimed, release("1m"))
    again = await world.store.claim_job(session, job_id, 1)
    assert again is not None
    assert again._replace(lease=claimed.lease, waited=claimed.waited) == claimed


async def test_a_complete_job_has_its_result_and_one_end(world: World) -> None:  # E2 E3 E5
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await world.settle(claimed, done('{"pages":3}')) is SettlementStatus.APPLIED
    row = await world.row(job_id)
    assert (row.state, row.result, row.error_code, row.leased_by) == (
        State.COMPLETE,
        {"pages": 3},
        None,
        None,
    )
    assert row.finished_at is not None
    assert await world.kinds(job_id) == ["queued", "processing", "complete"]
    [attempt] = await world.store.queries.attempts(job_id)
    assert (attempt.outcome, attempt.epoch, attempt.attempt) == ("complete", claimed.lease.epoch, 1)


async def test_a_failed_attempt_is_retried_after_its_delay(world: World) -> None:  # E2 E8 E11
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), retry("10s"))
    row = await world.row(job_id)
    assert (row.state, row.attempt, row.error_code, row.retry_type) == (State.QUEUED, 1, None, "AUTOMATIC")
    assert row.last_failure is not None
    assert (row.last_failure["code"], row.last_failure["attempt"]) == ("BOOM", 1)
    assert await world.claim() == []
    await world.advance("11s")
    again = await world.claim_one()
    assert (again.attempt, again.lease.job_id) == (2, job_id)
    await world.settle(again, done())
    row = await world.row(job_id)
    assert row.last_failure is None
    assert await world.kinds(job_id) == ["queued", "processing", "retry", "processing", "complete"]
    first, second = await world.store.queries.attempts(job_id)
    assert (first.outcome, second.outcome) == ("retry", "complete")
    assert first.failure is not None
    assert (first.failure.code, first.failure.fingerprint) == ("BOOM", "cafe")


async def test_a_buried_job_is_failed_with_a_dead_letter(world: World) -> None:  # E2 E3 E32
    from holdfast.jobs.job import DeadLetterFilter

    job_id = await world.enqueue('{"n":1}', owner="ann")
    assert await world.settle(await world.claim_one(), bury("NOT_PDF")) is SettlementStatus.APPLIED
    row = await world.row(job_id)
    assert (row.state, row.error_code, row.error_message) == (State.FAILED, "NOT_PDF", "NOT_PDF happened")
    assert row.failed_at == row.finished_at
    [letter] = await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10)
    assert (letter.id, letter.code, letter.attempts, letter.owner, letter.payload) == (
        job_id,
        "NOT_PDF",
        1,
        "ann",
        {"n": 1},
    )
    assert await world.kinds(job_id) == ["queued", "processing", "failed"]


async def test_a_released_job_gives_its_attempt_back(world: World) -> None:  # E2a E9
    job_id = await world.enqueue()
    first = await world.claim_one()
    await world.settle(first, release())
    assert (await world.row(job_id)).attempt == 0
    second = await world.claim_one()
    assert second.attempt == 1
    assert second.lease.epoch > first.lease.epoch
    assert await world.kinds(job_id) == ["queued", "processing", "released", "processing"]


async def test_a_released_job_cannot_be_completed_by_its_old_holder(world: World) -> None:  # E4
    job_id = await world.enqueue()
    old = await world.claim_one()
    await world.settle(old, release())
    new = await world.claim_one()
    # The release was this epoch's own settlement: what comes after it under the same epoch changes nothing.
    assert await world.settle(old, done("1")) is SettlementStatus.REPEATED
    assert (await world.row(job_id)).state is State.PROCESSING
    assert await world.settle(new, done("2")) is SettlementStatus.APPLIED
    assert (await world.row(job_id)).result == 2


async def test_a_settlement_sent_twice_has_one_effect_and_one_event(world: World) -> None:  # E6
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await world.settle(claimed, done("1")) is SettlementStatus.APPLIED
    assert await world.settle(claimed, done("1")) is SettlementStatus.REPEATED
    assert await world.kinds(job_id) == ["queued", "processing", "complete"]
    other = await world.enqueue()
    claimed = await world.claim_one()
    assert await world.settle(claimed, retry("1m")) is SettlementStatus.APPLIED
    assert await world.settle(claimed, retry("1m")) is SettlementStatus.REPEATED
    assert await world.kinds(other) == ["queued", "processing", "retry"]
    third = await world.enqueue()
    claimed = await world.claim_one()
    assert await world.settle(claimed, bury()) is SettlementStatus.APPLIED
    assert await world.settle(claimed, bury()) is SettlementStatus.REPEATED
    assert await world.kinds(third) == ["queued", "processing", "failed"]


@pytest.mark.parametrize(
    "verdict", [done("1"), retry("1m"), release("1m"), bury()], ids=["complete", "retry", "release", "bury"]
)
async def test_a_settlement_sent_again_beside_a_new_one_has_one_event(
    world: World, verdict: Verdict
) -> None:  # E6
    """A lost answer is asked for again together with whatever else has ended since."""
    first, second = [await world.enqueue() for _ in range(2)]
    one, other = await world.claim(limit=2)
    assert await world.settle(one, verdict) is SettlementStatus.APPLIED
    both = [Settlement(claimed.lease, verdict, claimed.attempt) for claimed in (one, other)]
    assert await world.store.settle(both) == [SettlementStatus.REPEATED, SettlementStatus.APPLIED]
    assert await world.kinds(first) == await world.kinds(second)
    assert len(await world.kinds(first)) == 3


async def test_an_enqueue_sent_twice_stores_one_job_and_one_event(world: World) -> None:  # E6
    job_id = SystemIds().job_id()
    job = NewJob(job_id, "{}", JobSpec(lane=LANE))
    assert [a.id for a in await world.store.enqueue([job])] == [job_id]
    other = NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE))
    assert [a.id for a in await world.store.enqueue([job, other])] == [job_id, other.id]
    assert (await world.store.queries.counts())["queued"] == 2
    assert await world.kinds(job_id) == ["queued"]
    assert await world.kinds(other.id) == ["queued"]


async def test_a_lease_that_was_never_given_changes_nothing(world: World) -> None:  # E4
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    made_up = Lease(job_id, claimed.lease.epoch + 1000)
    assert await world.store.settle([Settlement(made_up, done())]) == [SettlementStatus.STALE]
    unknown = Lease(SystemIds().job_id(), claimed.lease.epoch)
    assert await world.store.settle([Settlement(unknown, done())]) == [SettlementStatus.STALE]
    assert (await world.row(job_id)).state is State.PROCESSING


async def test_many_are_settled_in_one_call_each_with_its_own_answer(world: World) -> None:  # E46
    ids = [await world.enqueue() for _ in range(6)]
    claimed = await world.claim(limit=6)
    assert [c.lease.job_id for c in claimed] == ids
    verdicts: list[Verdict] = [done("1"), retry("1h"), bury(), release("1h"), done("2"), done("3")]
    await world.settle(claimed[4], bury("FIRST"))
    answers = await world.store.settle(
        [Settlement(c.lease, verdict, c.attempt) for c, verdict in zip(claimed, verdicts, strict=True)]
    )
    assert answers == [SettlementStatus.APPLIED] * 4 + [SettlementStatus.REPEATED, SettlementStatus.APPLIED]
    states = [(await world.row(job_id)).state for job_id in ids]
    assert states == [State.COMPLETE, State.QUEUED, State.FAILED, State.QUEUED, State.FAILED, State.COMPLETE]
    assert (await world.row(ids[4])).error_code == "FIRST"


async def test_due_jobs_are_claimed_by_priority_then_in_order(world: World) -> None:  # E25
    low = [await world.enqueue(priority=-1) for _ in range(2)]
    normal = [await world.enqueue() for _ in range(2)]
    high = await world.enqueue(priority=5)
    claimed = await world.claim(limit=10)
    assert [c.lease.job_id for c in claimed] == [high, *normal, *low]


@pytest.mark.parametrize("lane", [LANE, LANE._replace(fair=True)])
async def test_a_job_that_is_given_back_stands_behind_the_others(world: World, lane: Lane) -> None:  # E22
    drafted, *others = [await world.enqueue(lane=lane, owner="ann") for _ in range(3)]
    [trial] = await world.claim(lane=lane)
    assert trial.lease.job_id == drafted
    await world.advance("1s")
    await world.settle(trial, release())
    assert [one.lease.job_id for one in await world.claim(limit=3, lane=lane)] == [*others, drafted]


async def test_a_future_job_waits_for_its_time(world: World) -> None:  # E1 E39
    job_id = await world.enqueue(delay=MINUTE)
    assert await world.claim() == []
    row = await world.row(job_id)
    assert row.state is State.QUEUED
    assert row.run_at - row.created_at == MINUTE
    ahead = await world.store.promote(100)
    assert ahead is not None
    assert timedelta(seconds=50) < ahead <= MINUTE
    await world.advance("61s")
    assert (await world.claim_one()).lease.job_id == job_id


async def test_only_the_lanes_asked_for_are_claimed(world: World) -> None:  # E47
    mine, other = Lane("default", "email"), Lane("default", "unknown")
    await world.enqueue(lane=other)
    job_id = await world.enqueue(lane=mine)
    session = await world.session()
    assert [c.lease.job_id for c in await world.store.claim(session, [mine], 10)] == [job_id]
    assert (await world.store.queries.counts())["queued"] == 1
    both = await world.store.claim(session, [mine, other], 10)
    assert [c.lane for c in both] == [other]


async def test_several_lanes_share_one_order(world: World) -> None:  # E25
    a, b = Lane("q", "a"), Lane("q", "b")
    ids = [await world.enqueue(lane=lane) for lane in (a, b, a, b)]
    claimed = await world.store.claim(await world.session(), [b, a], 3)
    assert {c.lease.job_id for c in claimed} == set(ids[:3])


async def test_a_claim_takes_no_more_than_its_limit_and_no_job_twice(world: World) -> None:
    ids = {await world.enqueue() for _ in range(25)}
    session = await world.session()
    seen = []
    for _ in range(4):
        seen += [c.lease.job_id for c in await world.claim(session, limit=10)]
    assert len(seen) == 25
    assert set(seen) == ids


async def test_jobs_of_one_key_run_one_at_a_time(world: World) -> None:  # E49
    first = await world.enqueue(key="k")
    second = await world.enqueue(key="k")
    other = await world.enqueue(key="x")
    free = await world.enqueue()
    claimed = await world.claim(limit=10)
    assert [c.lease.job_id for c in claimed] == [first, other, free]
    assert await world.claim(limit=10) == []
    await world.settle(claimed[0], done())
    assert [c.lease.job_id for c in await world.claim(limit=10)] == [second]


async def test_a_key_is_free_again_after_a_retry_a_release_and_a_cancel(world: World) -> None:  # E49
    first = await world.enqueue(key="k")
    second = await world.enqueue(key="k")
    await world.settle(await world.claim_one(), retry("1h"))
    claimed = await world.claim_one()
    assert claimed.lease.job_id == second
    await world.store.cancel(second, "ann", "")
    third = await world.enqueue(key="k")
    claimed = await world.claim_one()
    assert claimed.lease.job_id == third
    await world.settle(claimed, release())
    assert (await world.claim_one()).lease.job_id == third
    assert (await world.row(first)).state is State.QUEUED


async def test_a_rejected_input_is_on_record_without_a_dead_letter(world: World) -> None:  # E2
    from holdfast.jobs.job import DeadLetterFilter
    from holdfast.jobs.verdict import Failure

    job = NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE))
    for _ in range(2):  # the answer may be lost
        await world.store.reject(job, Failure("NOT_PDF", "This is not a PDF."))
    row = await world.row(job.id)
    assert (row.state, row.attempt, row.error_code) == (State.FAILED, 0, "NOT_PDF")
    assert await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10) == []
    assert (await world.kinds(job.id))[-1:] == ["rejected"]


async def test_a_step_is_kept_for_the_next_attempt(world: World) -> None:  # E40
    job_id = await world.enqueue()
    first = await world.claim_one()
    await world.store.record_step(first.lease, "llm", '{"a":1}')
    await world.store.record_step(first.lease, "upload", "2")
    await world.settle(first, retry())
    assert await world.store.queries.steps(job_id) == {"llm": '{"a":1}', "upload": "2"}
    with pytest.raises(LeaseLost):
        await world.store.record_step(first.lease, "late", "3")
    assert list(await world.store.queries.steps(job_id)) == ["llm", "upload"]


async def test_progress_is_shown_while_it_runs(world: World) -> None:  # E42
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.store.record_progress(claimed.lease, 40.0, "page 2")
    assert (await world.row(job_id)).progress == {"percent": 40.0, "message": "page 2"}
    await world.settle(claimed, done())
    assert (await world.row(job_id)).progress is None
    with pytest.raises(LeaseLost):
        await world.store.record_progress(claimed.lease, 50.0, "")
