"""A database of another schema family is refused in one sentence on every way in, and it stays as it was."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.cli import main
from holdfast.errors import SchemaMismatch

pytestmark = pytest.mark.anyio

#: A little of what Holdfast made before the first release: the table of migrations had numbers only.
OLD_SQLITE = """
CREATE TABLE holdfast_migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
INSERT INTO holdfast_migration VALUES (1, '0001_init');
CREATE TABLE holdfast_lane (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, task TEXT NOT NULL, UNIQUE (queue, task)) STRICT;
INSERT INTO holdfast_lane VALUES (1, 'default', 'ship');
"""
OLD_POSTGRES = """
CREATE SCHEMA holdfast;
CREATE TABLE holdfast.migration (number int PRIMARY KEY, name text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
INSERT INTO holdfast.migration VALUES (1, '0001_init');
CREATE TABLE holdfast.lane (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, task text NOT NULL, UNIQUE (queue, task));
INSERT INTO holdfast.lane (queue, task) VALUES ('default', 'ship');
CREATE TABLE holdfast.ready (ord bigint NOT NULL, id uuid NOT NULL UNIQUE, lane int NOT NULL);
INSERT INTO holdfast.ready VALUES (1, '0190a0b0-1111-7abc-8def-000000000001', 1);
CREATE TABLE holdfast.outbox (number bigint PRIMARY KEY, topic text NOT NULL);
INSERT INTO holdfast.outbox VALUES (1, 'orders');
"""
#: All that the schema consists of, and the rows with their versions.
LOOKS = (
    "SELECT oid, relname, relkind::text, relfilenode, xmin::text FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace ORDER BY 1",
    "SELECT attrelid, attnum, attname, xmin::text FROM pg_attribute WHERE attrelid >= 16384 ORDER BY 1, 2",
    "SELECT oid, xmin::text FROM pg_proc WHERE oid >= 16384 ORDER BY 1",
    "SELECT xmin::text, ctid::text, * FROM holdfast.migration",
    "SELECT xmin::text, ctid::text, * FROM holdfast.lane",
    "SELECT xmin::text, ctid::text, * FROM holdfast.ready",
    "SELECT xmin::text, ctid::text, * FROM holdfast.outbox",
)


@pytest.fixture(params=["wal", "delete"])
def old_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file as the old family left it (WAL), and a copy made by VACUUM INTO (no WAL)."""
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA journal_mode = {request.param}")
        file.executescript(OLD_SQLITE)
    return path


@pytest.fixture
def old_database(empty_postgres: str) -> str:
    with psycopg.connect(empty_postgres) as connection:
        connection.execute(OLD_POSTGRES.encode())
    return empty_postgres


def look_at_file(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


def look_at_database(url: str) -> list[list[Any]]:
    with psycopg.connect(url) as connection:
        return [connection.execute(question.encode()).fetchall() for question in LOOKS]


async def refusals(url: str) -> set[str]:
    """What opening and migrating say."""
    told = set()
    app = Holdfast(url)
    for enter in (app.runtime.engine, app.migrate):
        with pytest.raises(SchemaMismatch) as refused:
            await enter()
        told.add(str(refused.value))
    await app.close()
    return told


async def test_an_old_file_is_refused_and_stays_byte_for_byte(old_file: Path) -> None:  # E53
    before = look_at_file(old_file)
    assert await refusals(f"sqlite:///{old_file}") == {
        "jobs.db has the schema of an older Holdfast that cannot be migrated; drain it with that version, then use a new file"
    }
    assert look_at_file(old_file) == before


async def test_an_old_database_is_refused_and_stays_table_for_table(old_database: str) -> None:  # E53
    before = look_at_database(old_database)
    parts = urlsplit(old_database)
    [told] = await refusals(old_database)
    assert told == (
        f"{parts.hostname}:{parts.port}{parts.path} has the schema of an older Holdfast that cannot be migrated; drain it with"
        " that version, then use a new database or drop the schema holdfast"
    )
    assert look_at_database(old_database) == before


async def test_a_job_is_not_put_into_an_old_file_on_a_connection_of_the_caller(old_file: Path) -> None:  # E53
    before = look_at_file(old_file)
    app = Holdfast(f"sqlite:///{old_file}")

    @app.task
    async def ship() -> None: ...

    with closing(sqlite3.connect(old_file)) as mine:
        mine.execute("BEGIN")
        with pytest.raises(SchemaMismatch, match="an older Holdfast that cannot be migrated"):
            ship.options(connection=mine).enqueue_sync()
        mine.rollback()
    assert look_at_file(old_file) == before


@pytest.mark.parametrize("what", ["job", "message"])
async def test_nothing_is_put_into_an_old_database_on_a_connection_of_the_caller(
    old_database: str, what: str
) -> None:  # E53
    before = look_at_database(old_database)
    app = Holdfast(old_database)
    app.topic("orders", to="memory://")

    @app.task
    async def ship() -> None: ...

    with psycopg.connect(old_database) as mine:
        put: dict[str, Callable[[], object]] = {
            "job": lambda: ship.options(connection=mine).enqueue_sync(),
            "message": lambda: app.outbox.publish_sync("orders", {}, connection=mine),
        }
        with pytest.raises(SchemaMismatch, match="an older Holdfast that cannot be migrated"):
            put[what]()
    assert look_at_database(old_database) == before


@pytest.mark.parametrize("command", [["migrate"], ["jobs", "list"]], ids=" ".join)
def test_the_command_line_ends_with_the_code_of_the_database(
    old_file: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:  # E53
    before = look_at_file(old_file)
    assert main([*command, "--url", f"sqlite:///{old_file}"]) == 5
    told = capsys.readouterr().err
    assert told.startswith(
        "holdfast: jobs.db has the schema of an older Holdfast that cannot be migrated; drain it"
    )
    assert told.count("\n") == 1
    assert look_at_file(old_file) == before


@pytest.mark.parametrize("verb", ["migrate", "__aenter__"])
async def test_a_file_of_a_newer_family_asks_for_an_upgrade(tmp_path: Path, verb: str) -> None:  # E53
    path = tmp_path / "jobs.db"
    app = Holdfast(f"sqlite:///{path}")
    await app.migrate()
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE holdfast_migration SET family = 3")
        file.commit()
    with pytest.raises(SchemaMismatch) as refused:
        await getattr(app, verb)()
    assert (
        str(refused.value)
        == "jobs.db has a schema of family 3, this version of Holdfast knows family 2; upgrade Holdfast"
    )


@pytest.mark.parametrize("verb", ["migrate", "__aenter__"])
async def test_a_database_of_a_newer_family_asks_for_an_upgrade(
    empty_postgres: str, verb: str
) -> None:  # E53
    app = Holdfast(empty_postgres)
    await app.migrate()
    with psycopg.connect(empty_postgres) as connection:
        connection.execute("UPDATE holdfast.migration SET family = 3")
    with pytest.raises(
        SchemaMismatch, match=r"has a schema of family 3, .* knows family 2; upgrade Holdfast"
    ):
        await getattr(app, verb)()


async def test_an_old_migrator_that_is_first_is_noticed_under_the_lock(empty_postgres: str) -> None:  # E53
    app = Holdfast(empty_postgres)
    with psycopg.connect(empty_postgres) as old:
        old.execute("SELECT pg_advisory_xact_lock(1213156420)")  # the lock of every family
        migrating = asyncio.create_task(app.migrate())
        await asyncio.to_thread(_until_someone_waits, empty_postgres)
        old.execute(OLD_POSTGRES.encode())
    with pytest.raises(SchemaMismatch, match="an older Holdfast that cannot be migrated"):
        await migrating


def _until_someone_waits(url: str) -> None:
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with psycopg.connect(url, autocommit=True) as connection:
        ends = time.monotonic() + 10
        while connection.execute(asked).fetchone() == (0,):
            assert time.monotonic() < ends, "nobody waits for the lock"
            time.sleep(0.01)
