"""People's moves on terms: only on a job that is as it was read, and once however often the call is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import pytest

from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.errors import Changed, Conflict, UnknownJob
from holdfast.jobs.job import DeadLetterFilter, JobId
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.precondition import Precondition, Version
from tests.contract.world import World, bury, done, release, retry

Step = Callable[[World, JobId], Awaitable[object]]
NOBODY = JobId("019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42")


async def as_read(world: World, job_id: JobId) -> Precondition:
    return Precondition(versions=frozenset({(await world.row(job_id)).version}))


async def manual(world: World, job_id: JobId, precondition: Precondition) -> int:
    return await world.store.retry(job_id, "ann", kind=Kind.manual_retry, precondition=precondition)


async def cancel(world: World, job_id: JobId, precondition: Precondition) -> None:
    await world.store.cancel(job_id, "ann", "", precondition=precondition)


async def discard(world: World, job_id: JobId, precondition: Precondition) -> None:
    await world.store.discard(job_id, "ann", "seen", precondition=precondition)


async def _nothing(world: World, job_id: JobId) -> None: ...


async def _claim(world: World, job_id: JobId) -> None:
    await world.claim_one()


async def _release(world: World, job_id: JobId) -> None:
    await world.settle(await world.claim_one(), release())


async def _retry_later(world: World, job_id: JobId) -> None:
    await world.settle(await world.claim_one(), retry("1h"))


async def _bury(world: World, job_id: JobId) -> None:
    await world.settle(await world.claim_one(), bury())


async def _complete(world: World, job_id: JobId) -> None:
    await world.settle(await world.claim_one(), done())


async def _cancel(world: World, job_id: JobId) -> None:
    await world.store.cancel(job_id, "bob", "")


async def _hasten(world: World, job_id: JobId) -> None:
    await world.store.retry(job_id, "bob", kind=Kind.manual_retry)


async def _bury_again(world: World, job_id: JobId) -> None:
    await _hasten(world, job_id)
    await _bury(world, job_id)


#: What leads there, what somebody else does between the reading and the move, and the moves that then must not be made.
BETWEEN: dict[str, tuple[Step, Step, tuple[Callable[..., Awaitable[object]], ...]]] = {
    "a queued job was claimed": (_nothing, _claim, (cancel,)),
    "a queued job was tried and released": (_nothing, _release, (cancel,)),
    "a queued job waits for its retry": (_nothing, _retry_later, (cancel, manual)),
    "a waiting job was hastened": (_retry_later, _hasten, (cancel,)),
    "a queued job has failed": (_nothing, _bury, (manual, discard)),
    "a queued job is complete": (_nothing, _complete, (cancel,)),
    "a failed job failed again": (_bury, _bury_again, (manual, discard)),
    "a failed job was retried": (_bury, _hasten, (manual, cancel, discard)),
    "a queued job was cancelled": (_nothing, _cancel, (manual, cancel)),
}


async def test_what_was_read_before_another_move_is_not_acted_on(world: World) -> None:  # E33 E66
    for story, (before, between, moves) in BETWEEN.items():
        job_id = await world.enqueue()
        await before(world, job_id)
        old = await as_read(world, job_id)
        await between(world, job_id)
        row, kinds = await world.row(job_id), await world.kinds(job_id)
        for move in moves:
            with pytest.raises(Changed):
                await move(world, job_id, old)
        assert await world.row(job_id) == row, story
        assert await world.kinds(job_id) == kinds, story
        with suppress(Conflict):  # out of the way of the next story
            await world.store.cancel(job_id, "ann", "")


async def test_what_is_as_it_was_read_is_moved(world: World) -> None:  # E33 E66
    job_id = await world.enqueue()
    await cancel(world, job_id, await as_read(world, job_id))
    assert (await world.row(job_id)).state is State.CANCELLED
    assert await manual(world, job_id, await as_read(world, job_id)) == 1
    await _retry_later(world, job_id)
    read = await as_read(world, job_id)
    others = frozenset({Version(State.QUEUED, 1, 2, 3, 4)})
    assert await manual(world, job_id, Precondition(versions=others | (read.versions or frozenset()))) == 1
    await _bury(world, job_id)
    await discard(world, job_id, await as_read(world, job_id))
    assert await world.store.queries.dead_letters(DeadLetterFilter(), after=None, limit=1) == []


async def test_a_job_that_became_due_is_as_it_was_read(world: World) -> None:  # E66
    job_id = await world.enqueue()
    await _retry_later(world, job_id)
    read = await as_read(world, job_id)
    await world.advance("2h")
    await world.store.promote(10)
    await cancel(world, job_id, read)
    assert (await world.row(job_id)).state is State.CANCELLED


async def test_there_is_no_version_of_a_job_that_is_not_there(world: World) -> None:  # E66
    for move in (manual, cancel, discard):
        with pytest.raises(UnknownJob):
            await move(world, NOBODY, Precondition(versions=frozenset()))


async def test_a_call_of_one_name_is_carried_out_once(world: World) -> None:  # E6 E37
    job_id = await world.enqueue()
    named = Precondition(token="call-1")
    await cancel(world, job_id, named)
    await manual(world, job_id, Precondition(token="call-2"))
    await cancel(world, job_id, named)  # sent again, because its answer was lost
    assert (await world.row(job_id)).state is State.QUEUED
    await _bury(world, job_id)
    assert await manual(world, job_id, Precondition(token="call-2")) == 1
    assert (await world.row(job_id)).state is State.FAILED
    for _ in range(2):
        await discard(world, job_id, Precondition(token="call-3"))
    assert await world.kinds(job_id) == [
        "queued", "cancelled", "manual_retry", "processing", "failed", "discarded"
    ]  # fmt: skip


async def test_the_name_of_a_call_is_for_our_own_eyes(world: World) -> None:  # E66
    told: list[Mapping[str, object]] = []

    async def hook(_transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moved.meta for moved in moves)

    world.store.hooks.append((frozenset({Kind.cancelled}), hook))
    job_id = await world.enqueue()
    await cancel(world, job_id, Precondition(token="call-1"))
    events = await world.store.queries.events(after=0, limit=10, job_id=job_id)
    assert [event.meta for event in events][-1] == {"by": "ann"}
    assert told == [{"by": "ann"}]
