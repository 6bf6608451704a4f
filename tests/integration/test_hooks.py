"""Hooks run in the transaction of the move they are told about: they write with it, or it does not happen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Fatal, Holdfast, State, UsageError
from holdfast.jobs.job import Lane, Settlement
from holdfast.jobs.verdict import Bury, Complete, Failure
from holdfast.records import MoveNotice, Transaction
from tests.apps import ONCE, SOON, Database, kinds, until, work

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


def place(db: Database) -> str:
    return "$1" if db.is_postgres else "?"


async def test_a_hook_writes_with_the_move_it_is_told_about(db: Database, app: Holdfast) -> None:  # E60
    told: list[MoveNotice] = []

    @app.on("complete", "failed")
    async def keep(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        for moved in moves:
            told.append(moved)
            await transaction.execute(
                f"INSERT INTO note VALUES ({place(db)})", f"{moved.kind.name} {moved.job_id}"
            )
        [(count,)] = await transaction.execute("SELECT count(*) FROM note")
        assert count == len(told)

    @app.task(retry=ONCE)
    async def ship(order: int) -> int:
        if order == 2:
            raise Fatal("no such order", code="NO_ORDER")
        return order

    async with app:
        good, bad = await ship.enqueue(1), await ship.enqueue(2)
        await work(app)
    assert db.notes == [f"complete {good.id}", f"failed {bad.id}"]
    by_kind = {moved.kind.name: moved for moved in told}
    assert (by_kind["complete"].job_id, by_kind["complete"].attempt) == (good.id, 1)
    assert by_kind["complete"].epoch > 0
    assert by_kind["failed"].meta["error_code"] == "NO_ORDER"


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [(Complete("1"), "complete"), (Bury(Failure.of("UNKNOWN")), "failed")],
    ids=["complete", "failed"],
)
async def test_a_hook_that_raises_undoes_its_move_and_nothing_is_lost(
    db: Database, app: Holdfast, verdict: Complete | Bury, kind: str
) -> None:  # E5
    angry = True

    @app.on("complete", "failed")
    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        await transaction.execute("INSERT INTO note VALUES ('hooked')")
        if angry:
            raise RuntimeError("not today")

    @app.task(retry=SOON)
    async def ship() -> int:
        if kind == "failed":
            raise Fatal("cannot")
        return 1

    async with app:
        handle = await ship.enqueue()
        store = (await app.runtime.engine()).store
        session = await store.open_session("worker-1", MINUTE)
        [claimed] = await store.claim(session, [Lane("default", "ship")], 1)
        with pytest.raises(RuntimeError, match="not today"):
            await store.settle([Settlement(claimed.lease, verdict, claimed.attempt)])
        row = await app.jobs.get(handle.id)
        assert (row.state, row.epoch, db.notes) == (State.PROCESSING, claimed.lease.epoch, [])
        assert await kinds(app, handle.id) == ["queued", "processing"]
        assert db.count("dead_letter") == 0

        await store.close_session(session)  # the worker goes; whoever comes next takes the job over
        angry = False
        await work(app)
        assert await kinds(app, handle.id) == ["queued", "processing", "reclaimed", "processing", kind]
        assert await store.queries.violations() == []
    assert db.notes == ["hooked"]


async def test_a_hook_that_raises_at_enqueue_refuses_the_job(db: Database, app: Holdfast) -> None:  # E5
    @app.on("queued")
    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        await transaction.execute("INSERT INTO note VALUES ('hooked')")
        raise RuntimeError("the shop is closed")

    @app.task
    async def ship() -> None: ...

    async with app:
        with pytest.raises(RuntimeError, match="the shop is closed"):
            await ship.enqueue()
        with pytest.raises(RuntimeError, match="the shop is closed"):
            await ship.enqueue_many([(), ()])
    assert (db.notes, db.count("job"), db.count("event")) == ([], 0, 0)


async def test_hooks_are_told_of_peoples_moves_too(db: Database, app: Holdfast) -> None:  # E60
    told: list[tuple[str, str]] = []

    @app.on("queued", "cancelled", "manual_retry", "reclaimed")
    async def keep(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend((moved.kind.name, moved.job_id) for moved in moves)

    @app.task
    async def ship() -> None: ...

    async with app:
        handle = await ship.enqueue()
        await app.jobs.cancel(handle.id)
        await app.jobs.retry(handle.id)
        await work(app)
    assert told == [(kind, handle.id) for kind in ("queued", "cancelled", "manual_retry")]


def test_an_event_that_does_not_exist_is_refused(app: Holdfast) -> None:
    with pytest.raises(UsageError, match="no event completed; did you mean complete"):
        app.on("completed")


async def test_a_worker_outlives_a_hook_that_raises(db: Database, app: Holdfast) -> None:  # E5
    calls: list[int] = []

    @app.on("complete")
    async def refuse_once(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        calls.append(len(moves))
        if len(calls) == 1:
            raise RuntimeError("not today")

    @app.task(retry=SOON)
    async def ship(order: int) -> int:
        return order

    async with app:
        handles = await ship.enqueue_many([1, 2, 3])
        await work(app)
        states: list[Any] = [(await handle.job()).state for handle in handles]
    assert states == [State.COMPLETE] * 3


async def test_a_hook_that_refuses_one_end_by_deadline_keeps_no_other_alive(app: Holdfast) -> None:  # E5 E34
    @app.on("timed_out")
    async def refuse(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        if {moved.job_id for moved in moves} & refused:
            raise ValueError("not this one")

    @app.task
    async def ship(order: int) -> None: ...

    refused: set[str] = set()
    async with app:
        handles = await ship.options(deadline="1ms").enqueue_many([(number,) for number in range(12)])
        refused |= {handles[0].id, handles[7].id}
        engine = await app.runtime.engine()
        late = (await app.jobs.get(handles[-1].id)).deadline_at

        async def is_late() -> bool:
            return late is not None and await engine.store.now() > late

        await until(is_late)
        assert await engine.recovery.time_out() == 10
        assert {row.id for row in (await app.jobs.list(state="queued")).rows} == refused
        refused.clear()
        assert await engine.recovery.time_out() == 2
