"""Extensions on every store: each hook of the protocol, used by a toy that writes down each move."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast import Every, Fatal, Holdfast, Retention, State, UsageError, extension_set
from holdfast.cli import main, plugins
from holdfast.engine.access import Role
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.errors import Refused, SchemaMismatch
from holdfast.extensions import Check, Extension, Kind, MoveNotice, Transaction
from holdfast.health.judgement import Level
from holdfast.maintenance.schedules import Scheduler
from holdfast.resilience.classify import classify
from holdfast.server.routes import ROUTES
from holdfast.stores.memory import MemoryStore
from holdfast.wiring import SystemClock
from tests.apps import ONCE, Database, new_app, until, work, working
from tests.commands import run_command
from tests.extensions.visits import Visits, as_extension
from tests.server.world import API, new_house

pytestmark = pytest.mark.anyio

Log = pytest.LogCaptureFixture


async def new_visits(url: str, **settings: Any) -> tuple[Holdfast, Visits]:
    """An app with the toy, and its tables."""
    visits = Visits()
    if url == "memory://":
        settings["store"] = MemoryStore(SystemClock())
    app = new_app(url, extensions=[visits], **settings)

    @app.task(retry=ONCE, extra={"weight": 7})
    async def ship(order: int) -> int:
        if order < 0:
            raise Fatal("no such order")
        return order

    await app.migrate()
    return app, visits


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Holdfast]:
    app, _ = await new_visits(store_url)
    async with app:
        yield app
    app.runtime.close_sync()


@pytest.fixture
def visits(app: Holdfast) -> Visits:
    return as_extension(app.extensions["visits"])


def ship_of(app: Holdfast) -> Any:
    return app.tasks["ship"]


# -- moves --------------------------------------------------------------------------------------------------------------
async def test_an_extension_writes_with_every_move(app: Holdfast, visits: Visits) -> None:
    ship = ship_of(app)
    good, bad, late = await ship.enqueue(1), await ship.enqueue(-1), await ship.enqueue(2)
    await app.jobs.cancel(late.id)
    await work(app)
    await app.dead_letters.redrive_one(bad.id)
    await app.jobs.retry(late.id)
    await work(app)
    assert await visits.seen(good.id) == ["complete", "processing", "queued"]
    assert await visits.seen(bad.id) == ["failed", "failed", "processing", "processing", "queued", "redriven"]
    assert await visits.seen(late.id) == ["cancelled", "complete", "manual_retry", "processing", "queued"]


async def test_what_an_extension_refuses_has_not_happened(app: Holdfast, visits: Visits) -> None:
    with pytest.raises(Refused, match="ask the porter") as refused:
        await ship_of(app).options(owner="barred").enqueue(1)
    assert (refused.value.code, refused.value.facts) == ("BARRED", {"porter": "Jo"})
    assert (await app.jobs.counts())[State.QUEUED] == 0
    assert await visits.seen() == []


@pytest.mark.service
@pytest.mark.parametrize("library", ["psycopg", "asyncpg"])
async def test_an_extension_writes_in_the_transaction_of_a_caller_on_postgresql(
    postgres_url: str, library: str
) -> None:
    app, visits = await new_visits(postgres_url)
    ship = ship_of(app)
    async with app:
        if library == "psycopg":
            with psycopg.connect(postgres_url) as connection:
                ship.options(connection=connection).enqueue_sync(1)
                connection.rollback()
                ship.options(connection=connection).enqueue_sync(2)
        else:
            caller = await asyncpg.connect(postgres_url)
            undone = caller.transaction()
            await undone.start()
            await ship.options(connection=caller).enqueue(1)
            await undone.rollback()
            async with caller.transaction():
                await ship.options(connection=caller).enqueue(2)
            await caller.close()
        assert await visits.seen() == ["queued"]


async def test_an_extension_writes_in_the_transaction_of_a_caller_on_sqlite(sqlite_url: str) -> None:
    app, visits = await new_visits(sqlite_url)
    ship = ship_of(app)
    async with app:
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as caller:
            ship.options(connection=caller).enqueue_sync(1)
            caller.rollback()
            ship.options(connection=caller).enqueue_sync(2)
            with pytest.raises(Refused):
                ship.options(connection=caller, owner="barred").enqueue_sync(3)
            caller.commit()
        assert await visits.seen() == ["queued"]
        assert (await app.jobs.counts())[State.QUEUED] == 1


def test_an_extension_is_reached_without_an_event_loop(database_url: str) -> None:
    app, visits = asyncio.run(new_visits(database_url))
    ship_of(app).enqueue_sync(1)
    assert visits.seen_sync() == ["queued"]
    app.runtime.close_sync()


async def test_a_schedule_and_a_redrive_pass_by_what_an_extension_refuses(
    app: Holdfast, visits: Visits, caplog: Log
) -> None:
    ship = ship_of(app)
    app.schedule(ship, Every("1h"), args={"order": 1}, owner="barred", name="a")
    app.schedule(ship, Every("1h"), args={"order": 2}, owner="ann", name="b")
    engine = await app.runtime.engine()
    now = await engine.store.now()
    for name in ("a", "b"):
        await schedule_ticks.move(engine.store, name, before=None, last=now - timedelta(hours=2), due=now)
    await Scheduler(engine, app.runtime.declared.schedules).run()
    assert [row.owner for row in (await app.jobs.list()).rows] == ["ann"]
    assert "schedule.refused" in caplog.text

    for owner in ("ann", "bob"):
        await ship.options(owner=owner).enqueue(-1)
    await work(app)
    visits.barred.add("bob")
    assert await app.dead_letters.redrive() == 1
    assert [letter.owner for letter in await app.dead_letters.list()] == ["bob"]


def test_a_job_that_is_refused_by_an_extension_has_its_code() -> None:
    assert classify(Refused("no more", code="QUOTA_EXCEEDED")).code == "QUOTA_EXCEEDED"
    assert classify(Refused("ask the porter", code="BARRED")).code == "BARRED"


# -- retention ------------------------------------------------------------------------------------------------------------
async def test_an_extension_forgets_a_job_with_its_purge_or_keeps_both(app: Holdfast, visits: Visits) -> None:
    handle = await ship_of(app).enqueue(1)
    await work(app)
    store = (await app.runtime.engine()).store
    visits.forgets = False
    with pytest.raises(Refused):
        await store.purge(None, Retention(jobs=timedelta(0)), 10)
    assert (await app.jobs.get(handle.id)).state is State.COMPLETE
    assert len(await visits.seen(handle.id)) == 3
    visits.forgets = True
    assert await store.purge(None, Retention(jobs=timedelta(0)), 10) == 1
    assert await visits.seen(handle.id) == []


# -- task options -----------------------------------------------------------------------------------------------------------
def declare(app: Holdfast, **options: Any) -> Any:
    async def t() -> None: ...

    return app.task(**options)(t)


def test_a_task_option_is_checked_by_its_extension() -> None:
    app = Holdfast("memory://", extensions=[Visits()])
    assert declare(app, name="a", extra={"weight": 7}).policy.extra == {"weight": 7}
    assert declare(app, name="b").policy.extra == {}
    for extra, message in (
        ({"weight": 101}, "weight is 101; it is a whole number, 0 to 100"),
        ({"wait": 1}, "extra has 'wait', which no extension of the app knows; did you mean weight"),
        ([], "extra is .*; it is a dict"),
    ):
        with pytest.raises(UsageError, match=message):
            declare(app, name="c", extra=extra)
    with pytest.raises(UsageError, match="no task option weight; it is an option of an extension: extra="):
        declare(app, name="d", weight=1)
    with pytest.raises(UsageError, match=r"declare the extension: Holdfast\(extensions="):
        declare(Holdfast("memory://"), extra={"weight": 1})


def test_the_policy_file_sets_a_task_option(tmp_path: Path, caplog: Log) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[queues.default]\nweight = 3\n[tasks.a]\nweight = 4\n")
    app = Holdfast("memory://", extensions=[Visits()], policies=file)
    one, other = declare(app, name="a", extra={"weight": 1}), declare(app, name="b", extra={"weight": 1})
    assert (one.policy.extra, other.policy.extra) == ({"weight": 4}, {"weight": 3})

    # A job must mean the same in every process, and those that only enqueue do not reload the file.
    file.write_text("[tasks.a]\nweight = 5\nmax_attempts = 9\n")
    assert app.runtime.declared.reloader.reload(app.tasks, asked=True)
    assert (one.policy.extra, one.policy.retry.max_attempts) == ({"weight": 4}, 9)
    assert "policy_file.options_deferred" in caplog.text


def test_the_policy_file_is_checked_by_the_extension(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("[tasks.a]\nweight = -1\n")
    app = Holdfast("memory://", extensions=[Visits()], policies=file)
    declare(app, name="a")
    with pytest.raises(UsageError, match=r"holdfast.toml:2: tasks.a.weight: weight is -1; it is a whole"):
        app.runtime.declared.check()
    plain = Holdfast("memory://", policies=file)
    declare(plain, name="a")
    with pytest.raises(UsageError, match="weight: there is no such key here"):
        plain.runtime.declared.check()


# -- maintenance, measures, health ------------------------------------------------------------------------------------------
async def test_an_extension_has_maintenance(app: Holdfast, visits: Visits) -> None:
    async def is_round() -> bool:
        return visits.rounds > 1

    async with working(app):
        await until(is_round)
        [line] = [
            line
            for lines in (await app.runtime.engine()).health_lines
            for line in lines()
            if line.startswith("visits")
        ]
    assert "every 0.05 s" in line


async def test_an_extension_has_measures(app: Holdfast) -> None:
    await ship_of(app).enqueue(1)
    body, _ = await app.metrics.text()
    assert "\nholdfast_visits_seen 1.0\n" in body.decode()


class Broken(Extension):
    name = "broken"

    async def measures(self) -> dict[str, float]:
        raise RuntimeError("no scales")

    async def health(self) -> Sequence[Check]:
        raise RuntimeError("no thermometer")


async def test_a_broken_measure_does_not_hide_the_others(caplog: Log) -> None:
    app = new_app("memory://", extensions=[Broken(), visits := Visits()])
    async with app:
        body, _ = await app.metrics.text()
    assert "holdfast_visits_seen 0.0" in body.decode()
    assert "holdfast_dead_letters" in body.decode()
    assert "extension.failed" in caplog.text
    assert visits.openings == 1


async def test_an_extension_has_health_checks(app: Holdfast) -> None:
    health = await app.health()
    assert (health.checks[-1].name, health.checks[-1].level) == ("visits", Level.WARN)
    assert health.level is Level.WARN


async def test_broken_checks_fail_and_do_not_hide_the_others(caplog: Log) -> None:
    app = new_app("memory://", extensions=[Broken(), Visits()])
    async with app:
        health = await app.health()
    assert [(check.name, check.level) for check in health.checks[-2:]] == [
        ("broken", Level.FAIL),
        ("visits", Level.WARN),
    ]
    assert "thermometer" not in health.checks[-2].text  # callers of the HTTP API see the text
    assert health.checks[0].name == "workers"
    assert "extension.failed" in caplog.text


# -- HTTP -------------------------------------------------------------------------------------------------------------------
async def test_an_extension_has_routes_and_capabilities(app: Holdfast) -> None:
    house = new_house(app)
    async with house.client() as client:
        viewer, owner = await house.as_(Role.VIEWER), await house.as_(Role.OWNER, "alice")
        assert (await client.get(f"{API}/visits", headers=viewer)).json() == {"seen": 0}
        assert (await client.get(f"{API}/visits", headers=owner)).status_code == 403
        assert (await client.get(f"{API}/visits")).status_code == 401
        assert (await client.get(f"{API}/extensions", headers=owner)).json() == {
            "extensions": [{"name": "visits", "capabilities": ["visits", "visits.weight"]}]
        }
        paths = (await client.get(f"{API}/openapi.json", headers=owner)).json()["paths"]
        assert "/api/v1/visits" in paths
        made = house.site.state.context.document
        await client.get(f"{API}/openapi.json", headers=owner)
        assert (
            house.site.state.context.document is made
        )  # made once: it takes 0.2 s, in which no other request is answered
    assert len(house.site.router.routes) == len(ROUTES) + 1


async def test_a_refusal_is_a_conflict_with_its_facts(app: Holdfast) -> None:
    house = new_house(app)
    ship_of(app).adopt(ship_of(app).policy)
    async with house.client() as client:
        operator = await house.as_(Role.OPERATOR)
        body = {"task": "ship", "args": {"order": 1}, "owner": "barred"}
        answer = await client.post(f"{API}/jobs", headers=operator, json=body)
    told = answer.json()
    assert (answer.status_code, told["code"], told["reason"], told["porter"]) == (
        409,
        "CONFLICT",
        "BARRED",
        "Jo",
    )


async def show(request: Request) -> Response:
    return Response()


class Open(Extension):
    name = "open"

    def routes(self) -> Sequence[Any]:
        return [Route("/api/v1/open", show)]


def test_a_route_that_skips_the_checks_of_callers_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the extension open has a route .*holdfast.server.routing.router"):
        new_house(Holdfast("memory://", extensions=[Open()]))


# -- commands -----------------------------------------------------------------------------------------------------------------
def test_an_extension_has_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = EntryPoint("visits", "tests.extensions.visits:command", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    assert main(["visits", "--guest", "Ann"]) == 0
    assert capsys.readouterr().out == "welcome, Ann\n"


# -- databases ----------------------------------------------------------------------------------------------------------------
@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("empty_postgres"))
    return f"sqlite:///{tmp_path}/new.db"


def has_table(url: str) -> bool:
    db = Database(url)
    sql = "SELECT to_regclass('holdfast.visits_seen') IS NOT NULL" if db.is_postgres else (
        "SELECT count(*) FROM sqlite_master WHERE name = 'holdfast_visits_seen'"
    )  # fmt: skip
    return bool(db.execute(sql)[0][0])


async def test_only_an_app_that_declares_an_extension_gets_its_tables(empty_url: str) -> None:
    core = await Holdfast(empty_url).migrate()
    assert core[0] == "core/0001_jobs"
    assert not has_table(empty_url)
    assert await Holdfast(empty_url, extensions=[Visits()]).migrate() == ["visits/0001_visits"]
    assert has_table(empty_url)
    assert await Holdfast(empty_url, extensions=[Visits()]).migrate() == []


@pytest.mark.service
async def test_an_app_whose_extension_has_no_tables_yet_says_which_command_makes_them(
    postgres_url: str,
) -> None:
    with pytest.raises(SchemaMismatch, match=r"visits schema 0, .* needs 1; run `holdfast migrate APP`"):
        async with Holdfast(postgres_url, extensions=[Visits()]):
            pass


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy, as if its package were installed."""
    entry = EntryPoint("visits", "tests.extensions.visits:Visits", extension_set.GROUP)
    monkeypatch.setattr(extension_set, "installed_extensions", lambda: {"visits": entry})


async def test_a_database_loads_the_extension_that_its_app_does_not_declare(
    empty_url: str, installed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    app, _ = await new_visits(empty_url)
    async with app:
        handle = await ship_of(app).enqueue(1)
        await app.jobs.cancel(handle.id)
    async with Holdfast(empty_url) as plain:
        await plain.jobs.retry(handle.id)
        loaded = as_extension(plain.extensions["visits"])
        assert await loaded.seen(handle.id) == ["cancelled", "manual_retry", "queued"]
        assert (loaded.openings, dict(loaded.app.tasks)) == (1, {})


async def test_the_connection_of_a_caller_loads_the_extension_of_its_database_too(
    empty_url: str, installed: None
) -> None:
    app, visits = await new_visits(empty_url)
    plain = new_app(empty_url)  # it never opens the store: the caller's connection is all it uses

    @plain.task
    async def pack(order: int) -> int:
        return order

    with closing(connect_to(empty_url)) as caller:
        with pytest.raises(Refused, match="ask the porter"):
            pack.options(connection=caller, owner="barred").enqueue_sync(1)
        packed = pack.options(connection=caller).enqueue_sync(2)
        caller.commit()
    async with app:
        assert await visits.seen(packed.id) == ["queued"]
        assert (await app.jobs.counts())[State.QUEUED] == 1
    plain.runtime.close_sync()


def connect_to(url: str) -> Any:
    """A connection of a caller, on which a transaction begins by itself."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


async def test_a_database_whose_extension_is_missing_is_refused(
    empty_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await Holdfast(empty_url, extensions=[Visits()]).migrate()
    with pytest.raises(SchemaMismatch, match=r"the extension visits, which is not installed here.*; install"):
        async with Holdfast(empty_url):
            pass
    with pytest.raises(SchemaMismatch, match="the extension visits"):
        await Holdfast(empty_url).migrate()


def test_the_command_line_loads_it_too(
    tmp_path: Path, installed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"

    async def fill() -> str:
        app, _ = await new_visits(url)
        async with app:
            handle = await ship_of(app).enqueue(1)
            await app.jobs.cancel(handle.id)
        return str(handle.id)

    job_id = asyncio.run(fill())
    assert main(["jobs", "retry", job_id, "--url", url]) == 0
    assert main(["doctor", "--url", url, "--json"]) in (0, 1)
    out = capsys.readouterr().out
    found = json.loads(out[out.index("{") :])
    assert [one["text"] for one in found["findings"] if one["check"] == "visits"] == [
        "a guest is in the house; show them out"
    ]
    with closing(sqlite3.connect(f"{tmp_path}/jobs.db")) as file:
        kinds = [kind for (kind,) in file.execute("SELECT kind FROM holdfast_visits_seen ORDER BY kind")]
    assert kinds == ["cancelled", "manual_retry", "queued"]


# -- declaring ------------------------------------------------------------------------------------------------------------------
def test_an_extension_belongs_to_one_app_and_has_a_name() -> None:
    visits = Visits()
    Holdfast("memory://", extensions=[visits])
    with pytest.raises(
        UsageError, match=r"this Visits\(\) belongs to another app already; make one for each"
    ):
        Holdfast("memory://", extensions=[visits])
    with pytest.raises(UsageError, match="there is an extension named 'visits' already"):
        Holdfast("memory://", extensions=[Visits(), Visits()])
    with pytest.raises(UsageError, match="is no extension"):
        Holdfast("memory://", extensions=[Visits])  # type: ignore[list-item]

    class Nameless(Extension):
        name = "No name"

    with pytest.raises(UsageError, match="write a word in small letters"):
        Holdfast("memory://", extensions=[Nameless()])


async def test_extensions_are_called_before_the_hooks_of_the_app() -> None:
    order: list[str] = []

    class First(Extension):
        name = "first"
        kinds = frozenset({Kind.queued})

        async def moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
            order.append("first")

    class Second(First):
        name = "second"

        async def moved(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
            order.append("second")

    app = Holdfast("memory://", extensions=[First(), Second()])

    @app.on("queued")
    async def last(transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        order.append("last")

    task = declare(app)
    async with app:
        await task.enqueue()
    assert order == ["first", "second", "last"]


def test_an_app_searches_no_installed_packages(tmp_path: Path) -> None:
    """The search takes as long as the start of a command."""
    code = (
        "import asyncio, sys\n"
        "from holdfast import Holdfast\n"
        "from tests.extensions.visits import Visits\n"
        "async def run():\n"
        "    async with Holdfast('sqlite:///x.db', extensions=[Visits()]) as app:\n"
        "        assert await app.jobs.count() == 0\n"
        "asyncio.run(run())\n"
        "print('importlib.metadata' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = run_command([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    assert (ran.stdout, ran.stderr) == ("False\n", "")
