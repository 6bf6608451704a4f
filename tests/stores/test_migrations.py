"""The set of migrations: numbers for each component, the same topics in both stores, and a database that has only some."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.errors import SchemaMismatch
from holdfast.stores.migrations import CORE, Migration, for_sqlite
from holdfast.stores.postgres import migrate as postgres
from holdfast.stores.sqlite import migrate as sqlite

pytestmark = pytest.mark.anyio

SETS = [pytest.param(postgres.MIGRATIONS, id="postgres"), pytest.param(sqlite.MIGRATIONS, id="sqlite")]


@pytest.mark.parametrize("migrations", SETS)
def test_each_component_counts_from_one_without_gaps(migrations: list[Migration]) -> None:  # E53
    numbers = defaultdict(list)
    for one in migrations:
        numbers[one.component].append(one.number)
    assert tuple(numbers) == (CORE,)
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_both_stores_have_the_same_topics() -> None:  # E52 E53
    assert [one.name for one in postgres.MIGRATIONS] == [one.name for one in sqlite.MIGRATIONS]


def test_a_text_for_both_databases_is_translated_for_sqlite() -> None:
    text = """-- Points; of accounts
    CREATE TABLE holdfast.shop_point (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account text NOT NULL, -- text
        data bytea, is_open boolean, weight float8, at timestamptz NOT NULL DEFAULT '-infinity'
    ) WITH (fillfactor = 50);
    CREATE INDEX shop_point_at ON holdfast.shop_point (at) WHERE is_open;
    CREATE TABLE holdfast.shop_account (id text, day int, PRIMARY KEY (id, day));
    """
    point, *others = [" ".join(statement.split()) for statement in for_sqlite(text).split(";")]
    assert point == (
        "CREATE TABLE holdfast_shop_point ( number INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL,"
        " data BLOB, is_open INTEGER, weight REAL, at INTEGER NOT NULL DEFAULT 0 ) STRICT"
    )
    assert others == [
        "CREATE INDEX holdfast_shop_point_at ON holdfast_shop_point (at) WHERE is_open",
        "CREATE TABLE holdfast_shop_account (id TEXT, day INTEGER, PRIMARY KEY (id, day)) STRICT, WITHOUT ROWID",
        "",
    ]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_postgres"))
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"


async def test_a_component_that_is_not_installed_here_stops_the_app(url: str) -> None:  # E53
    """Without the extension that owns it, jobs would move behind its back."""
    app = Holdfast(url, poll="20ms")
    await app.migrate()
    row = "('colors', 7, 'colors/0007_blue', 2)"
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as file:
            file.execute(f"INSERT INTO holdfast_migration VALUES {row}")
        file.close()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(f"INSERT INTO holdfast.migration VALUES {row}".encode())
    with pytest.raises(SchemaMismatch, match="the extension colors, which is not installed here"):
        await app.migrate()
    with pytest.raises(SchemaMismatch, match="install the package with the entry point colors"):
        async with app:
            pass
