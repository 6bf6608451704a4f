"""The transaction of every store: one SQL, the facts of jobs, and all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast.engine.ports import JobFacts, MoveNotice, Transaction
from holdfast.engine.tables.sql import fetch, insert, moment, read, update, write
from holdfast.jobs.job import JobFilter, JobId
from holdfast.jobs.moves import Kind, State
from holdfast.wiring import SystemIds
from tests.contract.world import MINUTE, World, bury, done

COLUMNS = {"name": "text", "last": "timestamptz", "due": "timestamptz"}
_NAMES = "SELECT name FROM holdfast.schedule_tick ORDER BY name"


async def names(world: World) -> list[str]:
    return [row["name"] for row in await read(world.store, _NAMES)]


async def add(transaction: Transaction, *names: str) -> None:
    now = await transaction.now()
    await insert(transaction, "schedule_tick", COLUMNS, [(name, None, now) for name in names])


async def test_one_statement_reads_and_writes_the_same_on_every_store(world: World) -> None:  # E52
    now = await world.store.now()
    sql = """INSERT INTO holdfast.schedule_tick (name, last, due) VALUES ($1::text, $2::timestamptz, holdfast.clock() + $3::interval)
             ON CONFLICT (name) DO UPDATE SET due = excluded.due RETURNING name, due"""
    [row] = await write(world.store, sql, "it's $1 at holdfast.clock()", now, MINUTE)
    assert row["name"] == row[0] == "it's $1 at holdfast.clock()"
    assert timedelta() <= moment(row["due"]) - now - MINUTE < MINUTE
    [row] = await read(
        world.store,
        "SELECT *, 'holdfast.clock() $2' AS text FROM holdfast.schedule_tick WHERE name = ANY ($1::text[])"
        " AND name <> ALL ($2::text[]) AND last = $3::timestamptz AND due > holdfast.clock()",
        ["it's $1 at holdfast.clock()", "other"], ["other"], now,
    )  # fmt: skip
    name, last, _, ticked, text = row
    assert (name, moment(last), ticked, text, len(row)) == (row["name"], now, None, "holdfast.clock() $2", 5)


async def test_many_rows_are_inserted_and_changed_by_one_statement(world: World) -> None:
    now = await world.store.now()

    async def work(transaction: Transaction) -> None:
        await insert(transaction, "schedule_tick", COLUMNS, [])
        await add(transaction, "a", "b", "c")
        await update(transaction, "schedule_tick", ("name", "text"), {"due": "timestamptz"}, [])
        rows = [("a", now + MINUTE), ("c", now + 2 * MINUTE)]
        await update(transaction, "schedule_tick", ("name", "text"), {"due": "timestamptz"}, rows)

    await world.store.transact(work)
    rows = await read(
        world.store, "SELECT name FROM holdfast.schedule_tick WHERE due >= $1::timestamptz", now + MINUTE
    )
    assert sorted(row["name"] for row in rows) == ["a", "c"]


async def test_work_that_raises_has_written_nothing(world: World) -> None:  # E60
    job_id = await world.enqueue()

    async def work(transaction: Transaction) -> None:
        await add(transaction, "a")
        assert await transaction.note(job_id, Kind.breached, "x", {})
        assert len(await fetch(transaction, _NAMES)) == 1
        raise ValueError("not now")

    for _ in range(2):
        with pytest.raises(ValueError, match="not now"):
            await world.store.transact(work)
    assert await names(world) == []
    assert await world.kinds(job_id) == ["queued"]


async def test_a_hook_writes_with_the_move_or_not_at_all(world: World) -> None:  # E60
    async def hook(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        await add(transaction, *(move.job_id for move in moves))
        if len(await fetch(transaction, _NAMES)) > 1:
            raise ValueError("too many")

    world.store.hooks = [(frozenset({Kind.queued}), hook)]
    job_id = await world.enqueue()
    with pytest.raises(ValueError, match="too many"):
        await world.enqueue()
    world.store.hooks = []
    assert await names(world) == [job_id]
    assert [row.id for row in (await world.store.queries.jobs(JobFilter(), after=None, limit=10)).rows] == [
        job_id
    ]


async def test_a_hook_has_tables_of_its_own(world: World) -> None:
    async def create(transaction: Transaction) -> None:
        await transaction.execute("CREATE TABLE IF NOT EXISTS shop_order (job text, kind text)")

    async def hook(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        place = "$1, $2" if transaction.dialect == "postgres" else "?, ?"
        for move in moves:
            await transaction.execute(f"INSERT INTO shop_order VALUES ({place})", move.job_id, move.kind.name)

    async def rows(transaction: Transaction) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await transaction.execute("SELECT job, kind FROM shop_order")]

    await world.store.transact(create)
    world.store.hooks = [(frozenset({Kind.queued, Kind.cancelled}), hook)]
    job_id = await world.enqueue()
    await world.store.cancel(job_id, "ann", "")
    assert await world.store.transact(rows, reads=True) == [(job_id, "queued"), (job_id, "cancelled")]
    await world.store.transact(lambda transaction: transaction.execute("DROP TABLE shop_order"))


async def test_a_transaction_knows_the_facts_of_jobs(world: World) -> None:
    complete, failed, running = [await world.enqueue(owner=owner) for owner in ("ann", "bob", None)]
    for verdict in (done(), bury()):
        await world.settle(await world.claim_one(), verdict)
    await world.claim_one()
    waiting, cancelled, again = [await world.enqueue() for _ in range(3)]
    for job_id in (cancelled, again):
        await world.store.cancel(job_id, "ann", "")
    await world.store.retry(again, "ann", kind=Kind.manual_retry)
    asked = [complete, failed, running, waiting, cancelled, again, JobId("nobody"), SystemIds().job_id()]
    facts = await world.store.transact(lambda transaction: transaction.jobs(asked), reads=True)
    assert sorted(facts) == sorted(
        JobFacts(job_id, "email", "default", owner, generation, state)
        for job_id, owner, generation, state in (
            (complete, "ann", 1, State.COMPLETE),
            (failed, "bob", 1, State.FAILED),
            (running, None, 1, State.PROCESSING),
            (waiting, None, 1, State.QUEUED),
            (cancelled, None, 1, State.CANCELLED),
            (again, None, 2, State.QUEUED),
        )
    )
    assert await world.store.transact(lambda transaction: transaction.jobs([]), reads=True) == []
