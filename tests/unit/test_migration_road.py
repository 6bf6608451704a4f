"""The set of migrations: numbers for each component, the same topics in both stores, and a database that has only some."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from types import ModuleType

import psycopg
import pytest

from holdfast import Holdfast, State
from holdfast.stores.migrations import COMPONENTS, Migration
from holdfast.stores.postgres import migrate as postgres
from holdfast.stores.sqlite import migrate as sqlite

pytestmark = pytest.mark.anyio

SETS = [pytest.param(postgres.MIGRATIONS, id="postgres"), pytest.param(sqlite.MIGRATIONS, id="sqlite")]


@pytest.mark.parametrize("migrations", SETS)
def test_each_component_counts_from_one_without_gaps(migrations: list[Migration]) -> None:  # E53
    numbers = defaultdict(list)
    for one in migrations:
        numbers[one.component].append(one.number)
    assert tuple(numbers) == COMPONENTS
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())


def test_both_stores_have_the_same_topics() -> None:  # E52 E53
    assert [one.name for one in postgres.MIGRATIONS] == [one.name for one in sqlite.MIGRATIONS]


@pytest.mark.parametrize("migrations", SETS)
def test_the_core_does_not_know_credits(migrations: list[Migration]) -> None:
    assert [one.name for one in migrations if one.component == "core" and "credit" in one.text.lower()] == []


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_postgres"))
    return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"


async def test_a_component_that_comes_later_is_migrated_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E53
    app = Holdfast(url, poll="20ms")
    store = store_of(url)
    core = [one for one in store.MIGRATIONS if one.component == "core"]
    with monkeypatch.context() as without_credits:
        without_credits.setattr(store, "MIGRATIONS", core)
        assert await app.migrate() == [one.name for one in core]
    assert await app.migrate() == ["credits/0001_credits"]
    assert await app.migrate() == []
    async with app:
        assert await app.counts() == dict.fromkeys(State, 0)


async def test_a_component_that_is_not_installed_here_does_not_stop_the_others(url: str) -> None:  # E53
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
    assert await app.migrate() == []
    async with app:
        schema = (await (await app.engine()).store.health())["schema"]
    assert schema == f"colors 7, core {len(store_of(url).MIGRATIONS) - 1}, credits 1"


def store_of(url: str) -> ModuleType:
    return sqlite if url.startswith("sqlite") else postgres
