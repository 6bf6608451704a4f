"""People's moves: retry, cancel, redrive, discard, dedupe, retention, and looking."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.engine.ports import MoveNotice, StuckAttempt, Transaction
from holdfast.errors import Conflict, UnknownJob, UsageError
from holdfast.jobs.job import DeadLetterFilter, Edit, Event, JobFilter, JobId, JobSpec, NewJob
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Failure
from holdfast.wiring import SystemIds
from tests.contract.world import LANE, MINUTE, World, bury, done, failed, retry

KEY = b"0123456789abcdef"


async def manual(world: World, job_id: JobId, **more: object) -> int:
    return await world.store.retry(job_id, "ann", kind=Kind.manual_retry, **more)  # type: ignore[arg-type]


async def test_a_failed_job_is_retried_as_a_new_generation(world: World) -> None:  # E2a E33
    job_id = await world.enqueue(deadline=MINUTE)
    old = await world.claim_one()
    await world.settle(old, bury())
    await world.advance("90s")
    assert await manual(world, job_id) == 1
    row = await world.row(job_id)
    assert (row.state, row.generation, row.attempt, row.crashes) == (State.QUEUED, 2, 0, 0)
    assert (row.error_code, row.started_at, row.finished_at) == (None, None, None)
    assert (row.manual_retry_count, row.retry_type) == (1, "MANUAL")
    assert row.deadline_at is not None
    assert row.deadline_at - row.queued_at == MINUTE
    assert await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10) == []
    new = await world.claim_one()
    assert new.attempt == 1
    assert new.lease.epoch > old.lease.epoch
    await world.settle(new, done("1"))
    assert (await world.row(job_id)).state is State.COMPLETE
    assert await world.kinds(job_id) == [
        "queued",
        "processing",
        "failed",
        "manual_retry",
        "processing",
        "complete",
    ]
    assert [a.generation for a in await world.store.queries.attempts(job_id)] == [1, 2]


async def test_a_job_that_waits_for_its_retry_is_hastened_in_its_generation(world: World) -> None:  # E33 E3a
    job_id = await world.enqueue()
    assert not (await world.row(job_id)).is_retryable  # it is in line
    await world.settle(await world.claim_one(), retry("1h"))
    assert (await world.row(job_id)).is_retryable
    await manual(world, job_id)
    row = await world.row(job_id)
    assert (row.generation, row.attempt, row.manual_retry_count, row.is_retryable) == (1, 1, 1, False)
    assert (await world.claim_one()).attempt == 2


async def test_two_clicks_give_one_run(world: World) -> None:  # E33
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    await manual(world, job_id)
    with pytest.raises(Conflict, match="already queued"):
        await manual(world, job_id)
    assert (await world.row(job_id)).generation == 2
    assert len(await world.claim(limit=10)) == 1


async def test_a_stuck_job_is_reclaimed_and_run_now(world: World) -> None:  # E33
    job_id = await world.enqueue()
    old = await world.claim_one()
    await world.advance("61s")
    await manual(world, job_id)
    row = await world.row(job_id)
    assert (row.state, row.generation, row.attempt) == (State.QUEUED, 1, 1)
    assert (await world.claim_one()).lease.epoch > old.lease.epoch


async def test_of_two_who_see_an_attempt_stuck_one_takes_it_and_it_runs_once(
    world: World,
) -> None:  # E2a E30 E33 S2
    job_id = await world.enqueue(max_attempts=2)
    session = await world.session(ttl=timedelta(hours=2))
    seen = StuckAttempt((await world.claim_one(session)).lease, Failure.of("STUCK"))
    with pytest.raises(Conflict, match="is being processed"):
        await manual(world, job_id)  # nobody says that it is stuck
    await manual(world, job_id, stuck=seen)
    with pytest.raises(Conflict, match="already queued"):
        await manual(world, job_id, stuck=seen)
    row = await world.row(job_id)
    assert (row.state, row.generation, row.attempt, row.crashes, row.manual_retry_count) == (
        State.QUEUED,
        1,
        1,
        0,
        1,
    )
    assert await world.kinds(job_id) == ["queued", "processing", "reclaimed", "manual_retry"]
    [taken] = [
        e
        for e in await world.store.queries.events(after=0, limit=100, job_id=job_id)
        if e.kind == "reclaimed"
    ]
    assert taken.meta == {"error_code": "STUCK", "by": "ann"}
    last = await world.claim_one(session)
    with pytest.raises(Conflict, match="is being processed"):
        await manual(world, job_id, stuck=seen)  # that attempt is over
    await manual(world, job_id, stuck=StuckAttempt(last.lease, Failure.of("STUCK")))
    row = await world.row(job_id)
    assert (row.state, row.generation, row.attempt) == (State.QUEUED, 2, 0)
    assert [a.outcome for a in await world.store.queries.attempts(job_id)] == ["reclaimed", "reclaimed"]


@pytest.mark.parametrize("state", ["complete", "processing", "queued"])
async def test_what_needs_no_retry_is_a_conflict(world: World, state: str) -> None:  # E33
    job_id = await world.enqueue()
    if state != "queued":
        claimed = await world.claim_one()
        if state == "complete":
            await world.settle(claimed, done())
    with pytest.raises(Conflict, match=job_id):
        await manual(world, job_id)
    assert (await world.row(job_id)).manual_retry_count == 0


async def test_an_unknown_job_is_named(world: World) -> None:
    unknown = SystemIds().job_id()
    for move in (
        manual(world, unknown),
        world.store.cancel(unknown, "ann", ""),
        world.store.discard(unknown, "ann", "x"),
    ):
        with pytest.raises(UnknownJob, match=unknown):
            await move
    assert await world.store.queries.job(unknown) is None


async def test_a_retry_tells_the_place_in_line(world: World) -> None:  # E33
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    for _ in range(3):
        await world.enqueue()
    await world.advance("1s")
    assert await manual(world, job_id) == 4


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_retry_can_change_what_a_job_is_called_with(world: World, waiting: bool) -> None:  # E33 E49
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), retry("1h") if waiting else bury())
    edit = Edit('{"to":"bob"}', 2, ("to",))
    await world.store.retry(job_id, "ann", kind=Kind.manual_retry, edit=edit)
    told = (await world.store.queries.events(after=0, limit=100, job_id=job_id))[-1]
    assert (told.kind, told.meta["by"], told.meta["edited"]) == ("manual_retry", "ann", ["to"])
    with pytest.raises(Conflict):
        await world.store.retry(job_id, "ann", kind=Kind.manual_retry, edit=Edit("{}", 3, ("to",)))
    claimed = await world.claim_one()
    assert (claimed.payload, claimed.version) == (edit.payload, 2)
    assert (await world.row(job_id)).payload == {"to": "bob"}


async def test_a_retry_can_forget_steps(world: World) -> None:  # E2a E40
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.store.record_step(claimed.lease, "llm", "1")
    await world.store.record_step(claimed.lease, "upload", "2")
    await world.settle(claimed, bury())
    await manual(world, job_id, forget=["upload"])
    assert await world.store.queries.steps(job_id) == {"llm": "1"}


async def test_a_retry_with_another_call_forgets_all_steps_but_those_it_is_told_to_keep(
    world: World,
) -> None:  # E33
    for forget, kept in ((None, {}), (["upload"], {"llm": "1"})):
        job_id = await world.enqueue()
        claimed = await world.claim_one()
        await world.store.record_step(claimed.lease, "llm", "1")
        await world.store.record_step(claimed.lease, "upload", "2")
        await world.settle(claimed, bury())
        await manual(world, job_id, forget=forget, edit=Edit("{}", 1, ("to",)))
        assert await world.store.queries.steps(job_id) == kept
        await world.settle(await world.claim_one(), bury())


async def test_fatal_can_forget_steps(world: World) -> None:  # E2a
    from dataclasses import replace

    from holdfast.jobs.verdict import Bury

    job_id = await world.enqueue()
    claimed = await world.claim_one()
    await world.store.record_step(claimed.lease, "llm", "1")
    await world.settle(claimed, Bury(replace(failed(), forget=("llm",))))
    assert await world.store.queries.steps(job_id) == {}


async def test_cancel_ends_what_is_not_finished(world: World) -> None:  # E29
    waiting = await world.enqueue(delay=MINUTE)
    ready = await world.enqueue()
    running = await world.enqueue()
    [first, second] = await world.claim(limit=2)
    await world.store.cancel(first.lease.job_id, "ann", "wrong file")
    await world.store.cancel(waiting, "ann", "")
    for job_id in (waiting, first.lease.job_id):
        assert (await world.row(job_id)).state is State.CANCELLED
    with pytest.raises(Conflict):
        await world.store.cancel(waiting, "ann", "")
    await world.settle(second, done())
    with pytest.raises(Conflict, match="complete"):
        await world.store.cancel(second.lease.job_id, "ann", "")
    assert {ready, running} == {first.lease.job_id, second.lease.job_id}
    event = (await world.store.queries.events(after=0, limit=100, job_id=first.lease.job_id))[-1]
    assert (event.kind, event.meta["by"], event.meta["reason"]) == ("cancelled", "ann", "wrong file")


async def test_a_cancelled_job_can_be_retried(world: World) -> None:  # E2
    job_id = await world.enqueue()
    await world.store.cancel(job_id, "ann", "")
    await manual(world, job_id)
    assert (await world.claim_one()).lease.job_id == job_id
    assert (await world.row(job_id)).generation == 2


async def test_dead_letters_are_listed_filtered_and_grouped(world: World) -> None:  # E32
    ids = []
    for code in ("A", "A", "B"):
        ids.append(await world.enqueue(owner=code.lower()))
        await world.settle(await world.claim_one(), bury(code))
    everything = await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10)
    assert [letter.id for letter in everything] == sorted(ids)
    page = await world.store.queries.dead_letters(DeadLetterFilter(), after=everything[0].id, limit=1)
    assert [letter.id for letter in page] == [everything[1].id]
    for where in (
        DeadLetterFilter(codes=("A",)),
        DeadLetterFilter(owner="a"),
        DeadLetterFilter(ids=tuple(ids[:2])),
    ):
        assert {
            letter.id for letter in await world.store.queries.dead_letters(where, after=None, limit=10)
        } == set(ids[:2])
    assert (
        await world.store.queries.dead_letters(DeadLetterFilter(tasks=("other",)), after=None, limit=10) == []
    )
    assert (
        len(
            await world.store.queries.dead_letters(DeadLetterFilter(fingerprint="cafe"), after=None, limit=10)
        )
        == 3
    )
    groups = await world.store.queries.dead_letter_groups(DeadLetterFilter(), 10)
    assert [(group.code, group.count) for group in groups] == [("A", 2), ("B", 1)]
    assert groups[0].sample in ids[:2]


async def test_a_discarded_dead_letter_leaves_the_job_failed(world: World) -> None:  # E32
    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    await world.store.discard(job_id, "ann", "known and harmless")
    assert await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10) == []
    assert (await world.row(job_id)).state is State.FAILED
    with pytest.raises(Conflict):
        await world.store.discard(job_id, "ann", "again")


async def test_a_redrive_can_go_to_another_queue(world: World) -> None:  # E32
    from holdfast.jobs.job import Lane

    job_id = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    await world.store.retry(job_id, "ann", kind=Kind.redriven, queue="slow")
    assert await world.claim() == []
    [claimed] = await world.claim(lane=Lane("slow", "email"))
    assert claimed.lease.job_id == job_id
    assert (await world.row(job_id)).queue == "slow"
    assert "redriven" in await world.kinds(job_id)


async def test_a_twin_stands_in_while_it_is_unfinished_or_complete(world: World) -> None:  # E36
    first = await world.enqueue(dedupe=KEY)
    assert await world.enqueue(dedupe=KEY) == first
    claimed = await world.claim_one()
    assert await world.enqueue(dedupe=KEY) == first
    await world.settle(claimed, done())
    assert await world.enqueue(dedupe=KEY) == first
    [answer] = await world.store.enqueue([NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, dedupe=KEY))])
    assert (answer.id, answer.duplicate) == (first, True)
    assert sum((await world.store.queries.counts()).values()) == 1


@pytest.mark.parametrize("end", ["failed", "cancelled", "expired", "old"])
async def test_a_failed_cancelled_or_expired_twin_does_not_stand_in(
    world: World, end: str
) -> None:  # E2a E36
    first = await world.enqueue(dedupe=KEY, dedupe_for=MINUTE)
    if end == "cancelled":
        await world.store.cancel(first, "ann", "")
    else:
        await world.settle(await world.claim_one(), bury() if end == "failed" else done())
    if end == "expired":
        await world.store.purge(None, Retention(results=timedelta()), 10)
    if end == "old":
        await world.advance("61s")
    second = await world.enqueue(dedupe=KEY)
    assert second != first
    assert await world.enqueue(dedupe=KEY) == second


async def test_a_retry_whose_key_is_held_by_a_live_twin_is_a_conflict(world: World) -> None:  # E2a E36
    first = await world.enqueue(dedupe=KEY)
    await world.settle(await world.claim_one(), bury())
    second = await world.enqueue(dedupe=KEY)
    with pytest.raises(Conflict) as refused:
        await manual(world, first)
    assert refused.value.twin == second
    row = await world.row(first)
    assert (row.state, row.generation) == (State.FAILED, 1)
    assert len(await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10)) == 1
    await world.store.cancel(second, "ann", "")
    await manual(world, first)
    assert await world.enqueue(dedupe=KEY) == first


async def test_an_enqueue_with_a_key_sent_twice_is_its_own_twin(world: World) -> None:  # E6 E36
    job = NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, dedupe=KEY))
    [first] = await world.store.enqueue([job])
    [second] = await world.store.enqueue([job])
    assert (first.id, first.duplicate) == (second.id, second.duplicate) == (job.id, False)
    assert await world.kinds(job.id) == ["queued"]


async def test_retention_expires_results_and_removes_finished_jobs(world: World) -> None:  # E38
    complete = await world.enqueue()
    await world.settle(await world.claim_one(), done("1"))
    dead = await world.enqueue()
    await world.settle(await world.claim_one(), bury())
    waiting = await world.enqueue(delay=timedelta(days=9))
    keep = Retention(results=MINUTE, jobs=timedelta(hours=1))
    assert await world.store.purge(None, keep, 100) == 0
    await world.advance("2m")
    assert await world.store.purge(None, keep, 100, ["email"]) == 0
    assert await world.store.purge(None, keep, 100, ["other"]) == 1
    row = await world.row(complete)
    assert (row.state, row.result) == (State.COMPLETE, None)
    assert row.expired_at is not None
    assert (await world.kinds(complete))[-1] == "expired"
    await world.advance("2h")
    assert await world.store.purge("other", keep, 100) == 0
    assert await world.store.purge(None, keep, 100, ["email", "other"]) == 0
    assert await world.store.purge("email", keep, 100) == 1
    assert await world.store.queries.job(complete) is None
    assert (await world.row(dead)).state is State.FAILED  # a dead letter waits for a person
    assert (await world.row(waiting)).state is State.QUEUED
    assert await world.store.purge(None, keep, 100) == 0


async def test_events_are_kept_as_long_as_asked(world: World) -> None:  # E38 E60
    await world.enqueue()
    await world.advance("1h")
    fresh = await world.enqueue()
    await world.store.purge(None, Retention(events=MINUTE), 100)
    assert [event.job_id for event in await world.store.queries.events(after=0, limit=100)] == [fresh]


async def test_events_are_read_in_order_and_in_pages(world: World) -> None:  # E60
    for _ in range(4):
        await world.enqueue()
    for claimed in await world.claim(limit=4):
        await world.settle(claimed, done())
    everything = await world.store.queries.events(after=0, limit=100)
    assert len(everything) == 12
    assert [event.id for event in everything] == sorted({event.id for event in everything})
    paged: list[Event] = []
    while page := await world.store.queries.events(after=paged[-1].id if paged else 0, limit=5):
        paged += page
    assert paged == everything


async def test_jobs_are_listed_newest_first_by_filter_and_page(world: World) -> None:  # E3a E49
    ids = [
        await world.enqueue(
            f'{{"n":{n},"who":"ann"}}', owner="ann" if n % 2 else "bob", tags=("t",) if n else ()
        )
        for n in range(5)
    ]
    await world.settle(await world.claim_one(), done())
    page = await world.store.queries.jobs(JobFilter(), after=None, limit=2)
    assert [row.id for row in page.rows] == ids[:2:-1]
    rest = await world.store.queries.jobs(JobFilter(), after=page.next, limit=10)
    assert [row.id for row in rest.rows] == ids[2::-1]
    assert rest.next is None

    async def found(**where: object) -> list[str]:
        chosen = JobFilter(**where)  # type: ignore[arg-type]
        return [row.id for row in (await world.store.queries.jobs(chosen, after=None, limit=10)).rows]

    assert await found(states=(State.COMPLETE,)) == ids[:1]
    assert await found(owner="ann") == [ids[3], ids[1]]
    assert await found(tag="t") == ids[:0:-1]
    assert await found(args={"n": 2, "who": "ann"}) == [ids[2]]
    assert await found(tasks=("email",), queues=("default",)) == ids[::-1]
    assert await found(tasks=("other",)) == []
    for made_up in ("'; DROP TABLE job", "-1", "9" * 30):
        with pytest.raises(UsageError, match="cursor"):
            await world.store.queries.jobs(JobFilter(), after=made_up, limit=10)


async def test_counts_and_lanes(world: World) -> None:
    for _ in range(5):
        await world.enqueue()
    await world.enqueue(delay=MINUTE)
    first, second, third, _ = await world.claim(limit=4)
    await world.settle(first, done())
    await world.settle(second, bury())
    await world.store.cancel(third.lease.job_id, "ann", "")
    assert await world.store.queries.counts() == {
        "queued": 2,
        "processing": 1,
        "complete": 1,
        "failed": 1,
        "cancelled": 1,
    }
    assert await world.store.lanes.all() == {LANE}
    assert await world.store.lanes.depths() == {LANE: 2}
    assert await world.store.lanes.depths([LANE]) == {LANE: 2}
    assert (
        await world.store.lanes.depths([LANE._replace(queue="other")])
        == await world.store.lanes.depths([])
        == {}
    )


async def test_a_hook_is_told_of_the_moves_it_asked_for(world: World) -> None:
    told: list[tuple[str, str]] = []

    async def hook(_: Transaction, moves: object) -> None:
        told.extend((moved.kind.name, moved.job_id) for moved in moves)  # type: ignore[attr-defined]

    world.store.hooks.append((frozenset({Kind.queued, Kind.complete, Kind.failed}), hook))
    first = await world.enqueue()
    second = await world.enqueue()
    await world.settle(await world.claim_one(), done())
    await world.settle(await world.claim_one(), bury())
    assert told == [("queued", first), ("queued", second), ("complete", first), ("failed", second)]
    assert MoveNotice._fields[0] == "kind"
