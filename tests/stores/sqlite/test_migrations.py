"""Migrations of SQLite: from empty, twice in a row, from the last release with rows in it, and every way it can fail."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from holdfast import Holdfast, State, StoreError, StoreUnavailable
from holdfast.errors import SchemaMismatch, UsageError
from holdfast.stores.migrations import Migration, newest_numbers
from holdfast.stores.sqlite import migrate as migrations
from holdfast.stores.sqlite.connection import connect

pytestmark = pytest.mark.anyio

NEWEST = newest_numbers(migrations.MIGRATIONS)["core"]
NEXT = Migration(
    "core",
    NEWEST + 1,
    "colour",
    """-- adds before it is used
    ALTER TABLE holdfast_job ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'; -- a note
    CREATE INDEX job_colour ON holdfast_job (colour) -- no semicolon at the end""",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT type, name FROM sqlite_master ORDER BY 1, 2").fetchall()


def app_on(path: Path) -> Holdfast:
    return Holdfast(f"sqlite:///{path}", poll="20ms")


async def test_from_empty_and_twice_in_a_row(path: Path) -> None:  # E53
    app = app_on(path)
    names = [one.name for one in migrations.MIGRATIONS]
    assert await app.migrate() == names
    before = schema(path)
    assert await app.migrate() == []
    assert schema(path) == before
    async with app:
        assert await app.jobs.counts() == dict.fromkeys(State, 0)


async def test_from_the_last_release_with_rows_in_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    app = app_on(path)

    @app.task
    async def ship(order: int) -> int:
        return order

    async with app:
        done = await ship.enqueue(1)
        await app.run_worker(until_idle=True)
        waiting = await ship.enqueue(2)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, NEXT])
    assert await app.migrate() == [NEXT.name]
    assert await app.migrate() == []
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT DISTINCT colour FROM holdfast_job").fetchall() == [("red",)]
    assert ("index", "job_colour") in schema(path)
    async with app:
        assert (await app.jobs.get(done.id)).result == 1
        await app.run_worker(until_idle=True)
        assert await waiting.result("1s") == 2


async def test_an_open_brings_the_file_up_to_date_by_itself(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E50 E53
    async with app_on(path):
        pass
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, NEXT])
    async with app_on(path):
        pass
    assert ("index", "job_colour") in schema(path)


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    await app_on(path).migrate()
    before = schema(path)
    broken = Migration(
        "core",
        NEWEST + 1,
        "broken",
        "CREATE TABLE half (a INTEGER);\nCREATE TABLE holdfast_lane (a INTEGER);",
    )
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, broken])
    with pytest.raises(
        StoreError, match=r"^the database jobs\.db refused: table holdfast_lane already exists$"
    ):
        await app_on(path).migrate()
    assert schema(path) == before


@pytest.mark.parametrize("enforced", [False, True])
async def test_a_migration_may_remake_a_table_that_others_refer_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, enforced: bool
) -> None:  # E53
    app = app_on(path)

    @app.task
    async def ship(order: int) -> int:
        return order

    async with app:
        waiting = await ship.enqueue(1)
    with closing(connect(str(path))) as file:
        [(table,)] = file.execute("SELECT sql FROM sqlite_master WHERE name = 'holdfast_lane'")
        file.execute(f"PRAGMA foreign_keys = {enforced}")
        remake = f"""
            PRAGMA legacy_alter_table = ON;
            {table.replace("holdfast_lane", "lane_new")};
            INSERT INTO lane_new SELECT * FROM holdfast_lane;
            DROP TABLE holdfast_lane;
            ALTER TABLE lane_new RENAME TO holdfast_lane;
            PRAGMA legacy_alter_table = OFF"""
        again = Migration("core", NEWEST + 1, "remake", remake)
        monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, again])
        assert migrations.migrate(file, str(path)) == [again.name]
        assert file.execute("PRAGMA foreign_key_check").fetchall() == []
    async with app:
        await app.run_worker(until_idle=True)
        assert await waiting.result("1s") == 1


def test_two_migrators_at_once_run_each_migration_once(path: Path) -> None:  # E53
    def run(_: int) -> list[str]:
        connection = connect(str(path))
        try:
            return migrations.migrate(connection, str(path))
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(run, range(8)))
    assert sorted(name for names in ran for name in names) == [one.name for one in migrations.MIGRATIONS]


async def test_a_newer_file_is_refused_in_one_line(path: Path) -> None:  # E53
    await app_on(path).migrate()
    with closing(sqlite3.connect(path)) as file:
        file.execute("INSERT INTO holdfast_migration VALUES ('core', 99, 'the future', 2)")
        file.commit()
    with pytest.raises(SchemaMismatch) as refused:
        await app_on(path).runtime.engine()
    assert str(refused.value) == (
        f"jobs.db has core schema 99, this version of Holdfast knows up to {NEWEST}; upgrade Holdfast"
    )


async def test_tables_and_the_version_of_the_users_own_do_not_stand_in_the_way(path: Path) -> None:  # E43 E53
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 7")
        for table in ("job", "session", "event"):
            file.execute(f"CREATE TABLE {table} (mine TEXT)")
    async with app_on(path) as app:
        assert await app.jobs.counts() == dict.fromkeys(State, 0)


# -- files that cannot be used --------------------------------------------------------------------------------------
def one_clear_line(error: BaseException, tmp_path: Path) -> str:
    text = str(error)
    assert "\n" not in text
    assert str(tmp_path) not in text
    assert len(text) < 200
    return text


async def test_a_file_that_is_no_database_is_named(path: Path) -> None:  # E14
    path.write_bytes(b"%PDF-1.7 this is a document, and a long one at that" * 100)
    for attempt in (app_on(path).runtime.engine, app_on(path).migrate):
        with pytest.raises(StoreError) as refused:
            await attempt()
        assert one_clear_line(refused.value, path.parent) == (
            "jobs.db is not a database or is damaged; restore it or choose another file"
        )
    assert path.read_bytes().startswith(b"%PDF")


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:  # E14
    app = app_on(tmp_path / "nowhere" / "jobs.db")

    @app.task
    async def ship() -> None: ...

    with pytest.raises(StoreError) as refused:
        await ship.enqueue()
    assert one_clear_line(refused.value, tmp_path) == (
        "jobs.db cannot be opened; its folder must exist and be writable"
    )
    with pytest.raises(StoreError, match="its folder must exist"):
        ship.enqueue_sync()
    with pytest.raises(StoreError, match=r"writable \(a path from the root has four slashes"):
        await Holdfast("sqlite:///no/such/folder/jobs.db").runtime.engine()


@pytest.mark.parametrize("url", [3, b"sqlite:///jobs.db", Path("jobs.db")])
def test_a_url_is_a_text(url: Any) -> None:
    with pytest.raises(UsageError, match=r"^url is .*; it is a text, e\.g\. 'sqlite:///holdfast.db'$"):
        Holdfast(url)


async def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:  # E14
    path.mkdir()
    with pytest.raises(StoreError) as refused:
        await app_on(path).runtime.engine()
    one_clear_line(refused.value, path.parent)


AS_A_GUEST = """
import asyncio, os
from holdfast import Holdfast
import holdfast.stores.sqlite, holdfast.stores.sqlite.external_connections  # what is imported later may be out of a guest's reach
app = Holdfast("sqlite:///jobs.db")

@app.task
async def ship(): ...

async def main():
    try:
        await ship.enqueue()
    except Exception as error:
        print(type(error).__name__, error)

if os.getuid() == 0:  # who may write everywhere
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.parametrize("closed", ["file", "folder", "both"])
def test_a_read_only_file_or_folder_is_refused(closed: str) -> None:  # E14
    with TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.db"
        if closed != "folder":
            asyncio.run(app_on(path).migrate())
            path.chmod(0o444)
        Path(folder).chmod(0o777 if closed == "file" else 0o555)
        command = [sys.executable, "-c", AS_A_GUEST]
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30)
        Path(folder).chmod(0o755)
    read_only = "jobs.db or its folder is read-only; let this user write there or choose another file"
    no_file = "jobs.db cannot be opened; its folder must exist and be writable"
    assert told.stdout == f"StoreError {no_file if closed == 'folder' else read_only}\n", told.stderr


async def test_a_file_that_another_process_keeps_locked_is_unavailable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E14
    await app_on(path).migrate()
    monkeypatch.setattr("holdfast.stores.sqlite.connection.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("holdfast.stores.sqlite.writer._LOOKS", 20)
    app = app_on(path)

    @app.task
    async def ship() -> None: ...

    async with app:
        with closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match=r"^jobs\.db is locked by another process"):
                await ship.enqueue()
            other.rollback()
        await ship.enqueue()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://", "sqlite:// needs a file, e.g. sqlite:///holdfast.db; for tests use memory://"),
        ("sqlite:///:memory:", "sqlite:// needs a file, e.g. sqlite:///holdfast.db; for tests use memory://"),
        (
            "mysql://root:secret@db/jobs",
            "'mysql' is not a store; use sqlite:///file.db, postgresql://… or memory://",
        ),
        ("jobs.db", "'jobs.db' is not a store; use sqlite:///file.db, postgresql://… or memory://"),
        ("SQLITE:///jobs.db", "'SQLITE' is not a store; use sqlite:///file.db, postgresql://… or memory://"),
        ("sqlite:///jobs.db?mode=ro", "sqlite:// has no options; drop ?mode=ro from the URL"),
    ],
)
async def test_a_url_that_names_no_store_is_a_usage_error(url: str, words: str) -> None:  # E14
    with pytest.raises(UsageError) as refused:
        await Holdfast(url).runtime.engine()
    assert str(refused.value) == words
