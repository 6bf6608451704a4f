"""A database restored from a dump into a new cluster: transaction ids begin low there, event numbers must not."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.errors import SchemaMismatch
from holdfast.records import Event
from holdfast.stores.postgres.event_numbers import keep_growing
from tests.apps import Database, new_app, work
from tests.integration import callers

pytestmark = pytest.mark.anyio


def shop(url: str) -> tuple[Holdfast, Any]:
    app = new_app(url)

    @app.task
    async def ship(order: int) -> int:
        return order

    return app, ship


def newest_transaction(url: str) -> int:
    with psycopg.connect(url) as connection:
        [(number,)] = connection.execute(
            "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        ).fetchall()
    return int(number)


def grow_older(url: str, transactions: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            f"DO $$ BEGIN FOR i IN 1..{transactions} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$".encode()
        )


def restore(programs: Path, source: str, target: str) -> None:
    """`pg_dump | psql`"""
    for name in ("pg_dump", "psql"):
        if not (programs / name).exists():
            assert os.environ.get("CI") != "true", f"CI=true: no {name} beside the server"
            pytest.skip(f"no {name} beside the server")
    dump = subprocess.run([programs / "pg_dump", "--dbname", source], capture_output=True, check=True)
    command: list[str | Path] = [programs / "psql", "--dbname", target, "--quiet", "--set", "ON_ERROR_STOP=1"]
    subprocess.run(command, input=dump.stdout, capture_output=True, check=True)


async def all_events(app: Holdfast, after: int = 0) -> list[Event]:
    found: list[Event] = []
    while page := await app.events.list(after=found[-1].id if found else after, limit=3):
        found += page
    return found


async def test_events_go_on_behind_those_that_a_dump_has_brought_along(
    durable_postgres: Postgres, empty_postgres: str
) -> None:  # E60
    source = durable_postgres.create_database("shop")
    grow_older(source, newest_transaction(empty_postgres) + 5_000)
    app, ship = shop(source)
    await app.migrate()
    async with app:
        await ship.enqueue_many([1, 2])
        await work(app)
        await ship.enqueue(3)
        old = await all_events(app)
        assert [event.kind for event in old].count("complete") == 2
        restore(durable_postgres.binaries.folder, source, empty_postgres)
    assert newest_transaction(empty_postgres) < old[0].id // 10_000 >> 20

    moved, ship = shop(empty_postgres)
    with callers.by_psycopg(Database(empty_postgres)) as caller:
        with pytest.raises(SchemaMismatch, match=r"restored from a dump.*run `holdfast migrate`"):
            ship.options(connection=caller.connection).enqueue_sync(4)
        caller.rollback()
    async with moved:  # opening it is enough
        assert await all_events(moved) == old  # all of them can be read
        await ship.enqueue(4)
        await work(moved)
        new = await all_events(moved, after=old[-1].id)
        assert sorted(event.kind for event in new) == ["complete"] * 2 + ["processing"] * 2 + ["queued"]
        both = await all_events(moved)
        assert both == old + new
        assert [event.id for event in both] == sorted({event.id for event in both})
        store = (await moved.runtime.engine()).store
        offset = (await store.queries.health())["event_offset"]
        assert offset > 5_000
        assert await store.queries.violations() == []
    with callers.by_psycopg(Database(empty_postgres)) as caller:
        ship.options(connection=caller.connection).enqueue_sync(5)
        caller.commit()
    await moved.migrate()
    async with moved:
        assert [event.kind for event in await all_events(moved, after=new[-1].id)] == ["queued"]
        assert (await (await moved.runtime.engine()).store.queries.health())[
            "event_offset"
        ] == offset  # raised once


async def test_workers_that_were_running_go_on_with_a_restored_server(postgres_url: str) -> None:  # E60
    """The connections were lost, and behind the same address there is a cluster that counts from the start."""
    app, ship = shop(postgres_url)
    async with app:
        await ship.enqueue(1)
        old = await all_events(app)
        Database(postgres_url).execute(  # as if its event had been brought along from an older cluster
            "UPDATE holdfast.event SET seq = seq + (100000::bigint << 20)"
        )
        Database(postgres_url).execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await ship.enqueue(2)
        first, second = await all_events(app)
        assert (first.job_id, second.kind) == (old[0].job_id, "queued")
        assert first.id == old[0].id + (100_000 << 20) * 10_000


async def test_numbers_are_raised_when_nobody_is_between_a_number_and_its_commit(
    postgres_url: str,
) -> None:  # E60
    app, ship = shop(postgres_url)
    db = Database(postgres_url)
    async with app:
        async with callers.by_asyncpg(db) as caller:
            await ship.options(connection=caller.connection).enqueue(1)
            db.execute(
                "INSERT INTO holdfast.event (seq, at, kind, job_ids) VALUES (100000::bigint << 20, now(), 1, '{}')"
            )
            connection = await asyncpg.connect(postgres_url)
            raising = asyncio.create_task(keep_growing(connection))
            waits = (
                "SELECT count(*) FROM pg_locks WHERE relation = 'holdfast.event'::regclass AND NOT granted"
            )
            async with asyncio.timeout(20):
                while db.execute(waits) != [(1,)]:  # noqa: ASYNC110 - the server tells nobody who waits
                    await asyncio.sleep(0.01)
            assert not raising.done()
            assert await app.events.list() == []  # nothing that the open transaction could yet stand before
            await caller.commit()
            await raising
            await connection.close()
        await ship.enqueue(2)
        kinds = [(event.kind, event.job_id) for event in await all_events(app)]
        assert len(kinds) == 2
