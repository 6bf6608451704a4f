"""Operations at rest: taken by one at a time, fenced by their epoch, continued by another after their span."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.engine.operation import BatchAction, Operation, Progress
from holdfast.engine.tables import operations
from tests.contract.world import MINUTE, World

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


def an_operation(operation_id: str = "one") -> Operation:
    return Operation(
        id=operation_id,
        action=BatchAction.REDRIVE,
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
    begun = await operations.add(world.store, an_operation())
    assert begun.created_at == begun.updated_at > LONG_AGO
    assert replace(begun, created_at=LONG_AGO, updated_at=LONG_AGO) == an_operation()
    assert await operations.get(world.store, "one") == begun
    await world.advance("1s")
    assert await operations.add(world.store, replace(an_operation(), by="bob")) == begun
    assert await operations.get(world.store, "two") is None


async def test_operations_are_listed_newest_first(world: World) -> None:  # E66
    for name in "cab":
        await operations.add(world.store, an_operation(name))
    assert [operation.id for operation in await operations.newest(world.store, 2)] == ["b", "a"]


async def test_an_operation_is_taken_by_one_at_a_time(world: World) -> None:  # E66
    assert await operations.take(world.store, MINUTE) is None
    begun = await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    assert (taken.id, taken.epoch) == (begun.id, begun.epoch + 1)
    assert await operations.take(world.store, MINUTE) is None


async def test_of_two_who_take_at_once_one_has_it(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    taken = await asyncio.gather(*(operations.take(world.store, MINUTE) for _ in range(5)))
    assert sorted(operation is None for operation in taken) == [False, True, True, True, True]


async def test_the_operation_that_has_waited_longest_is_taken_first(world: World) -> None:  # E66
    for name in ("a", "b"):
        await operations.add(world.store, an_operation(name))
        await world.advance("1s")
    taken = []
    for _ in range(4):
        operation = await operations.take(world.store, MINUTE)
        assert operation is not None
        taken.append(operation.id)
        await world.advance("1s")
        await operations.advance(world.store, operation, cursor=None, done=0, refused=0, span=timedelta())
        await world.advance("1s")
    assert taken == ["a", "b", "a", "b"]


async def test_an_operation_advances_and_stays_taken(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    for number in (1, 2):
        await world.advance("50s")
        assert await operations.take(world.store, MINUTE) is None
        advanced = await operations.advance(
            world.store, taken, cursor=f"c{number}", done=10, refused=number, span=MINUTE
        )
        assert advanced is not None
        taken = advanced
    assert (taken.cursor, taken.done, taken.refused) == ("c2", 20, 3)
    assert await operations.get(world.store, "one") == taken


async def test_a_batch_that_is_recorded_twice_is_counted_once(world: World) -> None:  # E66 E6
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    for _ in range(2):  # as if the first answer was lost
        advanced = await operations.advance(world.store, taken, cursor="c", done=10, refused=1, span=MINUTE)
        assert advanced is not None
        assert (advanced.done, advanced.refused) == (10, 1)


async def test_whoever_lost_an_operation_to_another_cannot_advance_it(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    frozen = await operations.take(world.store, MINUTE)
    await world.advance("1m")
    other = await operations.take(world.store, MINUTE)
    assert frozen is not None
    assert other is not None
    assert other.epoch > frozen.epoch
    assert not await operations.advance(world.store, frozen, cursor="x", done=5, refused=0, span=MINUTE)
    assert await operations.advance(world.store, other, cursor="y", done=5, refused=0, span=MINUTE)
    now = await operations.get(world.store, "one")
    assert now is not None
    assert (now.cursor, now.done) == ("y", 5)


async def test_an_operation_that_has_ended_runs_no_more(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    assert await operations.end(world.store, "one", Progress.CANCELLED, error="enough")
    assert not await operations.advance(world.store, taken, cursor="x", done=1, refused=0, span=MINUTE)
    assert not await operations.end(world.store, "one", Progress.DONE)
    await world.advance("1h")
    assert await operations.take(world.store, MINUTE) is None
    now = await operations.get(world.store, "one")
    assert now is not None
    assert (now.progress, now.error, now.done) == (Progress.CANCELLED, "enough", 0)
    assert not await operations.end(world.store, "nobody", Progress.DONE)


async def test_operations_that_ended_long_ago_are_forgotten(world: World) -> None:  # E66
    for name in ("ended", "running"):
        await operations.add(world.store, an_operation(name))
    await operations.end(world.store, "ended", Progress.DONE)
    await world.advance("29d")
    assert await operations.forget(world.store, 10) == 0
    await world.advance("1d")
    assert await operations.forget(world.store, 10) == 1
    assert [operation.id for operation in await operations.newest(world.store, 10)] == ["running"]
