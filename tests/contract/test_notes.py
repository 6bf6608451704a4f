"""What is put on a job's record without moving it: once for its kind and name, whoever and however often."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.errors import UnknownJob
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.wiring import SystemIds
from tests.contract.world import World, done


async def note(world: World, job_id: JobId, kind: Kind, name: str, meta: Mapping[str, Any]) -> bool:
    return await world.store.transact(lambda transaction: transaction.note(job_id, kind, name, meta))


LATE = {"due": "2026-11-16T09:00:00Z", "credits": 5}


async def test_a_note_is_an_event_that_moves_nothing(world: World) -> None:  # E76 E60
    job_id = await world.enqueue()
    claimed = await world.claim_one()
    before = await world.row(job_id)
    assert await note(world, job_id, Kind.breached, "SUCCESS", LATE)
    assert await world.row(job_id) == before
    [*_, event] = await world.store.queries.events(after=0, limit=10, job_id=job_id)
    assert (event.kind, event.epoch, event.attempt) == ("breached", claimed.lease.epoch, 1)
    assert event.meta == {"name": "SUCCESS", **LATE}
    await world.settle(claimed, done())
    assert await note(world, job_id, Kind.compensated, "SUCCESS", {})
    assert await world.kinds(job_id) == ["queued", "processing", "breached", "complete", "compensated"]


async def test_a_note_is_made_once_for_its_kind_and_name_by_however_many(world: World) -> None:  # E76 E6
    job_id, other = await world.enqueue(), await world.enqueue()
    notes = [note(world, job_id, Kind.breached, "SUCCESS", {"who": n}) for n in range(5)]
    assert sorted(await asyncio.gather(*notes)) == [False] * 4 + [True]
    assert not await note(world, job_id, Kind.breached, "SUCCESS", LATE)
    assert await note(world, job_id, Kind.breached, "RETRY", LATE)
    assert await note(world, job_id, Kind.compensated, "SUCCESS", LATE)
    assert await note(world, other, Kind.breached, "SUCCESS", LATE)
    assert await world.kinds(job_id) == ["queued", "breached", "breached", "compensated"]


async def test_nothing_is_noted_of_a_job_that_is_not_there(world: World) -> None:  # E76
    for nobody in (JobId("nobody"), SystemIds().job_id()):
        with pytest.raises(UnknownJob):
            await note(world, nobody, Kind.breached, "SUCCESS", {})


async def test_a_hook_is_told_of_a_note_and_may_refuse_it(world: World) -> None:  # E76 E60
    told: list[MoveNotice] = []

    async def refuse(_transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moves)
        raise ValueError("not now")

    job_id = await world.enqueue()
    world.store.hooks = [(frozenset({Kind.breached}), refuse)]
    with pytest.raises(ValueError, match="not now"):
        await note(world, job_id, Kind.breached, "SUCCESS", LATE)
    world.store.hooks = []
    assert [(moved.job_id, moved.kind, moved.meta["name"]) for moved in told] == [
        (job_id, Kind.breached, "SUCCESS")
    ]
    assert await world.kinds(job_id) == ["queued"]


async def test_an_event_of_no_job_is_recorded_with_its_transaction_and_seen_by_hooks(
    world: World,
) -> None:  # E27 E60
    seen: list[MoveNotice] = []

    async def hook(transaction: Transaction, notices: Sequence[MoveNotice]) -> None:
        seen.extend(notices)

    world.store.hooks = [(frozenset({Kind.paused}), hook)]
    meta = {"scope": "queue:mail", "until": None}
    await world.store.transact(lambda transaction: transaction.record(Kind.paused, meta))
    [event] = await world.store.queries.events(after=0, limit=10)
    assert (event.kind, event.job_id, event.meta) == ("paused", "", {"scope": "queue:mail"})
    assert [(one.kind, one.job_id, one.meta) for one in seen] == [(Kind.paused, "", event.meta)]

    async def fail(transaction: Transaction) -> None:
        await transaction.record(Kind.paused, {})
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        await world.store.transact(fail)
    assert await world.store.queries.events(after=event.id, limit=10) == []
