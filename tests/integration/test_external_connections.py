"""Callers with open transactions of their own: none waits for another, workers are woken by the commit, hooks are told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind
from holdfast.records import MoveNotice, Transaction
from tests.apps import Database, kinds, new_app, work
from tests.integration import callers
from tests.integration.callers import ASYNC, SYNC

pytestmark = [pytest.mark.anyio, pytest.mark.service]

ON_POSTGRES = [name for name, (store, _) in SYNC.items() if store == "postgres"]
ASYNC_ON_POSTGRES = [name for name, (store, _) in ASYNC.items() if store == "postgres"]


@pytest.fixture
def db(postgres_url: str) -> Database:
    found = Database(postgres_url)
    found.prepare()
    return found


@pytest.fixture
def app(db: Database) -> Holdfast:
    return new_app(db.url)


def order_task(app: Holdfast) -> Any:
    @app.task
    async def ship(order: int) -> int:
        return order

    return ship


# -- new lanes --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_two_sync_callers_make_the_same_new_lane_and_neither_waits(
    db: Database, app: Holdfast, name: str
) -> None:  # E43
    ship, open_caller = order_task(app), SYNC[name][1]
    with open_caller(db) as one, open_caller(db) as other:
        other.execute("SET LOCAL lock_timeout = '20s'")
        first = ship.options(connection=one.connection).enqueue_sync(1)
        second = ship.options(connection=other.connection).enqueue_sync(2)  # while the first is open
        other.commit()
        one.commit()
    assert {row[0] for row in db.execute("SELECT id::text FROM holdfast.job")} == {first.id, second.id}
    assert db.count("lane") == 1


@pytest.mark.parametrize("name", ASYNC_ON_POSTGRES)
async def test_two_async_callers_make_the_same_new_lane_and_neither_waits(
    db: Database, app: Holdfast, name: str
) -> None:  # E43
    ship, open_caller = order_task(app), ASYNC[name][1]
    async with app, open_caller(db) as one, open_caller(db) as other, asyncio.timeout(20):
        # Its own queue, made when the app was opened, and one nobody knew of.
        for queue in ("default", "elsewhere"):
            await ship.options(connection=one.connection, queue=queue).enqueue(1)
            await ship.options(connection=other.connection, queue=queue).enqueue(2)
        await other.commit()
        await one.commit()
        lanes = "SELECT n.queue, count(DISTINCT n.id) FROM holdfast.job j JOIN holdfast.lane n ON n.id = j.lane GROUP BY 1"
        assert sorted(db.execute(lanes)) == [("default", 1), ("elsewhere", 1)]
        assert db.count("job") == 4


async def test_the_lanes_of_all_tasks_are_there_when_the_app_is_open(
    db: Database, app: Holdfast
) -> None:  # E43
    order_task(app)
    async with app:
        assert {(lane.queue, lane.task) for lane in await (await app.runtime.engine()).store.lanes.all()} == {
            ("default", "ship")
        }


def test_a_caller_with_an_older_snapshot_uses_a_lane_that_was_made_since(
    db: Database, app: Holdfast
) -> None:  # E43
    ship = order_task(app)
    with callers.by_psycopg(db) as caller:
        caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        caller.execute("SELECT 1")
        with callers.by_psycopg(db) as other:
            ship.options(connection=other.connection).enqueue_sync(1)
            other.commit()
        ship.options(connection=caller.connection).enqueue_sync(2)
        caller.commit()
    assert (db.count("job"), db.count("lane")) == (2, 1)


def test_a_lane_is_made_in_the_callers_transaction_where_no_other_way_is_left(
    db: Database, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E43
    ship = order_task(app)
    with callers.by_psycopg(db) as caller:
        monkeypatch.setattr(psycopg, "connect", _refuse)
        handle = ship.options(connection=caller.connection).enqueue_sync(1)
        ship.options(connection=caller.connection).enqueue_sync(2)
        caller.commit()
        monkeypatch.undo()
    assert (db.count("job"), db.count("lane")) == (2, 1)
    assert handle.id


def _refuse(*_: object, **__: object) -> None:
    raise psycopg.OperationalError("too many connections")


# -- keys -------------------------------------------------------------------------------------------------------------
async def test_a_job_with_a_key_starts_when_its_callers_transaction_commits(db: Database) -> None:  # E43 E49
    """Nobody looks by itself: the poll is far away, and no duty runs that would let it into line."""
    app = new_app(db.url, poll="1h")
    started = asyncio.Event()

    @app.task
    async def ship(order: int) -> None:
        started.set()

    async with app:
        working = asyncio.create_task(app.run_worker(maintenance=False))
        store: Any = (await app.runtime.engine()).store
        async with asyncio.timeout(20):
            while store._notifier._listener is None:  # noqa: ASYNC110 - before it listens there is nothing to hear
                await asyncio.sleep(0.01)
            async with callers.by_async_psycopg(db) as caller:
                handle = await ship.options(connection=caller.connection, key="ann").enqueue(1)
                assert not started.is_set()
                await caller.commit()
                await started.wait()
            await handle.result("30s")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


# -- hooks ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ON_POSTGRES)
def test_a_hook_writes_in_the_transaction_of_a_sync_caller(
    db: Database, app: Holdfast, name: str
) -> None:  # E43 E60
    ship, told, open_caller = order_task(app), list[MoveNotice](), SYNC[name][1]
    app.on("queued")(_note(told))
    with open_caller(db) as caller:
        handle = ship.options(connection=caller.connection).enqueue_sync(1)
        assert db.notes == []
        caller.commit()
    assert [(moved.kind.name, moved.job_id, moved.attempt) for moved in told] == [("queued", handle.id, 0)]
    assert db.notes == [handle.id]


@pytest.mark.parametrize("name", ASYNC_ON_POSTGRES)
async def test_a_hook_writes_in_the_transaction_of_an_async_caller(
    db: Database, app: Holdfast, name: str
) -> None:  # E43 E60
    ship, told, open_caller = order_task(app), list[MoveNotice](), ASYNC[name][1]
    app.on("queued")(_note(told))
    async with app, open_caller(db) as caller:
        handle = await ship.options(connection=caller.connection).enqueue(1)
        assert db.notes == []
        await caller.rollback()
    assert db.notes == []
    assert [moved.job_id for moved in told] == [handle.id]


def _note(told: list[MoveNotice]) -> Any:
    async def keep(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        told.extend(moves)
        for moved in moves:
            sql = "INSERT INTO note VALUES ($1::text) RETURNING 1 AS first, note.*"
            [row] = await transaction.execute(sql, moved.job_id)
            assert (row["first"], row[1], len(row), list(row)) == (1, moved.job_id, 2, [1, moved.job_id])
            [job] = await transaction.jobs([JobId(moved.job_id)])
            assert (job.id, job.task, job.state) == (moved.job_id, "ship", State.QUEUED)
            assert await transaction.note(job.id, Kind.breached, "x", {"n": 1})
            assert not await transaction.note(job.id, Kind.breached, "x", {"n": 2})

    return keep


async def test_a_worker_outlives_a_hook_that_refuses_claims(db: Database, app: Holdfast) -> None:  # E5
    ship, refused = order_task(app), threading.Event()

    @app.on("processing")
    async def refuse_once(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        if not refused.is_set():
            refused.set()
            raise RuntimeError("not today")

    async with app:
        handle = await ship.enqueue(1)
        await work(app)
        assert (await handle.job()).state is State.COMPLETE
        assert await kinds(app, handle.id) == ["queued", "processing", "complete"]
