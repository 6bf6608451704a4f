"""What is kept of attempts beside their results: what was said during them, and what they have put outside."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.engine.artifacts import MARK
from holdfast.engine.ports import Reclaim, SettlementStatus
from holdfast.errors import LeaseLost
from holdfast.jobs.job import Claimed, JobId, Lease, Settlement
from holdfast.jobs.moves import State
from holdfast.jobs.retention import Retention
from holdfast.jobs.tracebacks import Traceback
from holdfast.jobs.verdict import Bury, RetryAfter, Verdict
from tests.contract.world import MINUTE, World, bury, done, release, retry

SAID = ("12:00 INFO mail: connecting", 'it said "ü" \\ {"a": 1}')


async def settle_saying(world: World, claimed: Claimed, verdict: Verdict, *said: str) -> SettlementStatus:
    [answer] = await world.store.settle([Settlement(claimed.lease, verdict, claimed.attempt, logs=said)])
    return answer


async def put(world: World, lease: Lease, name: str | None = None) -> str:
    reference = f"{lease.job_id}/{lease.epoch}/{name}" if name else f"{lease.job_id}/{lease.epoch}.json"
    await world.store.record_artifact(lease, reference, name, 2_000_000)
    return reference


async def references(world: World, job_id: JobId) -> list[str]:
    return [artifact.reference for artifact in await world.store.queries.artifacts(job_id)]


# -- logs ---------------------------------------------------------------------------------------------------------------
async def test_what_was_said_is_kept_with_its_own_attempt(world: World) -> None:  # E42
    job_id = await world.enqueue()
    await settle_saying(world, await world.claim_one(), retry(), *SAID)
    await settle_saying(world, await world.claim_one(), retry())
    await settle_saying(world, await world.claim_one(), bury(), "at last")
    attempts = await world.store.queries.attempts(job_id)
    assert [attempt.logs for attempt in attempts] == [SAID, (), ("at last",)]
    assert [attempt.outcome for attempt in attempts] == ["retry", "retry", "failed"]


@pytest.mark.parametrize("verdict", [done(), release()], ids=["complete", "released"])
async def test_an_attempt_that_did_not_fail_may_keep_them_too(world: World, verdict: Verdict) -> None:  # E42
    job_id = await world.enqueue()
    assert await settle_saying(world, await world.claim_one(), verdict, *SAID) is SettlementStatus.APPLIED
    [attempt] = await world.store.queries.attempts(job_id)
    assert attempt.logs == SAID


async def test_logs_that_are_sent_again_are_kept_once(world: World) -> None:  # E6 E42
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await settle_saying(world, claimed, retry(), *SAID) is SettlementStatus.APPLIED
    assert await settle_saying(world, claimed, retry(), "something else") is SettlementStatus.REPEATED
    [attempt] = await world.store.queries.attempts(job_id)
    assert attempt.logs == SAID


async def test_a_group_keeps_the_logs_of_those_that_have_some(world: World) -> None:  # E42 E46
    ids = [await world.enqueue() for _ in range(4)]
    claimed = await world.claim(limit=4)
    said: dict[JobId, tuple[str, ...]] = {ids[0]: ("first",), ids[2]: ("third", "twice")}
    settlements = [Settlement(c.lease, retry(), 1, logs=said.get(c.lease.job_id, ())) for c in claimed]
    assert await world.store.settle(settlements) == [SettlementStatus.APPLIED] * 4
    for job_id in ids:
        [attempt] = await world.store.queries.attempts(job_id)
        assert attempt.logs == said.get(job_id, ())


async def test_logs_of_a_job_that_is_gone_are_dropped(world: World) -> None:  # E42
    await world.enqueue()
    claimed = await world.claim_one()
    await world.settle(claimed, done())
    await world.store.purge(None, Retention(jobs=timedelta()), 100)
    assert await settle_saying(world, claimed, done(), *SAID) is SettlementStatus.STALE
    assert await world.store.queries.attempts(claimed.lease.job_id) == []


# -- results outside ------------------------------------------------------------------------------------------------------
async def test_a_row_shows_where_its_result_is(world: World) -> None:  # E3a E42
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    reference = await put(world, claimed.lease)
    assert await world.settle(claimed, done(MARK + reference)) is SettlementStatus.APPLIED
    row = await world.row(job_id)
    assert (row.state, row.result, row.artifact) == (State.COMPLETE, None, reference)
    [artifact] = await world.store.queries.artifacts(job_id)
    assert (artifact.reference, artifact.name, artifact.bytes) == (reference, None, 2_000_000)
    assert (artifact.job_id, artifact.epoch) == claimed.lease


@pytest.mark.parametrize("result", ['"@nobody/1.json"', '{"artifact":"@x"}', '["@"]'])
async def test_no_result_can_be_taken_for_a_reference(world: World, result: str) -> None:  # E42
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), done(result))
    row = await world.row(job_id)
    assert row.artifact is None
    assert row.result is not None


async def test_a_late_result_shows_where_it_is(world: World) -> None:  # E35 E42
    job_id = await world.enqueue(deadline=MINUTE)
    claimed = await world.claim_one(await world.session(timedelta(hours=1)))
    await world.advance("2m")
    assert await world.store.time_out(10) == [job_id]
    reference = await put(world, claimed.lease)  # the deadline does not make it homeless
    assert await world.settle(claimed, done(MARK + reference)) is SettlementStatus.LATE
    [late] = await world.store.queries.late_results(job_id)
    assert (late.result, late.artifact) == (None, reference)
    assert (await world.row(job_id)).artifact is None


async def test_an_artifact_is_noted_once_however_often_it_is_sent(world: World) -> None:  # E6 E42
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    assert await put(world, claimed.lease) == await put(world, claimed.lease)
    files = [await put(world, claimed.lease, name) for name in ("b.xml", "a.xml")]
    assert set(await references(world, job_id)) == {f"{job_id}/{claimed.lease.epoch}.json", *files}
    assert [a.name for a in await world.store.queries.artifacts(job_id) if a.name] == ["a.xml", "b.xml"]


async def test_a_replaced_worker_can_note_no_artifact(world: World) -> None:  # E4 E42
    job_id = await world.enqueue()
    old = await world.claim_one(await world.session(timedelta(seconds=5)))
    await world.advance("10s")
    [lost] = await world.store.expired(10)
    assert await world.store.reclaim([Reclaim(lost.lease, retry(), crashed=True)]) == 1
    with pytest.raises(LeaseLost):
        await put(world, old.lease)
    new = await world.claim_one()
    reference = await put(world, new.lease)
    await world.settle(new, done(MARK + reference))
    assert await references(world, job_id) == [reference]
    assert "stale_write" in await world.kinds(job_id)


async def test_nobody_can_note_an_artifact_of_a_lease_that_was_never_given_out(
    world: World,
) -> None:  # E4 E42
    job_id = await world.enqueue()
    for lease in (Lease(job_id, 10**6), Lease(JobId("0190a0b0-1111-7abc-8def-0123456789ab"), 1)):
        with pytest.raises(LeaseLost):
            await put(world, lease)
    assert await references(world, job_id) == []


# -- retention ------------------------------------------------------------------------------------------------------------
async def test_a_result_expires_after_its_artifacts_are_gone(world: World) -> None:  # E38 E42
    job_id = await world.enqueue()
    first = await world.claim_one()
    orphan = await put(world, first.lease)  # this attempt had written its result, then failed to say so
    await world.settle(first, retry())
    second = await world.claim_one()
    result, file = await put(world, second.lease), await put(world, second.lease, "log.txt")
    await world.settle(second, done(MARK + result))
    keep = Retention(results=timedelta(hours=1))
    assert await world.store.artifacts_due(None, keep, 10) == []
    await world.advance("2h")
    assert await world.store.purge(None, keep, 10) == 0
    assert (await world.row(job_id)).artifact == result
    due = await world.store.artifacts_due(None, keep, 10)
    assert {artifact.reference for artifact in due} == {orphan, result, file}
    assert await world.store.artifacts_due("another task", keep, 10) == []
    assert await world.store.artifacts_due(None, keep, 10, ["email"]) == []
    assert len(await world.store.artifacts_due("email", keep, 2)) == 2
    await world.store.forget_artifacts(due)
    await world.store.forget_artifacts(due)
    assert await world.store.artifacts_due(None, keep, 10) == []
    assert await world.store.purge(None, keep, 10) == 1
    row = await world.row(job_id)
    assert (row.artifact, row.expired_at is not None) == (None, True)
    assert (await world.kinds(job_id))[-1] == "expired"


async def test_a_finished_job_is_purged_after_its_artifacts_with_its_logs(world: World) -> None:  # E38 E42
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await put(world, claimed.lease, "page.png")
    await settle_saying(world, claimed, bury(), *SAID)
    keep = Retention(results=timedelta(), jobs=timedelta(hours=1))
    await world.advance("2h")
    assert await world.store.artifacts_due(None, keep, 10) == []  # a dead letter is a person's to decide on
    await world.store.discard(job_id, "ann", "seen")
    assert await world.store.purge(None, keep, 10) == 0
    [due] = await world.store.artifacts_due(None, keep, 10)
    assert due.name == "page.png"
    await world.store.forget_artifacts([due])
    assert await world.store.purge(None, keep, 10) == 1
    assert await world.store.queries.job(job_id) is None
    assert await world.store.queries.attempts(job_id) == []
    assert await references(world, job_id) == []


async def test_an_artifact_of_a_job_that_is_not_finished_is_never_due(world: World) -> None:  # E38
    await world.enqueue()
    claimed = await world.claim_one()
    await put(world, claimed.lease)
    await world.advance("10s")
    keep = Retention(results=timedelta(), jobs=timedelta())
    assert await world.store.artifacts_due(None, keep, 10) == []
    await world.settle(claimed, retry())
    assert await world.store.artifacts_due(None, keep, 10) == []


# -- tracebacks -----------------------------------------------------------------------------------------------------------
WHERE = Traceback(
    "a" * 32, 'Traceback (most recent call last):\n  File "mail.py", line 7, in send \u00fc\nOSError'
)
ELSEWHERE = Traceback("b" * 32, "other")


def raised(verdict: RetryAfter | Bury, traceback: Traceback) -> Verdict:
    return replace(verdict, failure=replace(verdict.failure, traceback=traceback, detail="OSError: no van"))


async def test_an_attempt_says_where_it_failed(world: World) -> None:  # E42
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), raised(retry(), WHERE))
    await world.settle(await world.claim_one(), retry())
    await world.settle(await world.claim_one(), raised(bury(), ELSEWHERE))
    attempts = await world.store.queries.attempts(job_id)
    assert [a.failure.traceback if a.failure else None for a in attempts] == [WHERE, None, ELSEWHERE]
    assert [a.traceback for a in attempts] == [f"{WHERE.text}: no van", None, ELSEWHERE.text]


async def test_those_that_fail_in_a_group_share_their_traceback(world: World) -> None:  # E42 E46
    ids = [await world.enqueue() for _ in range(4)]
    claimed = await world.claim(limit=4)
    verdicts = (raised(retry(), ELSEWHERE), done(), raised(bury(), WHERE), raised(retry(), WHERE))
    settlements = [Settlement(c.lease, v, 1) for c, v in zip(claimed, verdicts, strict=True)]
    assert await world.store.settle(settlements) == [SettlementStatus.APPLIED] * 4
    found = [(await world.store.queries.attempts(job_id))[0].failure for job_id in ids]
    assert [f.traceback.text if f and f.traceback else None for f in found] == [
        ELSEWHERE.text,
        None,
        WHERE.text,
        WHERE.text,
    ]


async def test_a_traceback_is_kept_as_long_as_an_attempt_refers_to_it(world: World) -> None:  # E38 E42
    first, second = await world.enqueue(), await world.enqueue()
    for claimed in await world.claim(limit=2):
        await world.settle(claimed, raised(bury(), WHERE))
    await world.store.discard(first, "ann", "seen")
    await world.advance("50h")
    keep = Retention(jobs=timedelta(hours=1))
    while await world.store.purge(None, keep, 10):
        pass
    assert await world.store.queries.job(first) is None
    [attempt] = await world.store.queries.attempts(second)
    assert attempt.failure is not None
    assert attempt.failure.traceback == WHERE
    # One that went is written again by the next failure of its kind, though this process has written it before.
    await world.store.discard(second, "ann", "seen")
    while await world.store.purge(None, keep, 10):
        pass
    third = await world.enqueue()
    await world.settle(await world.claim_one(), raised(bury(), WHERE))
    [attempt] = await world.store.queries.attempts(third)
    assert attempt.traceback == f"{WHERE.text}: no van"
