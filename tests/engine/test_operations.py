"""Operations and their duty, in memory on a manual clock: rates, crashes, cancelling, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, UsageError
from holdfast.engine.batches import SPAN
from holdfast.engine.engine import Engine
from holdfast.engine.operation import BatchAction, Operation, Progress
from holdfast.engine.ports import MoveNotice, Transaction
from holdfast.engine.tables import operations
from holdfast.engine.tables.sql import fetch
from holdfast.errors import StoreUnavailable, UnknownOperation
from holdfast.jobs.job import JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Bury, Failure
from holdfast.maintenance.operations import OperationRunner, forget
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio
LANE = Lane("default", "email")


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.app = Holdfast("memory://", store=self.store, clock=self.clock)

    async def open(self) -> None:
        self.engine: Engine = await self.app.runtime.engine()
        self.duty = OperationRunner(self.engine)

    async def enqueue(self, count: int, **spec: Any) -> list[str]:
        jobs = [NewJob(self.engine.ids.job_id(), "{}", JobSpec(lane=LANE, **spec)) for _ in range(count)]
        return [answer.id for answer in await self.store.enqueue(jobs)]

    async def bury(self, count: int, **spec: Any) -> list[str]:
        ids = await self.enqueue(count, **spec)
        await self.fail_all()
        return ids

    async def fail_all(self) -> None:
        session = await self.store.open_session("w", SPAN)
        claimed = await self.store.claim(session, [LANE], 10_000)
        await self.store.settle([Settlement(one.lease, Bury(Failure.of("TIMEOUT"))) for one in claimed])

    async def redriven(self) -> int:
        return sum(
            event.kind == "redriven" for event in await self.store.queries.events(after=0, limit=10_000)
        )

    async def look(self, operation: Operation) -> Operation:
        return await self.app.operations.get(operation.id)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with made.app:
        await made.open()
        yield made


@pytest.mark.parametrize("count", [0, 1, 50, 51, 130])
async def test_an_operation_is_done_to_all_that_match_and_ends(world: World, count: int) -> None:  # E33 E66
    await world.bury(count, owner="ann")
    [other] = await world.bury(1, owner="bob")
    begun = await world.app.operations.begin("redrive", owner="ann", by="me")
    assert (begun.matched, begun.progress) == (count, Progress.RUNNING)
    await world.duty.run()
    ended = await world.look(begun)
    assert (ended.progress, ended.done, ended.refused, ended.by) == (Progress.DONE, count, 0, "me")
    assert [letter.id for letter in await world.app.dead_letters.list()] == [other]
    assert await world.app.operations.list() == [ended]


async def test_a_redrive_keeps_to_its_rate(world: World) -> None:  # E32
    await world.bury(3)
    redriving = asyncio.create_task(world.app.dead_letters.redrive(rate=2))
    for done in (1, 2, 3):
        for _ in range(50):
            await asyncio.sleep(0)
        assert await world.redriven() == done
        world.clock.advance(timedelta(seconds=0.5))
    assert await redriving == 3


@pytest.mark.parametrize(
    ("action", "options", "kind", "state"),
    [
        ("retry", {"state": "failed"}, "manual_retry", "queued"),
        ("retry", {}, "manual_retry", "queued"),
        ("discard", {"reason": "old"}, "discarded", "failed"),
        ("redrive", {"to_queue": "slow"}, "redriven", "queued"),
    ],
)
async def test_each_verb_does_what_it_does_to_one(
    world: World, action: str, options: dict[str, Any], kind: str, state: str
) -> None:  # E66
    ids = await world.bury(3)
    begun = await world.app.operations.begin(action, ids=ids[:2], by="me", **options)
    await world.duty.run()
    assert (await world.look(begun)).done == 2
    for job_id, moved in zip(ids, (True, True, False), strict=True):
        last = (await world.app.events.list(job_id=job_id))[-1]
        assert (last.kind == kind) is moved
        if moved:
            row = await world.app.jobs.get(job_id)
            assert (last.meta["by"], row.state) == ("me", state)
            assert row.queue == options.get("to_queue", "default")


async def test_cancelling_many_is_for_those_that_have_not_ended(world: World) -> None:  # E66
    [dead] = await world.bury(1)
    ids = await world.enqueue(2)
    begun = await world.app.operations.begin("cancel", reason="wrong")
    await world.duty.run()
    assert (await world.look(begun)).done == begun.matched == 2
    assert [(await world.app.jobs.get(job_id)).state for job_id in (dead, *ids)] == [
        "failed",
        "cancelled",
        "cancelled",
    ]
    assert (await world.app.events.list(job_id=ids[0]))[-1].meta["reason"] == "wrong"


async def test_a_preview_changes_nothing(world: World) -> None:  # E66
    await world.bury(3)
    assert (await world.app.operations.preview("redrive")).matched == 3
    assert await world.app.operations.list() == []
    await world.duty.run()
    assert await world.redriven() == 0


async def test_a_rate_is_kept_whoever_works_and_however_often_they_look(world: World) -> None:  # E33 E66
    await world.bury(10)
    begun = await world.app.operations.begin("redrive", rate=2)
    other = OperationRunner(world.engine)
    done = []
    for _ in range(8):
        for _ in range(3):
            await asyncio.gather(world.duty.run(), other.run())
        done.append((await world.look(begun)).done)
        world.clock.advance("250ms")
    assert done == [1, 1, 2, 2, 3, 3, 4, 4]


async def test_a_slow_operation_does_not_keep_others_waiting(world: World) -> None:  # E66
    await world.bury(3)
    slow = await world.app.operations.begin("redrive", rate=0.001)
    await world.enqueue(60)
    quick = await world.app.operations.begin("cancel")
    await world.duty.run()
    assert ((await world.look(slow)).done, (await world.look(quick)).progress) == (1, Progress.DONE)


async def test_what_a_dead_process_had_taken_is_done_by_another_after_its_span(world: World) -> None:  # E66
    await world.bury(5)
    begun = await world.app.operations.begin("redrive")
    assert await operations.take(world.store, SPAN) is not None  # and is killed
    await world.duty.run()
    assert (await world.look(begun)).done == 0
    world.clock.advance(SPAN)
    await world.duty.run()
    assert (await world.look(begun)).progress is Progress.DONE
    assert await world.redriven() == 5


@pytest.mark.parametrize("action", ["redrive", "retry"])
async def test_killed_before_a_batch_was_counted_nothing_is_done_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:  # E66
    await world.bury(5)
    begun = await world.app.operations.begin(action)
    world.clock.advance("1ms")

    async def killed(*_: Any, **__: Any) -> bool:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(operations, "advance", killed)
        with pytest.raises(StoreUnavailable):
            await world.duty.run()
    world.clock.advance(SPAN)
    await world.fail_all()  # meanwhile all of them have failed once more
    await world.duty.run()
    ended = await world.look(begun)
    assert (ended.progress, ended.done) == (Progress.DONE, 0)
    rows = (await world.app.jobs.list()).rows
    assert [row.generation for row in rows] == [2] * 5


async def test_what_fails_again_while_an_operation_runs_is_not_redriven_again(
    world: World,
) -> None:  # E33 E66
    await world.bury(3)
    begun = await world.app.operations.begin("redrive", rate=4)
    for _ in range(8):
        world.clock.advance("1s")
        await world.duty.run()
        await world.fail_all()
    assert (await world.look(begun)).done == await world.redriven() == 3
    assert (await world.look(begun)).progress is Progress.DONE


async def test_a_cancelled_operation_stops(world: World) -> None:  # E66
    await world.bury(10)
    begun = await world.app.operations.begin("redrive", rate=1)
    await world.duty.run()
    cancelled = await world.app.operations.cancel(begun.id)
    assert (cancelled.progress, cancelled.done) == (Progress.CANCELLED, 1)
    world.clock.advance("1h")
    await world.duty.run()
    assert await world.redriven() == 1
    assert await world.app.operations.cancel(begun.id) == cancelled


async def test_an_operation_that_is_cancelled_in_the_middle_of_a_batch_does_no_other(
    world: World,
) -> None:  # E66
    await world.bury(120)
    begun = await world.app.operations.begin("redrive")

    async def cancel(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        sql = "UPDATE holdfast.operation SET progress = 'cancelled' WHERE id = $1::text"
        await fetch(transaction, sql, begun.id)

    world.store.hooks.append((frozenset({Kind.redriven}), cancel))
    await world.duty.run()
    assert await world.redriven() == 50
    assert (await world.look(begun)).progress is Progress.CANCELLED


async def test_what_is_refused_is_counted_and_does_not_stop_the_others(world: World) -> None:  # E66
    ids = await world.bury(4)
    begun = await world.app.operations.begin("retry")

    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        if moves[0].job_id == ids[2]:
            raise ValueError("not this one")

    world.store.hooks.append((frozenset({Kind.manual_retry}), refuse))
    await world.duty.run()
    ended = await world.look(begun)
    assert (ended.progress, ended.done, ended.refused) == (Progress.DONE, 3, 1)


async def test_an_operation_that_cannot_be_read_fails_and_says_why(world: World) -> None:  # E66
    now = world.clock.now()
    strange = Operation(id="x", action=BatchAction.RETRY, filter={"colour": "red"}, by="", options={},
                        created_at=now, updated_at=now)  # fmt: skip
    await operations.add(world.store, strange)
    await world.duty.run()
    ended = await world.app.operations.get("x")
    assert ended.progress is Progress.FAILED
    assert "colour" in (ended.error or "")


@pytest.mark.parametrize(
    ("action", "options", "words"),
    [
        ("explode", {}, "one of redrive"),
        ("redrive", {"rate": 0}, "rate is 0"),
        ("redrive", {"rate": float("nan")}, "rate is nan"),
        ("redrive", {"state": "failed"}, "state"),
        ("retry", {"colour": "red"}, "colour"),
        ("retry", {"state": "complete"}, "not for complete"),
        ("retry", {"to_queue": "slow"}, "to_queue is for redrive"),
        ("discard", {}, "reason="),
        ("retry", {"created_after": "yesterday"}, "created_after is 'yesterday'"),
        ("retry", {"owner": "ann\x00"}, "not text"),
        ("retry", {"args": {"a": ["\ud800"]}}, "not text"),
        ("retry", {"owner": "bob", "for_owner": "ann"}, "another owner"),
    ],
)
async def test_what_cannot_be_done_is_refused_in_one_line(
    world: World, action: str, options: dict[str, Any], words: str
) -> None:  # E66
    with pytest.raises(UsageError, match=words) as refused:
        await world.app.operations.begin(action, **options)
    assert "\n" not in str(refused.value)
    assert await world.app.operations.list() == []


async def test_an_owners_operation_reaches_only_its_own_jobs(world: World) -> None:  # E66
    await world.bury(2, owner="ann")
    await world.bury(3, owner="bob")
    begun = await world.app.operations.begin("redrive", for_owner="ann")
    assert (begun.matched, begun.owner) == (2, "ann")
    await world.duty.run()
    assert {letter.owner for letter in await world.app.dead_letters.list()} == {"bob"}


async def test_an_operation_that_nobody_began_is_unknown(world: World) -> None:  # E66
    for verb in (world.app.operations.get, world.app.operations.cancel):
        with pytest.raises(UnknownOperation, match="no operation has the id nothing"):
            await verb("nothing")


async def test_jobs_and_dead_letters_are_counted_by_the_words_of_their_lists(world: World) -> None:  # E66
    await world.bury(2, owner="ann")
    await world.enqueue(3, owner="ann")
    assert await world.app.jobs.count(owner="ann", state=["failed", "queued"]) == 5
    assert await world.app.jobs.count(state="queued", created_after="2001-01-01") == 3
    assert await world.app.dead_letters.count(owner="ann", died_before=world.clock.now()) == 0
    assert await world.app.dead_letters.count(owner="ann") == 2


async def test_old_requests_and_operations_are_forgotten_by_a_duty(world: World) -> None:  # E37
    await world.app.operations.begin("redrive")
    await world.duty.run()
    world.clock.advance("31d")
    assert await forget(world.engine) == 1
    assert await world.app.operations.list() == []
