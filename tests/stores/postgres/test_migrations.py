"""Migrations of PostgreSQL: from empty, twice in a row, from the last release with rows in it, and every way it can fail."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast import Holdfast, State, StoreError, StoreUnavailable, UsageError
from holdfast.errors import SchemaMismatch
from holdfast.stores.migrations import Migration, newest_numbers
from holdfast.stores.postgres import migrate as migrations
from holdfast.wiring import SystemClock, SystemThreads, make_store

pytestmark = pytest.mark.anyio

NEWEST = newest_numbers(migrations.MIGRATIONS)["core"]
NEXT = Migration(
    "core",
    NEWEST + 1,
    "colour",
    "ALTER TABLE holdfast.job ADD COLUMN colour text NOT NULL DEFAULT 'red'; CREATE INDEX job_colour ON holdfast.job (colour);",
)


def execute(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def schema(url: str) -> list[tuple[Any, ...]]:
    return execute(
        url,
        "SELECT relkind::text, relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace ORDER BY 1, 2",
    )


def app_on(url: str) -> Holdfast:
    return Holdfast(url, poll="20ms")


def with_parts(
    url: str, *, password: str | None = None, path: str | None = None, port: int | None = None
) -> str:
    parts = urlsplit(url)
    user = f"{parts.username}:{password or parts.password}"
    address = f"{user}@{parts.hostname}:{port or parts.port}"
    return urlunsplit(parts._replace(netloc=address, path=path or parts.path))


async def test_from_empty_and_twice_in_a_row(empty_postgres: str) -> None:  # E53
    app = app_on(empty_postgres)
    names = [one.name for one in migrations.MIGRATIONS]
    assert await app.migrate() == names
    before = schema(empty_postgres)
    assert await app.migrate() == []
    assert schema(empty_postgres) == before
    recorded = execute(empty_postgres, "SELECT name FROM holdfast.migration ORDER BY at")
    assert [name for (name,) in recorded] == names
    async with app:
        assert await app.jobs.counts() == dict.fromkeys(State, 0)


async def test_from_empty_on_the_newest_postgresql(empty_postgres18: str) -> None:  # E51 E53
    app = app_on(empty_postgres18)

    @app.task
    async def ship(order: int) -> int:
        return order

    await app.migrate()
    async with app:
        handle = await ship.enqueue(1)
        await app.run_worker(until_idle=True)
        assert await handle.result("1s") == 1


async def test_from_the_last_release_with_rows_in_it(
    empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    app = app_on(empty_postgres)

    @app.task
    async def ship(order: int) -> int:
        return order

    await app.migrate()
    async with app:
        done = await ship.enqueue(1)
        await app.run_worker(until_idle=True)
        waiting = await ship.enqueue(2)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, NEXT])
    text = await refusal(empty_postgres, SchemaMismatch)
    assert text.endswith(
        f"has core schema {NEWEST}, this version of Holdfast needs {NEWEST + 1}; run `holdfast migrate`"
    )
    assert await app.migrate() == [NEXT.name]
    assert await app.migrate() == []
    assert execute(empty_postgres, "SELECT DISTINCT colour FROM holdfast.job") == [("red",)]
    async with app:
        assert (await app.jobs.get(done.id)).result == 1
        await app.run_worker(until_idle=True)
        assert await waiting.result("1s") == 2


async def test_a_migration_runs_while_a_worker_works(
    empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    app = app_on(empty_postgres)

    @app.task
    async def ship(order: int) -> int:
        return order

    await app.migrate()
    async with app:
        working = asyncio.create_task(app.run_worker())
        await (await ship.enqueue(1)).result("10s")
        monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, NEXT])
        assert await app.migrate() == [NEXT.name]
        assert await (await ship.enqueue(2)).result("10s") == 2
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    empty_postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    await app_on(empty_postgres).migrate()
    before = schema(empty_postgres)
    broken = Migration(
        "core",
        NEWEST + 1,
        "broken",
        "CREATE TABLE holdfast.half (a int); CREATE TABLE holdfast.lane (a int);",
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, broken])
    with pytest.raises(StoreError, match='relation "lane" already exists'):
        await app_on(empty_postgres).migrate()
    assert schema(empty_postgres) == before
    assert execute(empty_postgres, "SELECT max(number) FROM holdfast.migration") == [(NEWEST,)]


async def test_migrators_that_meet_run_each_migration_once(empty_postgres: str) -> None:  # E53
    ran = await asyncio.gather(*(app_on(empty_postgres).migrate() for _ in range(6)))
    assert sorted(name for names in ran for name in names) == [one.name for one in migrations.MIGRATIONS]


# -- databases that cannot be used ----------------------------------------------------------------------------------
async def refusal(url: str, kind: type[StoreError], *, verb: str = "open") -> str:
    """The one line, with nothing in it that is nobody's business."""
    store = make_store(url, SystemClock(), SystemThreads())
    with pytest.raises(kind) as refused:
        async with asyncio.timeout(20):
            await getattr(store, verb)()
    await store.close()
    assert type(refused.value) is kind
    text = str(refused.value)
    assert "\n" not in text
    assert urlsplit(url).password not in (None, "")
    assert str(urlsplit(url).password) not in text
    assert "Traceback" not in text
    assert str(Path.cwd()) not in text
    return text


def where(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}{parts.path}"


async def test_a_missing_schema_says_how_to_make_it(empty_postgres: str) -> None:  # E53
    assert await refusal(empty_postgres, SchemaMismatch) == (
        f"{where(empty_postgres)} has no Holdfast schema; run `holdfast migrate`"
    )


async def test_a_newer_schema_is_refused(empty_postgres: str) -> None:  # E53
    await app_on(empty_postgres).migrate()
    execute(empty_postgres, "INSERT INTO holdfast.migration VALUES ('core', 99, 'from the future', 2)")
    assert await refusal(empty_postgres, SchemaMismatch) == (
        f"{where(empty_postgres)} has core schema 99, this version of Holdfast knows up to {NEWEST}; upgrade Holdfast"
    )
    with pytest.raises(SchemaMismatch, match="upgrade Holdfast"):
        await app_on(empty_postgres).migrate()


@pytest.mark.parametrize("verb", ["open", "migrate"])
async def test_a_missing_database_is_named(empty_postgres: str, verb: str) -> None:  # E14
    url = with_parts(empty_postgres, path="/nowhere")
    assert await refusal(url, StoreError, verb=verb) == (
        f"there is no database at {where(url)}; create it, then run `holdfast migrate`"
    )


@pytest.mark.parametrize("verb", ["open", "migrate"])
async def test_a_wrong_password_is_not_repeated(empty_postgres: str, verb: str) -> None:  # E14
    url = with_parts(empty_postgres, password="hunter2")
    assert await refusal(url, StoreError, verb=verb) == (
        f"PostgreSQL refused the user or password for {where(url)}; check HOLDFAST_DATABASE_URL"
    )


@pytest.mark.parametrize("verb", ["open", "migrate"])
async def test_a_server_that_is_down_is_unavailable(empty_postgres: str, verb: str) -> None:  # E14
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = with_parts(empty_postgres, port=nobody.getsockname()[1])
        assert await refusal(url, StoreUnavailable, verb=verb) == (
            f"PostgreSQL at {where(url)} cannot be reached; is it running?"
        )


async def test_a_host_that_does_not_exist_is_unavailable() -> None:  # E14
    text = await refusal("postgresql://me:secret@no-such-host.invalid:5432/jobs", StoreUnavailable)
    assert text.startswith("PostgreSQL at no-such-host.invalid:5432/jobs")


async def test_a_database_that_commits_without_the_disk_is_refused(empty_postgres: str) -> None:  # E14
    await app_on(empty_postgres).migrate()
    name = urlsplit(empty_postgres).path[1:]
    execute(empty_postgres, f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert "synchronous_commit=off" in await refusal(empty_postgres, StoreError)


async def test_a_user_who_may_not_make_a_schema_is_told(empty_postgres: str) -> None:  # E14
    execute(
        empty_postgres,
        "DO $$ BEGIN CREATE ROLE guest LOGIN PASSWORD 'guest-secret'; EXCEPTION WHEN duplicate_object THEN END $$",
    )
    parts = urlsplit(empty_postgres)
    url = urlunsplit(parts._replace(netloc=f"guest:guest-secret@{parts.hostname}:{parts.port}"))
    text = await refusal(url, StoreError, verb="migrate")
    assert text.startswith(f"the database user may not do this at {where(url)}: permission denied")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("sslmode=require", "speaks no TLS; set it up there, or drop sslmode from the URL"),
        ("sslmode=often", "says something it cannot: "),
        ("target_session_attrs=any-old", "says something it cannot: "),
    ],
)
async def test_options_of_the_url_that_cannot_be_are_not_taken_for_an_outage(
    empty_postgres: str, query: str, why: str
) -> None:  # E14
    assert why in await refusal(f"{empty_postgres}?{query}", StoreError)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (
            "postgresql://me:secret@localhost:http/jobs",
            "host or port of the URL of PostgreSQL cannot be read",
        ),
        (
            "postgresql://me:secret@localhost:99999/jobs",
            "host or port of the URL of PostgreSQL cannot be read",
        ),
        ("postgresql://me:secret@[::1/jobs", "host or port of the URL of PostgreSQL cannot be read"),
        ("postgresql://me:sec/ret@localhost/jobs", "with %-codes for / : @ \\? # in the password"),
        ("postgresql://me:secret@localhost/jobs?prepare=maybe", "prepare is 'maybe' .*; it is on or off"),
        ("postgresql+asyncpg://me:secret@localhost/jobs", "'postgresql\\+asyncpg' is not a store"),
    ],
)
async def test_a_url_that_cannot_be_read_is_a_usage_error_without_its_password(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        await app_on(url).runtime.engine()
    assert "sec" not in str(refused.value)
