"""Operations at rest: taken by one at a time, fenced by their epoch, continued by another after their span."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.domain.operation import Operation, OperationAction, Progress
from tests.contract.world import MINUTE, World

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def an_operation(operation_id: str = "one") -> Operation:
    return Operation(
        id=operation_id,
        action=OperationAction.REDRIVE,
        filter={"task": ["email"], "owner": "ann"},
        by="ann",
        options={"to_queue": "slow"},
        rate=2.5,
        owner="ann",
        matched=7,
        created_at=LONG_AGO,
        updated_at=LONG_AGO,
    )


async def test_an_operation_is_kept_as_it_was_begun_and_once(world: World) -> None:  # E66
    begun = await world.store.begin_operation(an_operation())
    assert begun.created_at == begun.updated_at > LONG_AGO
    assert replace(begun, created_at=LONG_AGO, updated_at=LONG_AGO) == an_operation()
    assert await world.store.operation("one") == begun
    await world.advance("1s")
    assert await world.store.begin_operation(replace(an_operation(), by="bob")) == begun
    assert await world.store.operation("two") is None


async def test_operations_are_listed_newest_first(world: World) -> None:  # E66
    for name in "cab":
        await world.store.begin_operation(an_operation(name))
    assert [operation.id for operation in await world.store.operations(2)] == ["b", "a"]


async def test_an_operation_is_taken_by_one_at_a_time(world: World) -> None:  # E66
    assert await world.store.take_operation(MINUTE) is None
    begun = await world.store.begin_operation(an_operation())
    taken = await world.store.take_operation(MINUTE)
    assert taken is not None
    assert (taken.id, taken.epoch) == (begun.id, begun.epoch + 1)
    assert await world.store.take_operation(MINUTE) is None


async def test_of_two_who_take_at_once_one_has_it(world: World) -> None:  # E66
    await world.store.begin_operation(an_operation())
    taken = await asyncio.gather(*(world.store.take_operation(MINUTE) for _ in range(5)))
    assert sorted(operation is None for operation in taken) == [False, True, True, True, True]


async def test_the_operation_that_has_waited_longest_is_taken_first(world: World) -> None:  # E66
    for name in ("a", "b"):
        await world.store.begin_operation(an_operation(name))
        await world.advance("1s")
    taken = []
    for _ in range(4):
        operation = await world.store.take_operation(MINUTE)
        assert operation is not None
        taken.append(operation.id)
        await world.advance("1s")
        await world.store.advance_operation(operation, cursor=None, done=0, refused=0, span=timedelta())
        await world.advance("1s")
    assert taken == ["a", "b", "a", "b"]


async def test_an_operation_advances_and_stays_taken(world: World) -> None:  # E66
    await world.store.begin_operation(an_operation())
    taken = await world.store.take_operation(MINUTE)
    assert taken is not None
    for number in (1, 2):
        await world.advance("50s")
        assert await world.store.take_operation(MINUTE) is None
        assert await world.store.advance_operation(
            taken, cursor=f"c{number}", done=10, refused=number, span=MINUTE
        )
    now = await world.store.operation("one")
    assert now is not None
    assert (now.cursor, now.done, now.refused) == ("c2", 20, 3)


async def test_whoever_lost_an_operation_to_another_cannot_advance_it(world: World) -> None:  # E66
    await world.store.begin_operation(an_operation())
    frozen = await world.store.take_operation(MINUTE)
    await world.advance("1m")
    other = await world.store.take_operation(MINUTE)
    assert frozen is not None
    assert other is not None
    assert other.epoch > frozen.epoch
    assert not await world.store.advance_operation(frozen, cursor="x", done=5, refused=0, span=MINUTE)
    assert await world.store.advance_operation(other, cursor="y", done=5, refused=0, span=MINUTE)
    now = await world.store.operation("one")
    assert now is not None
    assert (now.cursor, now.done) == ("y", 5)


async def test_an_operation_that_has_ended_runs_no_more(world: World) -> None:  # E66
    await world.store.begin_operation(an_operation())
    taken = await world.store.take_operation(MINUTE)
    assert taken is not None
    assert await world.store.end_operation("one", Progress.CANCELLED, error="enough")
    assert not await world.store.advance_operation(taken, cursor="x", done=1, refused=0, span=MINUTE)
    assert not await world.store.end_operation("one", Progress.DONE)
    await world.advance("1h")
    assert await world.store.take_operation(MINUTE) is None
    now = await world.store.operation("one")
    assert now is not None
    assert (now.progress, now.error, now.done) == (Progress.CANCELLED, "enough", 0)
    assert not await world.store.end_operation("nobody", Progress.DONE)


async def test_operations_that_ended_long_ago_are_forgotten(world: World) -> None:  # E66
    for name in ("ended", "running"):
        await world.store.begin_operation(an_operation(name))
    await world.store.end_operation("ended", Progress.DONE)
    await world.advance("29d")
    assert await world.store.forget_requests(10) == 0
    await world.advance("1d")
    assert await world.store.forget_requests(10) == 1
    assert [operation.id for operation in await world.store.operations(10)] == ["running"]
