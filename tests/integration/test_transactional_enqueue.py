"""Enqueue inside the caller's own transaction: the user's row and the job are there together, or neither is."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row

from holdfast import Holdfast, Job, State, StoreError, StoreUnavailable, UsageError
from holdfast.errors import SchemaMismatch
from holdfast.tasks.task import Task
from tests.apps import Database, kinds, new_app, work, work_and_look
from tests.databases import new_database, new_file
from tests.integration import callers
from tests.integration.callers import ASYNC, NOTE, SYNC

pytestmark = pytest.mark.anyio


def _params(table: dict[str, tuple[str, Any]]) -> list[Any]:
    service = {"postgres": (pytest.mark.service,), "sqlite": ()}
    return [pytest.param(name, id=name, marks=service[store]) for name, (store, _) in table.items()]


class Shop:
    """A user's app with one task, its database, and the library it talks through."""

    def __init__(self, db: Database, open_caller: Any) -> None:
        self.db, self.open = db, open_caller
        self.app = new_app(db.url)
        self.ran: list[int] = []

        @self.app.task
        async def ship(order: int, job: Job) -> int:
            self.ran.append(order)
            return order * 2

        self.ship: Task[Any, Any] = ship


def _shop(request: pytest.FixtureRequest, table: dict[str, tuple[str, Any]]) -> Shop:
    store, open_caller = table[request.param]
    db = Database(request.getfixturevalue(f"{store}_url"))
    db.prepare()
    return Shop(db, open_caller)


@pytest.fixture(params=_params(SYNC))
def shop(request: pytest.FixtureRequest) -> Shop:
    return _shop(request, SYNC)


@pytest.fixture(params=_params(ASYNC))
def async_shop(request: pytest.FixtureRequest) -> Shop:
    return _shop(request, ASYNC)


# -- sync callers ---------------------------------------------------------------------------------------------------
def test_a_committed_transaction_has_the_row_and_exactly_one_job(shop: Shop) -> None:  # E43
    with shop.open(shop.db) as caller:
        caller.execute(NOTE)
        handle = shop.ship.options(connection=caller.connection).enqueue_sync(21)
        caller.commit()
    assert shop.db.notes == ["mine"]
    assert (shop.db.count("job"), shop.db.count("event")) == (1, 1)
    [row] = asyncio.run(work_and_look(shop.app, handle.id))
    assert (row.state, row.result, row.attempt, shop.ran) == (State.COMPLETE, 42, 1, [21])


def test_a_rolled_back_transaction_has_neither_job_nor_event(shop: Shop) -> None:  # E43
    with shop.open(shop.db) as caller:
        caller.execute(NOTE)
        shop.ship.options(connection=caller.connection).enqueue_sync(1)
        shop.ship.options(connection=caller.connection).enqueue_many_sync([2, 3])
        caller.rollback()
    assert shop.db.notes == []
    assert [shop.db.count(table) for table in ("job", "event", "dedupe")] == [0, 0, 0]
    asyncio.run(work_and_look(shop.app))
    assert shop.ran == []


def test_a_job_enqueued_before_the_callers_first_write_is_part_of_the_transaction(shop: Shop) -> None:  # E43
    with shop.open(shop.db) as caller:
        shop.ship.options(connection=caller.connection).enqueue_sync(1)
        caller.rollback()
    assert shop.db.count("job") == 0


def test_nobody_sees_the_job_before_the_commit(shop: Shop) -> None:  # E43
    with shop.open(shop.db) as caller:
        shop.ship.options(connection=caller.connection).enqueue_sync(1)
        assert shop.db.count("job") == 0
        caller.commit()
    assert shop.db.count("job") == 1


def test_keys_delays_and_many_calls_go_through_the_callers_transaction(shop: Shop) -> None:  # E43 E36
    with shop.open(shop.db) as caller:
        connection = caller.connection
        first = shop.ship.options(connection=connection, dedupe_key="order-1").enqueue_sync(1)
        again = shop.ship.options(connection=connection, dedupe_key="order-1").enqueue_sync(1)
        keyed = shop.ship.options(key="ann", tags=["vip"], owner="ann", connection=connection)
        keyed.enqueue_sync(2)
        keyed.enqueue_sync(3)
        shop.ship.options(connection=connection, delay="20ms", priority=3).enqueue_sync(4)
        many = shop.ship.options(connection=connection).enqueue_many_sync([5, {"order": 6}, (7,)])
        caller.commit()
    assert (first.duplicate, again.duplicate, again.id) == (False, True, first.id)
    assert len({handle.id for handle in many}) == 3
    assert shop.db.count("job") == 7
    asyncio.run(work_and_look(shop.app))
    assert sorted(shop.ran) == [1, 2, 3, 4, 5, 6, 7]


def test_the_same_id_twice_is_one_job_also_across_transactions(shop: Shop) -> None:  # E43 E6
    job_id = shop.app.runtime.new_id()
    for _ in range(2):
        with shop.open(shop.db) as caller:
            shop.ship.options(connection=caller.connection, id=job_id).enqueue_sync(1)
            shop.ship.options(connection=caller.connection, id=job_id).enqueue_sync(1)
            caller.commit()
    assert (shop.db.count("job"), shop.db.count("event")) == (1, 1)


def test_a_rolled_back_dedupe_key_is_free_again(shop: Shop) -> None:  # E43 E36
    for end in ("rollback", "commit"):
        with shop.open(shop.db) as caller:
            handle = shop.ship.options(connection=caller.connection, dedupe_key="k").enqueue_sync(1)
            assert not handle.duplicate
            getattr(caller, end)()
    assert shop.db.count("job") == 1


def test_wrong_arguments_are_refused_and_the_transaction_goes_on(shop: Shop) -> None:  # E43 E47
    with shop.open(shop.db) as caller:
        caller.execute(NOTE)
        with pytest.raises(UsageError):
            shop.ship.options(connection=caller.connection).enqueue_sync("not a number")
        shop.ship.options(connection=caller.connection).enqueue_sync(1)
        caller.commit()
    assert (shop.db.notes, shop.db.count("job")) == (["mine"], 1)


def test_a_connection_that_commits_without_the_disk_is_refused(shop: Shop) -> None:  # E43
    weak = "SET synchronous_commit = off" if shop.db.is_postgres else "PRAGMA synchronous = NORMAL"
    with shop.open(shop.db) as caller:
        # SQLite changes the setting only outside of a transaction, and Django is in one already.
        began = not shop.db.is_postgres and shop.open is callers.by_django
        for sql in ("COMMIT", weak, "BEGIN") if began else (weak,):
            caller.execute(sql)
        with pytest.raises(UsageError, match="without waiting for the disk") as refused:
            shop.ship.options(connection=caller.connection).enqueue_sync(1)
        assert "\n" not in str(refused.value)
        caller.execute(NOTE)  # the transaction is as good as before
        caller.commit()
    assert (shop.db.notes, shop.db.count("job")) == (["mine"], 0)


# -- async callers --------------------------------------------------------------------------------------------------
async def test_an_async_commit_has_the_row_and_exactly_one_job(async_shop: Shop) -> None:  # E43
    shop = async_shop
    async with shop.app:
        async with shop.open(shop.db) as caller:
            await caller.execute(NOTE)
            handle = await shop.ship.options(connection=caller.connection).enqueue(21)
            assert shop.db.count("job") == 0
            await caller.commit()
        assert (shop.db.notes, shop.db.count("job"), shop.db.count("event")) == (["mine"], 1, 1)
        await work(shop.app)
        assert await handle.result(timeout="30s") == 42
        assert await kinds(shop.app, handle.id) == ["queued", "processing", "complete"]


async def test_an_async_rollback_has_neither_job_nor_event(async_shop: Shop) -> None:  # E43
    shop = async_shop
    async with shop.app:
        async with shop.open(shop.db) as caller:
            await caller.execute(NOTE)
            await shop.ship.options(connection=caller.connection).enqueue(1)
            await shop.ship.options(connection=caller.connection).enqueue_many([2, 3])
            await caller.rollback()
        assert (shop.db.notes, shop.db.count("job"), shop.db.count("event")) == ([], 0, 0)
        await work(shop.app)
    assert shop.ran == []


async def test_an_async_enqueue_before_the_first_write_is_part_of_it(async_shop: Shop) -> None:  # E43
    async with async_shop.app, async_shop.open(async_shop.db) as caller:
        await async_shop.ship.options(connection=caller.connection).enqueue(1)
        await caller.rollback()
    assert async_shop.db.count("job") == 0


async def test_keys_delays_and_many_calls_go_through_an_async_transaction(
    async_shop: Shop,
) -> None:  # E43 E36
    shop = async_shop
    async with shop.app:
        async with shop.open(shop.db) as caller:
            connection = caller.connection
            first = await shop.ship.options(connection=connection, dedupe_key="order-1").enqueue(1)
            again = await shop.ship.options(connection=connection, dedupe_key="order-1").enqueue(1)
            keyed = shop.ship.options(key="ann", tags=["vip"], owner="ann", connection=connection)
            await keyed.enqueue(2)
            await keyed.enqueue(3)
            await shop.ship.options(connection=connection, delay="20ms", priority=3).enqueue(4)
            await shop.ship.options(connection=connection).enqueue_many([5, {"order": 6}, (7,)])
            await caller.commit()
        assert (again.duplicate, again.id, shop.db.count("job")) == (True, first.id, 7)
        await work(shop.app)
    assert sorted(shop.ran) == [1, 2, 3, 4, 5, 6, 7]


async def test_a_weaker_async_connection_is_refused(async_shop: Shop) -> None:  # E43
    shop = async_shop
    weak = "SET synchronous_commit = off" if shop.db.is_postgres else "PRAGMA synchronous = NORMAL"
    async with shop.app, shop.open(shop.db) as caller:
        await caller.execute(weak)
        with pytest.raises(UsageError, match="without waiting for the disk"):
            await shop.ship.options(connection=caller.connection).enqueue(1)
        await caller.execute(NOTE)
        await caller.commit()
    assert (shop.db.notes, shop.db.count("job")) == (["mine"], 0)


# -- the wrong connection -------------------------------------------------------------------------------------------
def order_task(app: Holdfast) -> Task[Any, Any]:
    @app.task
    async def ship(order: int) -> None: ...

    return ship


@pytest.mark.parametrize("thing", [object(), "a string", 7])
def test_something_that_is_no_connection_is_refused_in_one_line(
    db: Database, app: Holdfast, thing: object
) -> None:  # E43
    with pytest.raises(UsageError, match="cannot enqueue on a builtins") as refused:
        order_task(app).options(connection=thing).enqueue_sync(1)
    assert "\n" not in str(refused.value)
    assert db.count("job") == 0


def test_a_connection_of_the_other_kind_of_database_is_refused(
    db: Database, app: Holdfast, tmp_path: Path
) -> None:  # E43
    ship = order_task(app)
    if db.is_postgres:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            with pytest.raises(UsageError, match="the database is PostgreSQL"):
                ship.options(connection=connection).enqueue_sync(1)
        with sqlalchemy.create_engine("sqlite://").connect() as alchemy:
            with pytest.raises(UsageError, match="the database is PostgreSQL"):
                ship.options(connection=alchemy).enqueue_sync(1)
            alchemy.engine.dispose()
    else:
        with pytest.raises(UsageError, match="the database is SQLite"):
            ship.options(connection=psycopg.Connection).enqueue_sync(1)


def test_a_connection_to_another_file_is_refused_by_name(tmp_path: Path) -> None:  # E43
    here, there = (Database(new_file(tmp_path / f"{name}.db")) for name in ("here", "there"))
    here.prepare()
    there.prepare()
    ship = order_task(new_app(here.url))
    with closing(sqlite3.connect(there.path)) as connection:
        with pytest.raises(UsageError) as refused:
            ship.options(connection=connection).enqueue_sync(1)
    assert (
        str(refused.value) == "the connection is to there.db, the jobs are in here.db; pass one to that file"
    )
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(UsageError, match="the connection is to memory"):
            ship.options(connection=connection).enqueue_sync(1)
    assert (here.count("job"), there.count("job")) == (0, 0)


def test_a_connection_to_another_database_is_refused_by_name(postgres_url: str, postgres: Any) -> None:  # E43
    ship = order_task(new_app(postgres_url))
    with new_database(postgres) as url, closing(psycopg.connect(url)) as connection:
        name = connection.info.dbname
        with pytest.raises(UsageError, match=f"the connection is to the database {name}"):
            ship.options(connection=connection).enqueue_sync(1)
        connection.execute("SELECT 1")  # still usable
        assert (Database(postgres_url).count("job"), Database(url).count("job")) == (0, 0)


def test_a_database_without_our_schema_is_refused_and_the_transaction_lives(
    tmp_path: Path, empty_postgres: str
) -> None:  # E43 E53
    for db, open_caller in (
        (Database(f"sqlite:///{tmp_path / 'fresh.db'}"), callers.by_sqlite3),
        (Database(empty_postgres), callers.by_psycopg),
    ):
        db.execute("CREATE TABLE note (text text NOT NULL)")
        with open_caller(db) as caller:
            caller.execute(NOTE)
            with pytest.raises(SchemaMismatch, match="no Holdfast schema; run `holdfast migrate`"):
                order_task(new_app(db.url)).options(connection=caller.connection).enqueue_sync(1)
            caller.commit()
        assert db.notes == ["mine"]


def test_a_connection_without_a_transaction_is_refused(db: Database, app: Holdfast) -> None:  # E43
    ship = order_task(app)
    if db.is_postgres:
        with closing(psycopg.connect(db.url, autocommit=True)) as connection:
            with pytest.raises(UsageError, match="no transaction is open"):
                ship.options(connection=connection).enqueue_sync(1)
            with connection.transaction():
                ship.options(connection=connection).enqueue_sync(1)
    else:
        with closing(sqlite3.connect(db.path, isolation_level=None)) as file:
            with pytest.raises(UsageError, match="no transaction is open"):
                ship.options(connection=file).enqueue_sync(1)
            file.execute("BEGIN")
            ship.options(connection=file).enqueue_sync(1)
            file.execute("COMMIT")
    assert db.count("job") == 1


async def test_asyncpg_without_a_transaction_is_refused(postgres_url: str) -> None:  # E43
    app = new_app(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    async with app:
        with pytest.raises(UsageError, match=r"no transaction is open.*connection\.transaction\(\)"):
            await order_task(app).options(connection=connection).enqueue(1)
        with pytest.raises(UsageError, match="is async: use `await"):
            order_task(new_app(postgres_url)).options(connection=connection).enqueue_sync(1)
    await connection.close()


def test_an_autocommit_engine_of_sqlalchemy_is_refused(db: Database, app: Holdfast) -> None:  # E43
    url = callers.alchemy_url(db, "psycopg" if db.is_postgres else "pysqlite")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        with pytest.raises(UsageError, match="no transaction is open"):
            order_task(app).options(connection=connection).enqueue_sync(1)
    engine.dispose()
    assert db.count("job") == 0


def test_rows_as_dicts_and_a_connection_class_of_ones_own_are_served(
    db: Database, app: Holdfast
) -> None:  # E43
    ship = order_task(app)
    if db.is_postgres:

        class MyConnection(psycopg.Connection[Any]): ...

        with closing(MyConnection.connect(db.url, row_factory=dict_row)) as connection:
            ship.options(connection=connection, dedupe_key="k").enqueue_sync(1)
            assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
            connection.commit()
    else:

        class MyFile(sqlite3.Connection): ...

        with closing(sqlite3.connect(db.path, factory=MyFile)) as file:
            file.row_factory = lambda cursor, row: {"only": row[0]}
            file.text_factory = bytes
            ship.options(connection=file, dedupe_key="k").enqueue_sync(1)
            assert file.execute("SELECT 'x'").fetchone() == {"only": b"x"}
            file.commit()
    assert db.count("job") == 1


# -- what fails because of us ---------------------------------------------------------------------------------------
def test_a_failed_enqueue_leaves_nothing_behind_in_a_transaction_that_goes_on(
    sqlite_url: str,
) -> None:  # E43
    """On SQLite a hook that raises is our failure: the caller may catch it and commit, and no half job may be there."""
    db = Database(sqlite_url)
    db.prepare()
    app = new_app(db.url)

    @app.on("queued")
    async def refuse(transaction: Any, moves: Any) -> None:
        raise RuntimeError("not today")

    with callers.by_sqlite3(db) as caller:
        caller.execute(NOTE)
        with pytest.raises(RuntimeError, match="not today"):
            order_task(app).options(connection=caller.connection).enqueue_sync(1)
        caller.commit()
    assert (db.notes, db.count("job"), db.count("event")) == (["mine"], 0, 0)


def test_a_locked_file_says_so_and_the_transaction_can_be_tried_again(sqlite_url: str) -> None:  # E43
    db = Database(sqlite_url)
    db.prepare()
    ship = order_task(new_app(db.url))
    with closing(sqlite3.connect(db.path)) as other, closing(sqlite3.connect(db.path, timeout=0)) as file:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"jobs\.db is locked by another"):
            ship.options(connection=file).enqueue_sync(1)
        other.rollback()
        ship.options(connection=file).enqueue_sync(1)
        file.commit()
    assert db.count("job") == 1


def test_a_refusal_by_postgresql_says_that_the_transaction_is_undone(postgres_url: str) -> None:  # E43
    db = Database(postgres_url)
    db.prepare()
    ship = order_task(new_app(db.url))
    with callers.by_psycopg(db) as caller, callers.by_psycopg(db) as other:
        other.execute("LOCK TABLE holdfast.job")
        caller.execute(NOTE)
        caller.execute("SET LOCAL lock_timeout = '10ms'")
        with pytest.raises(StoreUnavailable, match="your transaction is undone; roll it back") as refused:
            ship.options(connection=caller.connection).enqueue_sync(1)
        assert "\n" not in str(refused.value)
        with pytest.raises(StoreError, match="cannot be enqueued in this transaction"):
            ship.options(connection=caller.connection).enqueue_sync(1)
        caller.rollback()
        other.rollback()
        ship.options(connection=caller.connection).enqueue_sync(1)
        caller.commit()
    assert (db.notes, db.count("job")) == ([], 1)


async def test_an_open_transaction_of_a_caller_holds_nobody_up(postgres_url: str) -> None:  # E43
    """While one caller has enqueued and thinks, others enqueue and workers work, in the same lane and with the same key."""
    db = Database(postgres_url)
    app, ran = new_app(db.url), list[int]()

    @app.task
    async def ship(order: int) -> None:
        ran.append(order)

    async with app:
        await ship.options(key="ann").enqueue(0)
        await work(app)
        async with callers.by_async_psycopg(db) as caller:
            await ship.options(connection=caller.connection, key="ann").enqueue(1)
            async with asyncio.timeout(20):
                await ship.options(key="ann").enqueue_many([2, 3])
                await work(app)
            assert ran == [0, 2, 3]
            await caller.commit()
        await work(app)
    assert ran == [0, 2, 3, 1]


def test_the_memory_store_has_no_transactions_to_join() -> None:  # E43
    with pytest.raises(UsageError, match="cannot enqueue inside your transaction"):
        order_task(new_app("memory://")).options(connection=object()).enqueue_sync(1)
