"""Hooks: told the same on every store, and what they refuse has not happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.ports import MoveNotice, Reclaim, Transaction
from holdfast.errors import LeaseLost
from holdfast.jobs.job import DeadLetterFilter, JobFilter, JobId, JobSpec, Lease, NewJob, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Complete, Release, RetryAfter, Verdict
from holdfast.wiring import SystemIds
from tests.contract.world import LANE, MINUTE, World, bury, done, failed, release, retry

BUSY = replace(failed("BUSY"), gateway_status=503)
SPENT = timedelta(milliseconds=1500)
KEEP = Retention(results=MINUTE)

Fact = tuple[str, int, int, dict[str, Any]]


def listen(world: World, *kinds: Kind) -> list[MoveNotice]:
    told: list[MoveNotice] = []

    async def hook(_: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moves)

    world.store.hooks.append((frozenset(kinds or Kind), hook))
    return told


async def settle(world: World, verdict: Verdict, **spec: Any) -> None:
    """Claim the first job and settle it."""
    claimed = await world.claim_one()
    await world.store.settle([Settlement(claimed.lease, verdict, claimed.attempt, SPENT)])


async def lose(world: World) -> None:
    """The worker of the one running job is lost."""
    await world.advance("61s")
    [lost] = await world.store.expired(10)
    assert await world.store.reclaim([Reclaim(lost.lease, retry(0, "WORKER_LOST"), crashed=True)]) == 1


def facts(told: Sequence[MoveNotice], job_id: JobId) -> list[Fact]:
    """What was told of a job; its epochs are counted from 1, 0 is before the first."""
    mine = [moved for moved in told if moved.job_id == job_id]
    places = {epoch: place for place, epoch in enumerate(sorted({0, *(moved.epoch for moved in mine)}))}
    return [
        (
            m.kind.name,
            places[m.epoch],
            m.attempt,
            {**m.meta, **({"worker": "?"} if "worker" in m.meta else {})},
        )
        for m in mine
    ]


WORKER = {"worker": "?"}


async def is_on_record(world: World, told: Sequence[MoveNotice]) -> None:
    """The events say what the hooks were told."""
    events = await world.store.queries.events(after=0, limit=100)
    assert [(e.kind, e.job_id, e.epoch, e.attempt, e.meta) for e in events] == [
        (m.kind.name, m.job_id, m.epoch, m.attempt, m.meta) for m in told
    ]


async def test_hooks_are_told_the_same_facts_on_every_store(world: World) -> None:  # E52 E60
    told = listen(world)
    happy = await world.enqueue()
    await settle(world, RetryAfter(timedelta(), BUSY))
    await settle(world, Release(reason="shutdown"))
    await settle(world, done("1"))
    assert facts(told, happy) == [
        ("queued", 0, 0, {}),
        ("processing", 1, 1, WORKER),
        (
            "retry",
            1,
            1,
            {"duration_ms": 1500, "error_code": "BUSY", "gateway_http_status": 503, "delay_ms": 0},
        ),
        ("processing", 2, 2, WORKER),
        ("released", 2, 2, {"duration_ms": 1500, "reason": "shutdown"}),
        ("processing", 3, 2, WORKER),
        ("complete", 3, 2, {"duration_ms": 1500}),
    ]
    await world.advance("2m")
    await world.store.purge(None, KEEP, 10)
    assert facts(told, happy)[-1] == ("expired", 3, 2, {})

    buried = await world.enqueue()
    await settle(world, retry("1h"))
    await world.store.retry(buried, "ann", kind=Kind.manual_retry)
    await settle(world, bury())
    await world.store.retry(buried, "bob", kind=Kind.redriven, queue="default")
    await settle(world, bury("AGAIN"))
    await world.store.discard(buried, "ann", "known")
    assert facts(told, buried) == [
        ("queued", 0, 0, {}),
        ("processing", 1, 1, WORKER),
        ("retry", 1, 1, {"duration_ms": 1500, "error_code": "BOOM", "delay_ms": 3_600_000}),
        ("manual_retry", 1, 1, {"by": "ann"}),
        ("processing", 2, 2, WORKER),
        ("failed", 2, 2, {"duration_ms": 1500, "error_code": "BOOM"}),
        ("redriven", 2, 0, {"by": "bob"}),
        ("processing", 3, 1, WORKER),
        ("failed", 3, 1, {"duration_ms": 1500, "error_code": "AGAIN"}),
        ("discarded", 3, 1, {"by": "ann", "reason": "known"}),
    ]
    await is_on_record(world, told)


async def test_hooks_are_told_the_same_of_lost_late_and_stuck_attempts(world: World) -> None:  # E52 E60
    told = listen(world)
    lost = await world.enqueue(max_attempts=4)
    old = await world.claim_one()
    await lose(world)
    await world.settle(old, done())
    with pytest.raises(LeaseLost):
        await world.store.record_step(old.lease, "llm", "1")
    new = await world.claim_one()
    await world.store.cancel(lost, "ann", "")
    await world.settle(new, done())
    await world.store.retry(lost, "ann", kind=Kind.manual_retry)
    await world.claim_one()
    await world.advance("61s")
    await world.store.retry(lost, "ann", kind=Kind.manual_retry)
    assert facts(told, lost) == [
        ("queued", 0, 0, {}),
        ("processing", 1, 1, WORKER),
        ("reclaimed", 1, 1, {"error_code": "WORKER_LOST"}),
        ("stale_write", 1, 1, {}),
        ("processing", 2, 2, WORKER),
        ("cancelled", 2, 2, {"by": "ann"}),
        ("late_result", 2, 2, {"outcome": "complete"}),
        ("manual_retry", 2, 0, {"by": "ann"}),
        ("processing", 3, 1, WORKER),
        ("reclaimed", 3, 1, {"error_code": "WORKER_LOST", "by": "ann"}),
        ("manual_retry", 3, 1, {"by": "ann"}),
    ]
    await settle(world, done())

    last = await world.enqueue(max_attempts=1)
    await world.claim_one()
    await world.advance("61s")
    await world.store.retry(last, "ann", kind=Kind.manual_retry)
    assert facts(told, last)[2:] == [
        ("failed", 1, 1, {"error_code": "WORKER_LOST", "by": "ann"}),
        ("manual_retry", 1, 0, {"by": "ann"}),
    ]
    await settle(world, done())

    late = await world.enqueue(deadline=MINUTE)
    claimed = await world.claim_one()
    await world.advance("61s")
    await world.settle(claimed, done())
    assert facts(told, late)[2:] == [
        ("timed_out", 1, 1, {"error_code": "TIMEOUT"}),
        ("late_result", 1, 1, {"outcome": "complete"}),
    ]
    refused = SystemIds().job_id()
    for _ in range(2):  # sent again because its answer was lost
        await world.store.reject(NewJob(refused, "{}", JobSpec(lane=LANE)), failed("NOT_PDF"))
    assert facts(told, refused) == [("rejected", 0, 0, {"error_code": "NOT_PDF"})]
    await is_on_record(world, told)


async def test_a_completion_says_what_the_service_behind_it_answered(world: World) -> None:  # E60
    """In a batch with one that says nothing, and in a handler's own transaction."""
    told = listen(world)
    ids = [await world.enqueue() for _ in range(3)]
    claimed = [await world.claim_one() for _ in ids]
    statuses = {one.lease.job_id: status for one, status in zip(claimed, (200, None, 207), strict=True)}
    first, second, third = (Complete("1", statuses[one.lease.job_id]) for one in claimed)
    ends = zip(claimed, (first, second), strict=False)
    await world.store.settle([Settlement(one.lease, end, 1, SPENT) for one, end in ends])
    async with world.store.transaction() as connection:
        await world.store.complete_in(
            connection, Settlement(claimed[2].lease, third, claimed[2].attempt, SPENT)
        )
    events = await world.store.queries.events(after=0, limit=100)
    seen = {event.job_id: event.meta for event in events if event.kind == "complete"}
    assert seen == {
        job_id: {"duration_ms": 1500} | ({"gateway_http_status": status} if status else {})
        for job_id, status in statuses.items()
    }
    await is_on_record(world, told)


async def test_hooks_are_told_what_the_events_say(world: World) -> None:  # E60
    told = listen(world)
    await world.enqueue()
    await settle(world, retry())
    claimed = await world.claim_one()
    await world.store.settle([Settlement(claimed.lease, release())])  # its worker does not know the attempt
    claimed = await world.claim_one()
    async with world.store.transaction() as connection:
        await world.store.complete_in(
            connection, Settlement(claimed.lease, Complete("1"), claimed.attempt, SPENT)
        )
    other = await world.enqueue(delay=MINUTE)
    await world.store.retry(other, "ann", kind=Kind.manual_retry)
    await world.store.cancel(other, "ann", "enough")
    await is_on_record(world, told)


# -- all or nothing ---------------------------------------------------------------------------------------------------
async def nothing(world: World) -> None: ...


async def one_waits(world: World) -> None:
    await world.enqueue()


async def one_runs(world: World) -> None:
    await world.enqueue(deadline=timedelta(hours=2))
    claimed = await world.claim_one()
    await world.store.record_step(claimed.lease, "llm", "1")


async def one_is_stuck(world: World) -> None:
    await one_runs(world)
    await world.advance("61s")


async def one_is_late(world: World) -> None:
    await one_runs(world)
    await world.advance("3h")


async def one_is_dead(world: World) -> None:
    await one_runs(world)
    [attempt] = await held(world)
    await world.store.settle([Settlement(attempt, bury(), 1)])


async def one_is_done(world: World) -> None:
    await one_runs(world)
    [attempt] = await held(world)
    await world.store.settle([Settlement(attempt, done("1"), 1)])
    await world.advance("2m")


async def held(world: World) -> list[Any]:
    [row] = (await world.store.queries.jobs(JobFilter(), after=None, limit=2)).rows
    [attempt] = await world.store.queries.attempts(row.id)

    return [Lease(row.id, attempt.epoch)]


async def only(world: World) -> JobId:
    [row] = (await world.store.queries.jobs(JobFilter(), after=None, limit=2)).rows
    return row.id


async def enqueue(world: World) -> None:
    await world.enqueue(lane=LANE._replace(queue="new"), dedupe=b"0123456789abcdef")


async def reject(world: World) -> None:
    await world.store.reject(NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE)), failed())


async def claim(world: World) -> None:
    await world.claim_one()


def settle_as(verdict: Verdict) -> Callable[[World], Awaitable[None]]:
    async def act(world: World) -> None:
        [lease] = await held(world)
        await world.store.settle([Settlement(lease, verdict, 1)])

    return act


async def complete_in(world: World) -> None:
    [lease] = await held(world)
    async with world.store.transaction() as connection:
        await world.store.complete_in(connection, Settlement(lease, Complete("1"), 1, SPENT))


async def reclaim(world: World) -> None:
    [lost] = await world.store.expired(10)
    await world.store.reclaim([Reclaim(lost.lease, retry("1m"), crashed=True)])


async def time_out(world: World) -> None:
    await world.store.time_out(10)


async def purge(world: World) -> None:
    await world.store.purge(None, KEEP, 10)


async def cancel(world: World) -> None:
    await world.store.cancel(await only(world), "ann", "")


async def retry_by_hand(world: World) -> None:
    await world.store.retry(await only(world), "ann", kind=Kind.manual_retry, forget=["llm"])


async def discard(world: World) -> None:
    await world.store.discard(await only(world), "ann", "known")


MOVES: dict[str, tuple[Callable[[World], Awaitable[None]], Callable[[World], Awaitable[None]]]] = {
    "enqueue": (nothing, enqueue),
    "reject": (nothing, reject),
    "claim": (one_waits, claim),
    "complete": (one_runs, settle_as(done("1"))),
    "retry": (one_runs, settle_as(retry())),
    "release": (one_runs, settle_as(release())),
    "bury": (one_runs, settle_as(bury())),
    "complete in a transaction": (one_runs, complete_in),
    "late": (one_is_late, settle_as(done())),
    "reclaim": (one_is_stuck, reclaim),
    "time_out": (one_is_late, time_out),
    "cancel": (one_runs, cancel),
    "retry of a dead one": (one_is_dead, retry_by_hand),
    "retry of a stuck one": (one_is_stuck, retry_by_hand),
    "discard": (one_is_dead, discard),
    "purge": (one_is_done, purge),
}


async def everything(world: World) -> list[Any]:
    """All that can be seen of the store."""
    store = world.store
    rows = (await store.queries.jobs(JobFilter(), after=None, limit=10)).rows
    return [
        rows,
        [await store.queries.attempts(row.id) for row in rows],
        [await store.queries.steps(row.id) for row in rows],
        [await store.queries.late_results(row.id) for row in rows],
        await store.queries.events(after=0, limit=100),
        await store.queries.dead_letters(DeadLetterFilter(), after=None, limit=10),
        await store.queries.counts(),
        await store.lanes.all(),
        await store.lanes.depths(),
    ]


@pytest.mark.parametrize("name", MOVES)
async def test_a_move_that_a_hook_refuses_has_not_happened(world: World, name: str) -> None:  # E5 E52
    prepare, act = MOVES[name]
    await prepare(world)
    before = await everything(world)

    async def refuse(_: Transaction, moves: Sequence[MoveNotice]) -> None:
        raise RuntimeError(f"not {moves[0].kind.name} today")

    world.store.hooks.append((frozenset(Kind), refuse))
    with pytest.raises(RuntimeError, match="today"):
        await act(world)
    assert await everything(world) == before
    world.store.hooks.clear()
    await act(world)
    assert await everything(world) != before
