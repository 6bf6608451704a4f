"""Operations at rest: taken by one at a time, fenced by their epoch, continued by another after their span."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.engine.operation import BatchAction, Operation, OperationState, Progress
from holdfast.engine.tables import operations
from holdfast.resilience.pacing import Course
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
        await operations.advance(world.store, operation, timedelta())
        await world.advance("1s")
    assert taken == ["a", "b", "a", "b"]


async def test_an_operation_advances_and_stays_taken(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    for number in (1, 2):
        await world.advance("50s")
        assert await operations.take(world.store, MINUTE) is None
        further = replace(taken, cursor=f"c{number}", done=taken.done + 10, refused=taken.refused + number)
        advanced = await operations.advance(world.store, further, MINUTE)
        assert advanced is not None
        taken = advanced
    assert (taken.cursor, taken.done, taken.refused) == ("c2", 20, 3)
    assert await operations.get(world.store, "one") == taken


async def test_what_an_operation_remembers_is_kept(world: World) -> None:  # E32 E66
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    course = Course(moved=3, ended=2, failed=1, recent="01", rate=0.5, grown_at=LONG_AGO, too_many="why")
    state = OperationState(
        skipped={"changed": 2}, due=LONG_AGO, is_last=True, course=course, chosen=("a",), watched=("b", "c")
    )
    advanced = await operations.advance(world.store, replace(taken, state=state), MINUTE)
    assert advanced is not None
    assert advanced.state == state
    assert await operations.get(world.store, "one") == advanced


async def test_its_begin_and_its_end_are_recorded_once(world: World) -> None:  # E60 E66
    for _ in range(2):
        await operations.add(world.store, an_operation())
        await operations.end(world.store, "one", Progress.STOPPED, error="too many")
    events = await world.store.queries.events(after=0, limit=10)
    assert [(event.kind, event.job_id, event.meta) for event in events] == [
        ("operation_began", "", {"operation": "one", "action": "redrive", "matched": 7, "by": "ann"}),
        (
            "operation_ended",
            "",
            {
                "operation": "one",
                "action": "redrive",
                "progress": "stopped",
                "done": 0,
                "refused": 0,
                "reason": "too many",
            },
        ),
    ]


async def test_a_batch_that_is_recorded_twice_is_counted_once(world: World) -> None:  # E66 E6
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    for _ in range(2):  # as if the first answer was lost
        further = replace(taken, cursor="c", done=10, refused=1)
        advanced = await operations.advance(world.store, further, MINUTE)
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
    assert not await operations.advance(world.store, replace(frozen, cursor="x", done=5), MINUTE)
    assert await operations.advance(world.store, replace(other, cursor="y", done=5), MINUTE)
    now = await operations.get(world.store, "one")
    assert now is not None
    assert (now.cursor, now.done) == ("y", 5)


async def test_an_operation_that_has_ended_runs_no_more(world: World) -> None:  # E66
    await operations.add(world.store, an_operation())
    taken = await operations.take(world.store, MINUTE)
    assert taken is not None
    assert await operations.end(world.store, "one", Progress.CANCELLED, error="enough")
    assert not await operations.advance(world.store, replace(taken, cursor="x", done=1), MINUTE)
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
