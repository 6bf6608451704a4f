"""What is put on a job's record without moving it: once for its kind and name, whoever and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.domain.job import JobId
from holdfast.domain.moves import Kind
from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.wiring import SystemIds
from tests.contract.world import World, done

LATE = {"due": "2026-11-16T09:00:00Z", "credits": 5}


async def test_a_note_is_an_event_that_moves_nothing(world: World) -> None:  # E76 E60
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    before = await world.row(job_id)
    assert await world.store.note(job_id, Kind.breached, "SUCCESS", LATE)
    assert await world.row(job_id) == before
    [*_, event] = await world.store.events(after=0, limit=10, job_id=job_id)
    assert (event.kind, event.epoch, event.attempt) == ("breached", claimed.lease.epoch, 1)
    assert event.meta == {"name": "SUCCESS", **LATE}
    await world.settle(claimed, done())
    assert await world.store.note(job_id, Kind.compensated, "SUCCESS", {})
    assert await world.kinds(job_id) == ["queued", "processing", "breached", "complete", "compensated"]


async def test_a_note_is_made_once_for_its_kind_and_name_by_however_many(world: World) -> None:  # E76 E6
    job_id, other = await world.enqueue(), await world.enqueue()
    notes = [world.store.note(job_id, Kind.breached, "SUCCESS", {"who": n}) for n in range(5)]
    assert sorted(await asyncio.gather(*notes)) == [False] * 4 + [True]
    assert not await world.store.note(job_id, Kind.breached, "SUCCESS", LATE)
    assert await world.store.note(job_id, Kind.breached, "RETRY", LATE)
    assert await world.store.note(job_id, Kind.compensated, "SUCCESS", LATE)
    assert await world.store.note(other, Kind.breached, "SUCCESS", LATE)
    assert await world.kinds(job_id) == ["queued", "breached", "breached", "compensated"]


async def test_nothing_is_noted_of_a_job_that_is_not_there(world: World) -> None:  # E76
    for nobody in (JobId("nobody"), SystemIds().job_id()):
        with pytest.raises(UnknownJob):
            await world.store.note(nobody, Kind.breached, "SUCCESS", {})


async def test_a_hook_is_told_of_a_note_and_may_refuse_it(world: World) -> None:  # E76 E60
    told: list[MoveNotice] = []

    async def refuse(_transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moves)
        raise ValueError("not now")

    job_id = await world.enqueue()
    world.store.hooks = [(frozenset({Kind.breached}), refuse)]
    with pytest.raises(ValueError, match="not now"):
        await world.store.note(job_id, Kind.breached, "SUCCESS", LATE)
    world.store.hooks = []
    assert [(moved.job_id, moved.kind, moved.meta["name"]) for moved in told] == [
        (job_id, Kind.breached, "SUCCESS")
    ]
    assert await world.kinds(job_id) == ["queued"]
