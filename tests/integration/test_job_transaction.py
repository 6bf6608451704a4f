"""`async with job.transaction()`: the user's writes and the end of the job commit together, or not at all."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, LeaseLost, State, current_job
from tests.apps import SOON, Database, kinds, new_app, until, work

pytestmark = pytest.mark.anyio

NOTE = "INSERT INTO note VALUES ('{}')"


async def write(connection: Any, sql: str) -> None:
    """The connection is the store's own kind: asyncpg's, or sqlite3's."""
    done = connection.execute(sql)
    if not isinstance(done, sqlite3.Cursor):
        await done


async def expire_sessions(db: Database, app: Holdfast) -> int:
    """Every worker is lost: its leases can be reclaimed, and are."""
    if db.is_postgres:
        db.execute("UPDATE holdfast.session SET expires_at = now() - interval '1 hour'")
    else:
        db.execute("UPDATE holdfast_session SET expires_mono = 0")
    return await (await app.runtime.engine()).recovery.reclaim()


async def test_the_users_write_and_the_completion_commit_together(
    db: Database, app: Holdfast
) -> None:  # E49 E5
    seen: list[tuple[list[str], str]] = []

    @app.task
    async def pay(order: int) -> None:
        job = current_job()
        async with job.transaction(result={"paid": order}) as connection:
            await write(connection, NOTE.format("paid"))
            seen.append((db.notes, (await app.jobs.get(job.id)).state))
        seen.append((db.notes, (await app.jobs.get(job.id)).state))

    async with app:
        handle = await pay.enqueue(7)
        await work(app)
        row = await app.jobs.get(handle.id)
        assert await kinds(app, handle.id) == ["queued", "processing", "complete"]
    assert seen == [([], "processing"), (["paid"], "complete")]
    assert (row.state, row.result, row.attempt) == (State.COMPLETE, {"paid": 7}, 1)


async def test_a_handler_that_raises_inside_the_block_leaves_neither(
    db: Database, app: Holdfast
) -> None:  # E49
    @app.task(retry=SOON)
    async def pay() -> None:
        job = current_job()
        async with job.transaction() as connection:
            await write(connection, NOTE.format(f"attempt {job.attempt}"))
            if job.attempt < 3:
                raise OSError("the bank is away")

    async with app:
        handle = await pay.enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
    assert (row.state, row.attempt, db.notes) == (State.COMPLETE, 3, ["attempt 3"])


async def test_what_the_handler_does_after_the_block_cannot_undo_the_end(
    db: Database, app: Holdfast
) -> None:  # E5
    @app.task(retry=SOON)
    async def pay() -> int:
        job = current_job()
        async with job.transaction(result=1) as connection:
            await write(connection, NOTE.format("paid"))
        raise OSError("too late to fail")

    async with app:
        handle = await pay.enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
        assert await kinds(app, handle.id) == ["queued", "processing", "complete"]
    assert (row.state, row.result, row.attempt, db.notes) == (State.COMPLETE, 1, 1, ["paid"])


async def test_a_lost_lease_rolls_the_users_write_back(db: Database, app: Holdfast) -> None:  # E4 E49
    lost: list[LeaseLost] = []
    told, looked = asyncio.Event(), asyncio.Event()

    async def is_taken_away() -> bool:
        job = current_job()
        row = await app.jobs.get(job.id)
        return (row.epoch, row.state) != (job.epoch, State.PROCESSING)

    @app.task(retry=SOON)
    async def pay() -> None:
        job = current_job()
        if job.attempt == 1:
            await expire_sessions(db, app)  # here, or by the worker's own duty, which may be quicker
            await until(is_taken_away)
        else:
            await looked.wait()
        try:
            async with job.transaction() as connection:
                await write(connection, NOTE.format(f"attempt {job.attempt}"))
        except LeaseLost as error:
            lost.append(error)
            told.set()
            raise

    async with app:
        handle = await pay.enqueue()
        first = asyncio.create_task(app.run_worker())
        async with asyncio.timeout(20):
            await told.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert db.notes == []
        looked.set()
        await work(app)
        row = await app.jobs.get(handle.id)
        seen = await kinds(app, handle.id)
    assert [(error.job_id, error.epoch < row.epoch) for error in lost] == [(handle.id, True)]
    assert (row.state, row.attempt, db.notes) == (State.COMPLETE, 2, ["attempt 2"])
    assert seen.count("complete") == 1
    assert "reclaimed" in seen


async def test_a_cancel_during_the_block_wins_and_the_write_is_gone(postgres_url: str) -> None:  # E4 E29
    """On PostgreSQL others may write while the block is open; on SQLite the block has the file to itself."""
    db = Database(postgres_url)
    app, lost = new_app(db.url), list[str]()
    db.execute("CREATE TABLE note (text text NOT NULL)")

    @app.task
    async def pay() -> None:
        job = current_job()
        try:
            async with job.transaction() as connection:
                await write(connection, NOTE.format("paid"))
                await app.jobs.cancel(job.id)
        except LeaseLost as error:
            lost.append(error.job_id)
            raise

    async with app:
        handle = await pay.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).state is State.CANCELLED
    assert (lost, db.notes) == ([handle.id], [])


async def test_a_hook_runs_in_the_block_of_the_job_too(db: Database, app: Holdfast) -> None:  # E49
    @app.on("complete")
    async def note(transaction: Any, moves: Any) -> None:
        await transaction.execute(NOTE.format("hooked"))

    @app.task
    async def pay() -> None:
        job = current_job()
        async with job.transaction() as connection:
            await write(connection, NOTE.format("paid"))

    async with app:
        await pay.enqueue()
        await work(app)
    assert db.notes == ["hooked", "paid"]


async def test_the_users_own_database_error_reaches_the_user_as_it_is(
    db: Database, app: Holdfast
) -> None:  # E49
    seen: list[BaseException] = []

    @app.task
    async def pay() -> None:
        job = current_job()
        try:
            async with job.transaction() as connection:
                await write(connection, "INSERT INTO note VALUES (NULL)")
        except Exception as error:
            seen.append(error)

    async with app:
        await pay.enqueue()
        await work(app)
    assert [type(error) for error in seen] == [
        asyncpg.NotNullViolationError if db.is_postgres else sqlite3.IntegrityError
    ]
