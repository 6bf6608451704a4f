"""Lanes by number on SQLite: a number whose transaction was undone must not be remembered, for another lane gets it."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.jobs.job import JobId, JobSpec, Lane, NewJob, Session
from holdfast.stores.sqlite import SqliteStore, intake
from holdfast.stores.sqlite.move import Move
from holdfast.wiring import SystemClock, SystemIds, SystemThreads

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
FIRST, SECOND = Lane("default", "first"), Lane("default", "second")


def job(lane: Lane) -> NewJob:
    return NewJob(JobId(SystemIds().job_id()), "{}", JobSpec(lane=lane))


async def test_a_lane_whose_commit_failed_is_forgotten(tmp_path: Path) -> None:  # E50
    store = SqliteStore(str(tmp_path / "jobs.db"), SystemClock(), SystemThreads())
    await store.open()
    session = await store.open_session("w1", MINUTE)
    assert store._database.writer is not None

    def enqueue_and_look(move: Move) -> list[Lane]:
        """As a group would: a claim looks at the lanes that the enqueue before it has made."""
        intake.enqueue(move, [job(FIRST)])
        return list(move.lanes.by_number(move.connection).values())

    def fail_to_commit(connection: sqlite3.Connection) -> None:
        # A row that breaks a rule which is looked at by the commit alone.
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("INSERT INTO child VALUES (1)")

    store._database.writer._connection.execute("PRAGMA foreign_keys = ON")
    await store._database.writer.run(lambda db: db.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)"))
    await store._database.writer.run(
        lambda db: db.execute("CREATE TABLE child (id REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
    )

    def group(connection: sqlite3.Connection) -> None:
        assert store._database.move(enqueue_and_look)(connection) == [FIRST]
        fail_to_commit(connection)

    with pytest.raises(Exception, match="FOREIGN KEY"):
        await store._database.writer.run(group)
    assert await store.lanes.all() == set()

    async def claimed_lanes(session: Session) -> list[Lane]:
        return [one.lane for one in await store.claim(session, [FIRST, SECOND], 10)]

    await store.enqueue([job(SECOND)])  # its lane is given the number that was undone
    assert await claimed_lanes(session) == [SECOND]
    await store.enqueue([job(FIRST)])
    assert await claimed_lanes(session) == [FIRST]
    assert await store.queries.violations() == []
    await store.close()


async def test_lanes_made_by_others_are_found(tmp_path: Path) -> None:  # E50
    path = str(tmp_path / "jobs.db")
    here, there = (SqliteStore(path, SystemClock(), SystemThreads()) for _ in range(2))
    await asyncio.gather(here.open(), there.open())
    session = await here.open_session("w1", MINUTE)
    for lane in (FIRST, SECOND):
        await there.enqueue([job(lane)])
        await here.wait_for_work([FIRST, SECOND], 5)
        assert [one.lane for one in await here.claim(session, [FIRST, SECOND], 10)] == [lane]
    await asyncio.gather(here.close(), there.close())


async def test_who_only_enqueues_looks_for_a_lane_once(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), SystemClock(), SystemThreads())
    await store.open()
    await store.enqueue([job(FIRST)])
    said: list[str] = []
    assert store._database.writer is not None
    store._database.writer._connection.set_trace_callback(said.append)
    await store.enqueue([job(FIRST)])
    store.enqueue_sync([job(FIRST)])
    assert [sql for sql in said if "holdfast_lane" in sql] == []
    await store.close()


async def test_lanes_that_were_never_made_are_not_asked_for_one_by_one(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "jobs.db"), SystemClock(), SystemThreads())
    await store.open()
    session = await store.open_session("w1", MINUTE)
    await store.enqueue([job(FIRST)])
    lanes = [*(Lane("default", f"never{number}") for number in range(50)), FIRST, SECOND]
    said: list[str] = []
    assert store._database.writer is not None
    store._database.writer._connection.set_trace_callback(said.append)
    assert [one.lane for one in await store.claim(session, lanes, 10)] == [FIRST]
    assert len([sql for sql in said if "holdfast_lane" in sql]) <= 2
    await store.close()
