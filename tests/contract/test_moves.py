"""Each move of a job starts from the states that `MOVES` allows for it, and from no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from holdfast.engine.ports import Reclaim, StuckAttempt
from holdfast.errors import Conflict
from holdfast.jobs.job import Claimed, JobSpec, Lane, NewJob, Session
from holdfast.jobs.moves import MOVES, Kind, State
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Verdict
from tests.contract.world import World, bury, done, failed, release, retry
from tests.heartbeats import extend

pytestmark = pytest.mark.anyio

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def job_in(world: World, state: State, session: Session | None = None) -> Claimed:
    """Return the claim of a job that is now in *state*. Its lease is the newest one in every state."""
    lane = Lane("default", state)
    await world.enqueue(lane=lane, max_attempts=5, deadline=HOUR)
    [claimed] = await world.claim(session or await world.session(ttl=DAY), lane=lane)
    match state:
        case State.QUEUED:
            await world.settle(claimed, release(HOUR))
        case State.COMPLETE:
            await world.settle(claimed, done('"x"'))
        case State.FAILED:
            await world.settle(claimed, bury())
        case State.CANCELLED:
            await world.store.cancel(claimed.lease.job_id, "ann", "")
        case State.PROCESSING:
            pass
    assert (await world.row(claimed.lease.job_id)).state is state
    return claimed


async def claim(world: World, job: Claimed) -> None:
    await world.store.claim_job(await world.session(), job.lease.job_id, job.generation)


def settle(verdict: Verdict) -> Callable[[World, Claimed], Awaitable[None]]:
    async def settle(world: World, job: Claimed) -> None:
        await world.settle(job, verdict)

    return settle


def reclaim(verdict: Verdict) -> Callable[[World, Claimed], Awaitable[None]]:
    async def reclaim(world: World, job: Claimed) -> None:
        # A stuck attempt need not have an expired lease: the statement alone decides.
        await world.store.reclaim([Reclaim(job.lease, verdict, False)], stuck=True)

    return reclaim


async def time_out(world: World, job: Claimed) -> None:
    await world.advance(2 * HOUR)
    await world.store.time_out(1000)


async def cancel(world: World, job: Claimed) -> None:
    with suppress(Conflict):
        await world.store.cancel(job.lease.job_id, "ann", "")


async def retry_by_a_person(world: World, job: Claimed) -> None:
    stuck = StuckAttempt(job.lease, failed())
    with suppress(Conflict):
        await world.store.retry(job.lease.job_id, "ann", kind=Kind.manual_retry, stuck=stuck)


async def purge(world: World, job: Claimed) -> None:
    await world.advance(2 * HOUR)
    await world.store.purge(None, Retention(results=HOUR, jobs=None, events=None), 1000)


async def enqueue(world: World, job: Claimed) -> None:
    await world.enqueue(job_id=job.lease.job_id)


async def reject(world: World, job: Claimed) -> None:
    new = NewJob(job.lease.job_id, "{}", JobSpec(lane=job.lane))
    await world.store.reject(new, failed())


#: Every way to make each move, and the event that records it.
WAYS: dict[str, list[tuple[str, Callable[[World, Claimed], Awaitable[None]]]]] = {
    "enqueue": [("queued", enqueue)],
    "claim": [("processing", claim)],
    "complete": [("complete", settle(done()))],
    "fail": [("retry", settle(retry())), ("failed", settle(bury()))],
    "release": [("released", settle(release()))],
    "reclaim": [("reclaimed", reclaim(retry())), ("failed", reclaim(bury()))],
    "time_out": [("timed_out", time_out)],
    "reject": [("rejected", reject)],
    "cancel": [("cancelled", cancel)],
    "retry": [("manual_retry", retry_by_a_person)],
    "purge": [("expired", purge)],
}


@pytest.mark.parametrize("verb", WAYS)
async def test_a_move_starts_only_from_its_states(world: World, verb: str) -> None:  # E2 E52
    for event, make in WAYS[verb]:
        moved = set()
        for state in State:
            job = await job_in(world, state)
            before = await world.kinds(job.lease.job_id)
            await make(world, job)
            after = await world.kinds(job.lease.job_id)
            if event in after[len(before) :]:
                moved.add(state)
            else:
                assert (await world.row(job.lease.job_id)).state is state
        assert moved == MOVES[verb][0]


async def test_a_session_extends_only_the_leases_of_processing_jobs(world: World) -> None:  # E2 E52
    session = await world.session()
    claims = {state: await job_in(world, state, session) for state in State}
    assert await extend(world.store, session)
    held = await world.store.held(session)
    assert {state for state in State if claims[state].lease in held} == MOVES["extend"][0]


def test_every_move_is_tried() -> None:
    assert WAYS.keys() | {"extend"} == MOVES.keys()
