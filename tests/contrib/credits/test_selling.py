"""Selling jobs, as an app does it: callers beside each other, in transactions of their own, from the command line."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import Conflict, Every, Fatal, Holdfast, Retry, Task, UsageError
from holdfast.contrib.credits import Credits, InsufficientCredits
from holdfast.engine.ports import Store
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Lane, Settlement
from holdfast.jobs.moves import FINISHED, State
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.maintenance.schedules import Scheduler
from holdfast.testing import app_in_memory, drain
from tests.apps import Database, new_app, work
from tests.contrib.credits.conftest import new_shop

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
MINUTE = timedelta(minutes=1)
#: What each of six people does at random. More of it: HOLDFAST_CHAOS_STEPS=10000.
STEPS = int(os.environ.get("HOLDFAST_CHAOS_STEPS", "120"))


def sell(app: Holdfast, price: int = 1) -> Task[[int], Coroutine[Any, Any, int]]:
    @app.task(extra={"price": price}, retry=Retry(3, base="1ms", jitter="none"))
    async def shoot(number: int) -> int:
        if number < 0:
            raise Fatal("no such page", code="NO_PAGE")
        return number

    return shoot


async def stands(app: Holdfast, account: str = "ann") -> tuple[int, int, int]:
    assert await Credits.of(app).check() == []
    found = await Credits.of(app).account(account)
    return found.available, found.reserved, found.spent


# -- with real workers ----------------------------------------------------------------------------------------------------
async def test_a_worker_captures_what_succeeds_and_returns_what_fails(
    db: Database, app: Holdfast
) -> None:  # S3
    shoot = sell(app, price=2)
    async with app:
        await Credits.of(app).grant("ann", 10)
        good = await shoot.options(owner="ann").enqueue(1)
        bad = await shoot.options(owner="ann").enqueue(-1)
        assert await stands(app) == (6, 4, 0)
        await work(app)
        assert await stands(app) == (8, 0, 2)
        assert await app.jobs.retry(bad.id) == 1
        assert await stands(app) == (6, 2, 2)
        await work(app)
        assert await stands(app) == (8, 0, 2)
        reasons = [e.reason for e in await Credits.of(app).ledger(job_id=good.id) if e.amount > 0]
        assert reasons == ["capture", "reserve"]


def test_code_without_an_event_loop_has_every_verb(db: Database, app: Holdfast) -> None:
    shoot = sell(app)
    Credits.of(app).sync.grant("ann", 1)
    shoot.options(owner="ann").enqueue_sync(1)
    with pytest.raises(InsufficientCredits):
        shoot.options(owner="ann").enqueue_sync(2)
    assert Credits.of(app).sync.account("ann").reserved == 1
    with pytest.raises(AttributeError):
        _ = Credits.of(app).sync.hook


async def test_the_testing_kit_sells_too() -> None:  # E48
    app = Holdfast("sqlite:///nowhere.db", extensions=[Credits()])
    shoot = sell(app)
    with app_in_memory(app):
        await Credits.of(app).grant("ann", 1)
        await shoot.options(owner="ann").enqueue(1)
        with pytest.raises(InsufficientCredits):
            await shoot.options(owner="ann").enqueue(2)
        await drain(app)
        assert await stands(app) == (0, 0, 1)


def test_a_price_is_a_whole_number_of_credits() -> None:
    prices: list[Any] = [-1, 0.5, "1"]
    for price in prices:
        with pytest.raises(UsageError, match="price is"):
            sell(new_shop("memory://"), price=price)


async def test_a_price_of_the_policy_file_is_paid(db: Database, tmp_path: Path) -> None:  # E10 S3
    file = tmp_path / "holdfast.toml"
    file.write_text("[queues.default]\nprice = 7\n[tasks.shoot]\nprice = 3")
    app = new_shop(db.url, policies=file)
    shoot = sell(app, price=0)
    async with app:
        await Credits.of(app).grant("ann", 5)
        handle = await shoot.options(owner="ann").enqueue(1)
        assert await stands(app) == (2, 3, 0)
        async with new_app(db.url) as desk:  # and by those who read no file
            await desk.jobs.cancel(handle.id)
            await desk.jobs.retry(handle.id)
            assert await stands(desk) == (2, 3, 0)
        await work(app)
        assert await stands(app) == (2, 0, 3)


async def test_a_running_process_keeps_its_prices(tmp_path: Path) -> None:  # E10 S3
    file = tmp_path / "holdfast.toml"
    file.write_text("[tasks.shoot]\nprice = 2")
    app = new_shop("memory://", policies=file)
    shoot = sell(app)
    assert shoot.policy.extra == {"price": 2}
    file.write_text("[tasks.shoot]\nprice = 3\nmax_attempts = 9")
    assert app.runtime.declared.reloader.reload(app.tasks, asked=True)
    assert (shoot.policy.extra, shoot.policy.retry.max_attempts) == ({"price": 2}, 9)
    assert sell(new_shop("memory://", policies=file)).policy.extra == {"price": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tasks.t]\nprice = 0.5", "tasks.t.price: price is 0.5; it is a whole number, 0 to 1000000000000"),
        ("[queues.q]\nprice = -1", "queues.q.price: price is -1; it is a whole number"),
        ("[tasks.t]\nprice = false", "tasks.t.price: price is False; it is a whole number"),
    ],
)
def test_a_wrong_price_of_the_policy_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(text)
    app = new_shop("memory://", policies=file)
    sell(app)
    with pytest.raises(UsageError, match=re.escape(f"holdfast.toml:2: {message}")):
        app.runtime.declared.check()


async def test_a_policy_file_makes_a_task_free(tmp_path: Path) -> None:  # E10
    (tmp_path / "holdfast.toml").write_text("[tasks.shoot]\nprice = 0")
    app = new_shop("memory://", policies=tmp_path / "holdfast.toml")
    shoot = sell(app, price=2)
    async with app:
        await shoot.enqueue(1)
        assert await Credits.of(app).ledger() == []


# -- beside each other ----------------------------------------------------------------------------------------------------
async def test_a_caller_without_credits_does_not_fail_those_beside_it(
    db: Database, app: Holdfast
) -> None:  # E46 S3
    shoot = sell(app)
    async with app:
        for name in ("ann", "bob"):
            await Credits.of(app).grant(name, 100)
        owners = ["ann", "bob", "poor"] * 30
        calls = [shoot.options(owner=owner).enqueue(number) for number, owner in enumerate(owners)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for owner, answer in zip(owners, answers, strict=True):
            assert isinstance(answer, InsufficientCredits) == (owner == "poor"), answer
            if isinstance(
                answer, InsufficientCredits
            ):  # each is told of its own price, not of its neighbours'
                assert (answer.required, answer.available, answer.account) == (1, 0, "poor")
        assert (await app.jobs.counts())["queued"] == 60
        assert [await stands(app, name) for name in ("ann", "bob")] == [(70, 30, 0)] * 2


async def test_of_two_callers_of_the_last_credit_one_gets_it(db: Database) -> None:  # S3
    async with AsyncExitStack() as stack:
        apps = [new_shop(db.url) for _ in range(2)]
        shoots = [sell(app) for app in apps]
        for app in apps:
            await stack.enter_async_context(app)
        for number in range(15):
            await Credits.of(apps[0]).grant("ann", 1)
            calls = [shoot.options(owner="ann").enqueue(number) for shoot in shoots]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert sorted(type(answer).__name__ for answer in answers) == ["Handle", "InsufficientCredits"]
        assert await stands(apps[0]) == (0, 15, 0)


# -- in the caller's transaction --------------------------------------------------------------------------------------------
def connect(db: Database) -> Any:
    return psycopg.connect(db.url) if db.is_postgres else sqlite3.connect(db.path)


def test_a_caller_that_goes_on_after_a_refusal_commits_no_job(db: Database, app: Holdfast) -> None:  # E43 S3
    shoot = sell(app)
    Credits.of(app).sync.grant("ann", 1)
    with closing(connect(db)) as connection:
        shoot.options(owner="ann", connection=connection).enqueue_sync(1)
        with pytest.raises(InsufficientCredits):
            shoot.options(owner="ann", connection=connection).enqueue_sync(2)
        connection.execute("INSERT INTO note VALUES ('went on')")
        connection.commit()
    assert (db.notes, db.count("job"), db.count("credit_hold")) == (["went on"], 1, 1)
    assert Credits.of(app).sync.check() == []


def test_a_caller_that_rolls_back_has_paid_nothing(db: Database, app: Holdfast) -> None:  # E43 S3
    shoot = sell(app)
    Credits.of(app).sync.grant("ann", 1)
    with closing(connect(db)) as connection:
        shoot.options(owner="ann", connection=connection).enqueue_sync(1)
        connection.rollback()
    assert (db.count("job"), db.count("credit_hold")) == (0, 0)
    assert Credits.of(app).sync.account("ann").available == 1


async def test_an_async_caller_that_goes_on_after_a_refusal_commits_no_job(
    db: Database, app: Holdfast
) -> None:  # E43 S3
    shoot = sell(app)
    async with app:
        await Credits.of(app).grant("ann", 1)

        async def enqueue_two(connection: Any) -> None:
            await shoot.options(owner="ann", connection=connection).enqueue(1)
            with pytest.raises(InsufficientCredits):
                await shoot.options(owner="ann", connection=connection).enqueue(2)

        if db.is_postgres:
            connection = await asyncpg.connect(db.url)
            async with connection.transaction():
                await enqueue_two(connection)
            await connection.close()
        else:
            with closing(sqlite3.connect(db.path)) as file, file:
                await enqueue_two(file)
        assert await stands(app) == (0, 1, 0)
        assert (await app.jobs.counts())["queued"] == 1


# -- processes that do not have the task --------------------------------------------------------------------------------------
async def test_a_retry_from_a_process_without_the_task_costs_the_same(
    db: Database, app: Holdfast
) -> None:  # S3
    shoot = sell(app, price=2)
    async with app:
        await Credits.of(app).grant("ann", 3)
        handle = await shoot.options(owner="ann").enqueue(1)
        async with new_app(db.url) as desk:  # as the command line opens it
            await desk.jobs.cancel(handle.id)
            assert await stands(desk) == (3, 0, 0)
            await desk.jobs.retry(handle.id)
            assert await stands(desk) == (1, 2, 0)
            await desk.jobs.cancel(handle.id)
            await Credits.of(desk).adjust("ann", -2, reason="test")
            with pytest.raises(InsufficientCredits):
                await desk.jobs.retry(handle.id)
        assert await stands(app) == (1, 0, 0)


async def test_an_app_without_credits_has_neither_hooks_nor_tables(database_url: str) -> None:
    app, db = new_app(database_url), Database(database_url)

    @app.task
    async def free() -> None: ...

    async with app:
        await free.enqueue()
        assert (await app.runtime.engine()).store.hooks == []
        with pytest.raises(UsageError, match=r"have no credits; declare it: Holdfast\(extensions=\[Credits"):
            Credits.of(app)
    with pytest.raises((psycopg.errors.UndefinedTable, sqlite3.OperationalError)):
        db.count("credit_account")


async def test_what_becomes_free_is_free_everywhere(db: Database) -> None:
    before, after = new_shop(db.url), new_shop(db.url)
    sell(before, price=1)
    shoot = sell(after, price=0)
    async with before:
        assert await Credits.of(before).accounts() == []
    async with after, new_app(db.url) as desk:
        handle = await shoot.enqueue(1)
        await desk.jobs.cancel(handle.id)
        await desk.jobs.retry(handle.id)
        assert await Credits.of(desk).ledger() == []


async def test_what_was_reserved_before_it_became_free_is_settled_all_the_same(db: Database) -> None:  # S3
    before, after = new_shop(db.url), new_shop(db.url)
    shoot = sell(before, price=2)
    sell(after, price=0)
    async with before:
        await Credits.of(before).grant("ann", 10)
        for number in (1, -1):
            await shoot.options(owner="ann").enqueue(number)
        assert await stands(before) == (6, 4, 0)
    async with after:
        await work(after)
        assert await stands(after) == (8, 0, 2)


async def test_the_duty_settles_what_others_left_and_lets_grants_expire(db: Database, app: Holdfast) -> None:
    shoot = sell(app)
    async with app:
        await Credits.of(app).grant("ann", 2)
        await Credits.of(app).grant("bob", 2, expires="1ms")
        store = (await app.runtime.engine()).store
        handle = await shoot.options(owner="ann").enqueue(1)
        hooks, store.hooks = store.hooks, []
        await app.jobs.cancel(handle.id)
        store.hooks = hooks
        await work(app)  # its duties come by once
        await Credits.of(app).run_maintenance()
        assert await stands(app) == (2, 0, 0)
        assert [e.bucket for e in await Credits.of(app).ledger("bob") if e.reason == "expire"] == [
            "expired",
            "available",
        ]


async def test_a_tick_that_nobody_pays_for_passes_and_the_others_go_on(
    db: Database, app: Holdfast
) -> None:  # E39
    shoot = sell(app)
    app.schedule(shoot, Every("1h"), args={"number": 1}, owner="poor", name="a")
    app.schedule(shoot, Every("1h"), args={"number": 2}, owner="ann", name="b")
    async with app:
        await Credits.of(app).grant("ann", 10)
        engine = await app.runtime.engine()
        now = await engine.store.now()
        for name in ("a", "b"):
            await schedule_ticks.move(engine.store, name, before=None, last=now - timedelta(hours=2), due=now)
        await Scheduler(engine, app.runtime.declared.schedules).run()
        found = await app.jobs.list()
        assert [(row.owner, row.payload) for row in found.rows] == [("ann", {"number": 2})]
        assert {tick.name for tick in await schedule_ticks.every(engine.store) if tick.due > now} == {
            "a",
            "b",
        }


async def test_a_redrive_passes_by_what_nobody_pays_for(db: Database, app: Holdfast) -> None:  # E32
    shoot = sell(app)
    async with app:
        for name in ("ann", "bob"):
            await Credits.of(app).grant(name, 1)
            await shoot.options(owner=name).enqueue(-1)
        await work(app)
        await Credits.of(app).adjust("bob", -1, reason="gone")
        assert await app.dead_letters.redrive() == 1
        assert [letter.owner for letter in await app.dead_letters.list()] == ["bob"]
        assert await stands(app, "ann") == (0, 1, 0)


# -- at random ----------------------------------------------------------------------------------------------------------------
class Chaos:
    """People, workers and duties that do what they like with the same jobs, on stores of their own."""

    def __init__(self, apps: list[Holdfast], chance: random.Random) -> None:
        self.apps, self.chance = apps, chance
        self.shoots = [app.tasks["shoot"] for app in apps]
        self.jobs: list[str] = []
        self.accepted = self.refused = 0  #: retries and redrives; whatever nobody paid for
        self.tell: Callable[[], None] = lambda: None

    async def run(self, steps: int) -> None:
        doings: list[tuple[Callable[[int], Awaitable[None]], int]] = [
            (self.enqueue, 3), (self.retry, 6), (self.cancel, 2), (self.work, 6), (self.lose, 1), (self.redrive, 1),
        ]  # fmt: skip
        names, weights = zip(*doings, strict=True)
        for _ in range(steps):
            [doing] = self.chance.choices(names, weights)
            try:
                await doing(self.chance.randrange(len(self.apps)))
                self.tell()
            except Conflict:
                continue
            except InsufficientCredits:
                self.refused += 1

    async def enqueue(self, at: int) -> None:
        options = self.shoots[at].options(owner=self.chance.choice(["ann", "bob"]), max_attempts=2)
        self.jobs.append((await options.enqueue(1)).id)

    def some(self) -> str:
        return self.chance.choice(self.jobs[-12:]) if self.jobs else "00000000-0000-7000-8000-000000000000"

    async def retry(self, at: int) -> None:
        if self.jobs:
            await self.apps[at].jobs.retry(self.some(), by="ann")
            self.accepted += 1

    async def redrive(self, at: int) -> None:
        if self.jobs:
            self.accepted += await self.apps[at].dead_letters.redrive(ids=self.some())

    async def cancel(self, at: int) -> None:
        if self.jobs:
            await self.apps[at].jobs.cancel(self.some())

    async def work(self, at: int, *, lost: bool = False) -> None:
        store: Store = (await self.apps[at].runtime.engine()).store
        session = await store.open_session("chaos", MINUTE)
        await store.promote(100)
        claimed = await store.claim(
            session, [Lane("default", "shoot"), Lane("default", "shoot", fair=True)], 3
        )
        failure = Failure.of("UNKNOWN")
        verdicts: list[Verdict] = [Complete("1"), Bury(failure), RetryAfter(timedelta(), failure), Release()]
        verdicts.append(RetryAfter(MINUTE, failure))
        settlements = []
        for one in claimed:
            verdict = self.chance.choice(verdicts)
            if isinstance(verdict, RetryAfter) and one.attempt >= one.max_attempts:
                verdict = Bury(failure)
            settlements.append(Settlement(one.lease, verdict, one.attempt))
        if not lost:
            await store.settle(settlements)
            if self.chance.random() < 0.3:  # its answer was lost
                await store.settle(settlements)
        await store.close_session(session)

    async def lose(self, at: int) -> None:
        """A worker dies with what it holds; somebody takes it back."""
        await self.work(at, lost=True)
        await (await self.apps[at].runtime.engine()).recovery.reclaim()


async def audit(app: Holdfast, granted: int) -> int:
    """Every generation of every job was reserved once, and settled as it ended; how many generations there were."""
    assert await Credits.of(app).check() == []
    entries, after = [], None
    while page := await Credits.of(app).ledger(before=after, limit=1000):
        entries += page
        after = page[-1].number
    assert sum(entry.amount for entry in entries) == 0
    reasons = Counter((e.job_id, e.generation, e.reason) for e in entries if e.bucket == "reserved")
    assert set(reasons.values()) == {1}
    rows, cursor = [], None
    while True:
        found = await app.jobs.list(after=cursor, limit=1000)
        rows += found.rows
        cursor = found.next
        if cursor is None:
            break
    of_generation: dict[tuple[str | None, int | None], set[str]] = defaultdict(set)
    for job, number, reason in reasons:
        of_generation[job, number].add(reason)
    for row in rows:
        for generation in range(1, row.generation + 1):
            told = of_generation[row.id, generation]
            ended = generation < row.generation or row.state in FINISHED
            paid = generation == row.generation and row.state is State.COMPLETE
            assert told == {"reserve"} | ({"capture" if paid else "return"} if ended else set()), row
    spent = sum(1 for row in rows if row.state is State.COMPLETE)
    live = sum(1 for row in rows if row.state not in FINISHED)
    accounts = [await Credits.of(app).account(name) for name in ("ann", "bob")]
    assert sum(account.spent for account in accounts) == spent
    assert sum(account.reserved for account in accounts) == live
    assert sum(account.available for account in accounts) == granted - spent - live
    generations = sum(row.generation for row in rows)
    assert generations == sum(1 for *_, reason in reasons if reason == "reserve")
    return generations


@pytest.mark.slow
async def test_the_ledger_balances_to_the_last_credit_whoever_does_what(db: Database) -> None:  # E33 S3
    async with AsyncExitStack() as stack:
        apps = [new_shop(db.url) for _ in range(2)]
        for app in apps:
            sell(app)
            await stack.enter_async_context(app)
        for name in ("ann", "bob"):
            await Credits.of(apps[0]).grant(name, STEPS // 6)  # not enough for all of it
        people = [Chaos(apps, random.Random(seed)) for seed in range(6)]
        shared: list[str] = []
        for one in people:
            one.jobs = shared  # they all reach for the same jobs
        async with asyncio.timeout(30 + STEPS):
            await asyncio.gather(*(one.run(STEPS) for one in people))
        generations = await audit(apps[1], STEPS // 6 * 2)
        accepted = sum(one.accepted for one in people)
        print(f"{len(shared)} jobs, {accepted} retries accepted, {generations} generations paid for")
        assert generations > STEPS / 4
        assert sum(one.refused for one in people) > 0
        assert accepted >= generations - len(shared) > 0  # a retry of a waiting job begins none


KILLED = """
import asyncio, random, sys
sys.path.insert(0, {root!r})
from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from tests.contrib.credits.test_selling import Chaos, sell

async def run():
    app = Holdfast({url!r}, extensions=[Credits()])
    sell(app)
    async with app:
        await Credits.of(app).grant("ann", 500, id="ann")
        await Credits.of(app).grant("bob", 500, id="bob")
        people = [Chaos([app], random.Random({seed} + n)) for n in range(4)]
        for one in people:
            one.tell = lambda: print("did one", flush=True)
        await asyncio.gather(*(one.run(100_000) for one in people))

asyncio.run(run())
"""


@pytest.mark.slow
def test_the_ledger_balances_after_kills_in_the_middle(db: Database, app: Holdfast) -> None:  # E5 S3
    """SIGKILL while a process enqueues, retries and settles as fast as it can; nothing is half done."""
    chance = random.Random(7)
    for seed in range(3):
        code = KILLED.format(root=str(ROOT), url=db.url, seed=seed * 10)
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert child.stdout is not None
        for _ in range(100 + chance.randrange(50)):
            assert child.stdout.readline() == b"did one\n"
        child.send_signal(signal.SIGKILL)  # three others are in the middle of something
        child.wait()
        child.stdout.close()

    async def look() -> int:
        async with app:
            return await audit(app, 1000)

    assert asyncio.run(look()) > 30


async def test_only_errors_of_ours_reach_a_caller(db: Database, app: Holdfast) -> None:
    """Names and amounts that somebody made up are refused in one line, before anything is written."""
    async with app:
        for account, amount in (
            ("", 1),
            ("x" * 300, 1),
            ("a\nb", 1),
            ("ann", 0),
            ("ann", -1),
            ("ann", 10**13),
            ("ann", True),
        ):
            with pytest.raises(HoldfastError) as refused:
                await Credits.of(app).grant(account, amount)
            assert "\n" not in str(refused.value)
        with pytest.raises(UsageError):
            await Credits.of(app).ledger(limit=0)
        hostile = "ann'); DROP TABLE credit_entry; --"
        await Credits.of(app).grant(hostile, 1, note="<script>", by="'\"")
        assert (await Credits.of(app).account(hostile)).available == 1
        assert [account.id for account in await Credits.of(app).accounts()] == [hostile]
