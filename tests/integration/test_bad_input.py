"""Bad input: refused at enqueue with nothing stored, or a dead letter that says why; the others and the worker go on."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Fatal, Holdfast, PayloadError, Retryable, Snooze, State, UsageError
from holdfast.tasks.task import Task
from tests.apps import ONCE, SOON, Database, kinds, new_app, work
from tests.integration import handlers

pytestmark = pytest.mark.anyio


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def echo_task(app: Holdfast, **options: Any) -> Task[Any, Any]:
    @app.task(**options)
    async def echo(value: Any = None) -> Any:
        return value

    return echo


# -- at enqueue -----------------------------------------------------------------------------------------------------
REFUSED = {
    "an object": object(),
    "a function": len,
    "a lone surrogate": "\ud800",
    "NaN": float("nan"),
    "infinity": [{"x": float("inf")}],
    "a depth bomb": deep(100_000),
    "too many bytes": "é" * 500_001,
}


async def test_arguments_that_cannot_be_stored_are_refused_and_nothing_is_stored(
    db: Database, app: Holdfast
) -> None:  # E47
    echo = echo_task(app)
    async with app:
        for value in REFUSED.values():
            with pytest.raises(PayloadError) as refused:
                await echo.enqueue(value)
            with pytest.raises(PayloadError):
                await echo.enqueue_many([1, value, 3])
            assert "\n" not in str(refused.value)
            assert len(str(refused.value)) < 500
    assert (db.count("job"), db.count("event")) == (0, 0)


async def test_the_payload_limit_is_a_setting_and_counts_bytes(db: Database) -> None:  # E47
    app = new_app(db.url, payload_limit=20)
    echo = echo_task(app)
    async with app:
        await echo.enqueue("12345678")  # {"value":"12345678"} is 20 bytes
        for long in ("123456789", "éééé5"):
            with pytest.raises(
                PayloadError, match="take 21 bytes, the limit is 20; store large data elsewhere"
            ):
                await echo.enqueue(long)
    assert db.count("job") == 1


async def test_wrong_arguments_are_a_usage_error_and_a_type_error(db: Database, app: Holdfast) -> None:  # E47
    @app.task
    async def ship(order: int, *, fast: bool = False) -> None: ...

    untyped: Task[Any, Any] = ship
    async with app:
        for args, kwargs in (
            ((), {}),
            ((1, 2), {}),
            ((1,), {"order": 1}),
            ((1,), {"slow": True}),
            (("one",), {}),
            ((1,), {"fast": "yes"}),
        ):
            with pytest.raises(UsageError) as refused:
                await untyped.enqueue(*args, **kwargs)
            assert isinstance(refused.value, TypeError)
            with pytest.raises(UsageError):
                untyped.enqueue_sync(*args, **kwargs)
    assert db.count("job") == 0


STRANGE = {
    "NUL": {"a\0b": "\0"},
    "huge ints": [2**63, 2**64, -(2**70), 10**300],
    "emoji and quotes": "\"'\\ \u2028 😀 \x7f \x1f",
    "deep": deep(98),
    "empty": {},
    "floats": [0.1, 1e308, -0.0, 5e-324],
}


async def test_strange_values_come_back_as_they_went_in(app: Holdfast) -> None:  # E47
    echo, values = echo_task(app), list(STRANGE.values())
    async with app:
        single = [await echo.enqueue(value) for value in values]
        many = await echo.enqueue_many([(value,) for value in values])
        await work(app)
        assert [await handle.result("30s") for handle in (*single, *many)] == [*values, *values]


def options_that_cannot_be_stored() -> list[dict[str, Any]]:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 - that is what is wrong with it
    wrong: dict[str, list[Any]] = {
        "owner": ["a\0b", 5, "", ["ann"]],
        "key": ["\ud800", 5, ""],
        "tags": [["\0"], "mail", 3, None],
        "max_attempts": [-1, "3", True],
        "priority": ["soon", None, 1.5, 10**9],
        "dedupe_key": [3, "", ["a"], b"a"],
        "dedupe_for": ["x", -1],
        "run_at": ["tomorrow", 3, date(2030, 1, 1), naive],
        "delay": ["x", -5, []],
        "deadline": ["x", -5, [], naive],
        "start_within": ["x", -1],
        "id": [3, "x"],
    }
    return [{name: value} for name, values in wrong.items() for value in values]


async def test_options_that_cannot_be_stored_are_a_usage_error_on_every_store(
    db: Database, app: Holdfast
) -> None:  # E47
    echo = echo_task(app)
    async with app:
        for options in options_that_cannot_be_stored():
            with pytest.raises(UsageError, match=next(iter(options))) as refused:
                await echo.options(**options).enqueue(1)
            assert "\n" not in str(refused.value)
        with pytest.raises(UsageError, match="run_at and delay both set when"):
            await echo.options(run_at=datetime(2030, 1, 1, tzinfo=UTC), delay="5s").enqueue(1)
        with pytest.raises(UsageError, match="id= is for one job"):
            await echo.options(id=str(uuid4())).enqueue_many([1, 2])
        nothing: list[Any] = [3, None]
        for calls in nothing:
            with pytest.raises(UsageError, match="give it a list of calls"):
                await echo.enqueue_many(calls)
    assert db.count("job") == 0


async def test_an_id_may_be_a_uuid_as_such(app: Holdfast) -> None:
    echo, own = echo_task(app), uuid4()
    async with app:
        assert (await echo.options(id=own).enqueue(1)).id == str(own)


async def test_one_bad_enqueue_does_not_take_its_neighbours_down(db: Database, app: Holdfast) -> None:  # E46
    """Enqueues of one moment travel in one statement; only the bad one may be refused."""
    echo = echo_task(app)
    async with app:
        await echo.enqueue(0)
        calls = [echo.options(id="nonsense" if n == 2 else None).enqueue(n) for n in range(5)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer).__name__ for n, answer in enumerate(answers) if n != 2] == ["Handle"] * 4


# -- stored, and spoilt afterwards ----------------------------------------------------------------------------------
GARBAGE = ["", "{", "null", "[]", '{"value": 1, "more": 2}', "{" * 5000, "\x01"]


async def test_a_corrupt_payload_is_a_dead_letter_and_the_others_go_on(
    db: Database, app: Holdfast
) -> None:  # E32 E47
    echo = echo_task(app, retry=SOON)
    async with app:
        before, *spoilt, after = await echo.enqueue_many(list(range(len(GARBAGE) + 2)))
        for handle, garbage in zip(spoilt, GARBAGE, strict=True):
            db.corrupt(handle.id, garbage)
        await work(app)
        assert [await handle.result("30s") for handle in (before, after)] == [0, len(GARBAGE) + 1]
        for handle in spoilt:
            row = await app.jobs.get(handle.id)
            assert (row.state, row.error_code, row.attempt) == (State.FAILED, "PAYLOAD_INVALID", 1)
            assert await kinds(app, handle.id) == ["queued", "processing", "failed"]
        letters = await app.dead_letters.list()
    assert {letter.id for letter in letters} == {handle.id for handle in spoilt}
    assert {letter.code for letter in letters} == {"PAYLOAD_INVALID"}
    assert all("stored arguments" in one.detail or "cannot be read" in one.detail for one in letters)


async def test_bytes_that_are_no_text_do_not_stop_the_lane(tmp_path: Path) -> None:  # E32
    """Only SQLite can hold them; PostgreSQL refuses to store what is not UTF-8."""
    app = new_app(f"sqlite:///{tmp_path / 'jobs.db'}")
    echo = echo_task(app, retry=SOON)
    async with app:
        spoilt, good = await echo.enqueue_many([1, 2])
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as file, file:
            file.execute(
                "UPDATE holdfast_job SET payload = CAST(x'ff00fe' AS TEXT) WHERE uid = ?", (spoilt.id,)
            )
        await work(app)
        assert await good.result("30s") == 2
        assert (await app.jobs.get(spoilt.id)).error_code == "PAYLOAD_INVALID"


async def test_a_corrupt_payload_does_not_break_the_search_by_argument(
    db: Database, app: Holdfast
) -> None:  # E49
    echo = echo_task(app)
    async with app:
        good, spoilt = await echo.enqueue_many([1, 2])
        db.corrupt(spoilt.id, "garbage")
        page = await app.jobs.list(args={"value": 1})
        assert [row.id for row in page.rows] == [good.id]


# -- payload versions -----------------------------------------------------------------------------------------------
async def test_upgraders_bring_old_payloads_up_step_by_step(db: Database) -> None:  # E47
    old, new = new_app(db.url), new_app(db.url)

    @old.task(name="ship")
    async def ship_1(order: int) -> None: ...

    @new.task(name="ship", version=3)
    async def ship_3(order_id: str, fast: bool) -> str:
        return f"{order_id} {fast}"

    @ship_3.upgrades_from(1)
    def rename(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"order_id": str(arguments["order"])}

    @ship_3.upgrades_from(2)
    def add(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "fast": False}

    async with old:
        handle = await ship_1.enqueue(7)
    async with new:
        current = await ship_3.enqueue("8", True)
        await work(new)
        assert (await new.jobs.get(handle.id)).result == "7 False"
        assert await current.result("30s") == "8 True"


async def test_a_payload_that_cannot_be_upgraded_is_a_dead_letter(db: Database, app: Holdfast) -> None:  # E47
    @app.task(version=2, retry=SOON)
    async def ship(order: int) -> None: ...

    @ship.upgrades_from(1)
    def rename(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"order": arguments["missing"]}

    async with app:
        old, spoilt = await ship.enqueue_many([1, 2])
        db.execute(f"UPDATE {db.job_table} SET version = 1")
        db.corrupt(spoilt.id, "garbage")
        await work(app)
        rows = [await app.jobs.get(handle.id) for handle in (old, spoilt)]
    assert [(row.error_code, row.attempt) for row in rows] == [("PAYLOAD_INVALID", 1)] * 2


# -- results --------------------------------------------------------------------------------------------------------
async def test_a_result_over_the_limit_is_a_dead_letter(db: Database) -> None:  # E14
    app = new_app(db.url, result_limit=1000)
    echo = echo_task(app, retry=SOON)
    async with app:
        large, fits = await echo.enqueue_many(["x" * 1000, "x" * 998])
        await work(app)
        row = await app.jobs.get(large.id)
        assert (await app.jobs.get(fits.id)).state is State.COMPLETE
    assert (row.state, row.error_code, row.attempt, row.result) == (
        State.FAILED,
        "RESULT_TOO_LARGE",
        1,
        None,
    )


async def test_a_result_that_cannot_be_stored_is_a_dead_letter(app: Holdfast) -> None:  # E14
    @app.task(retry=SOON)
    async def make(what: str) -> Any:
        return REFUSED[what]

    @app.task(store_result=False)
    async def drop(what: str) -> Any:
        return REFUSED[what]

    async with app:
        results = ["an object", "NaN", "a lone surrogate", "a depth bomb"]
        kept, dropped = await make.enqueue_many(results), await drop.enqueue_many(results)
        await work(app)
        for handle in kept:
            row = await handle.job()
            assert (row.state, row.error_code, row.attempt) == (State.FAILED, "RESULT_INVALID", 1)
        assert [(await handle.job()).state for handle in dropped] == [State.COMPLETE] * len(results)


# -- handlers that misbehave ----------------------------------------------------------------------------------------
class Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


RAISED = {
    "SystemExit": (SystemExit(3), "EXITED"),
    "KeyboardInterrupt": (KeyboardInterrupt(), "EXITED"),
    "a BaseException": (BaseException("odd"), "UNKNOWN"),
    "a group": (BaseExceptionGroup("both", [KeyboardInterrupt()]), "UNKNOWN"),
    "CancelledError": (asyncio.CancelledError(), "UNKNOWN"),
    "MemoryError": (MemoryError(), "MEMORY"),
    "a novel": (ValueError("x" * 2_000_000), "UNKNOWN"),
    "an error without words": (Wordless(), "UNKNOWN"),
    "Retryable with nonsense": (Retryable(after="soonish"), "RETRYABLE"),
    "Snooze with nonsense": (Snooze("soonish"), "UNKNOWN"),
    "a surrogate in the message": (ValueError("no \udcff"), "UNKNOWN"),
    "NUL in the message": (ValueError("a\0b"), "UNKNOWN"),
    "NUL in Fatal": (Fatal("a\0b"), "FATAL"),
}
#: `next(iter([]))` is an everyday mistake.
OF_GENERATORS = {"StopIteration": StopIteration(), "GeneratorExit": GeneratorExit()}


async def test_whatever_a_handler_raises_the_job_settles_and_the_worker_lives(
    app: Holdfast,
) -> None:  # E5 E13
    @app.task(retry=ONCE)
    async def fails_async(what: str) -> None:
        raise RAISED[what][0]

    @app.task(retry=ONCE)
    def fails(what: str) -> None:
        raise OF_GENERATORS.get(what) or RAISED[what][0]

    echo = echo_task(app)
    async with app:
        bad = {what: [await task.enqueue(what) for task in (fails_async, fails)] for what in RAISED}
        odd = await fails.enqueue_many(list(OF_GENERATORS))
        good = await echo.enqueue(1)
        await work(app)
        assert await good.result("30s") == 1
        for what, handles in bad.items():
            for row in [await handle.job() for handle in handles]:
                assert (row.state, row.error_code) == (State.FAILED, RAISED[what][1]), what
                assert row.error_message is not None
                assert "\n" not in row.error_message
        assert [(await handle.job()).state for handle in odd] == [State.FAILED] * len(OF_GENERATORS)


async def test_a_fork_whose_child_comes_back_is_one_run(db: Database, app: Holdfast) -> None:  # E5
    @app.task
    async def forks() -> int:
        pid = os.fork()
        if pid == 0:
            return -1
        os.waitpid(pid, 0)  # noqa: ASYNC222 - the child ends at once
        return 1

    async with app:
        handle = await forks.enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
        assert await kinds(app, handle.id) == ["queued", "processing", "complete"]
    assert (row.result, row.attempt) == (1, 1)


async def test_a_fork_in_a_thread_leaves_no_child_behind(app: Holdfast) -> None:  # E5
    @app.task
    def forks() -> int:
        pid = os.fork()
        if pid == 0:
            return -1
        os.waitpid(pid, 0)
        return 1

    async with app:
        handle = await forks.enqueue()
        await work(app)
        assert await handle.result("30s") == 1


async def test_child_processes_that_exit_die_or_fork_settle_their_jobs(
    db: Database, app: Holdfast
) -> None:  # E5 E41
    tasks = [
        app.task(execute="process", retry=ONCE)(function)
        for function in (handlers.exits, handlers.dies, handlers.forks, handlers.returns_a_lock)
    ]
    async with app:
        handles = [await task.enqueue() for task in tasks]
        await work(app, concurrency=1)
        rows = [await app.jobs.get(handle.id) for handle in handles]
    assert [row.state for row in rows] == [State.FAILED, State.FAILED, State.COMPLETE, State.FAILED]
    assert (rows[0].error_code, rows[2].result) == ("EXITED", 1)


async def test_a_job_of_an_unknown_task_stays_queued_for_who_knows_it(db: Database) -> None:  # E47
    shop, other = new_app(db.url), new_app(db.url)
    ship = echo_task(shop)

    @other.task
    async def unrelated() -> None: ...

    async with shop, other:
        handle = await ship.enqueue(1)
        later = await unrelated.enqueue()
        working = asyncio.create_task(other.run_worker())
        await later.result("30s")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        row = await other.jobs.get(handle.id)
        assert (row.state, row.attempt, row.task) == (State.QUEUED, 0, "echo")
        await work(shop)
        assert await handle.result("30s") == 1
