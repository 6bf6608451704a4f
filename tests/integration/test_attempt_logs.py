"""Logs per attempt: what a handler says while it runs is kept with its attempt, however it speaks and wherever it runs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from holdfast import THIS_JOB, Holdfast, Job, Snooze, current_job
from holdfast.logging import configure
from tests.apps import ONCE, SOON, Database, new_app, work
from tests.integration import handlers

pytestmark = pytest.mark.anyio

log = logging.getLogger("shop")


@pytest.fixture(autouse=True)
def speak_up() -> Iterator[None]:
    before = log.level
    log.setLevel(logging.INFO)
    yield
    log.setLevel(before)


async def logs(app: Holdfast, job_id: str) -> list[list[str]]:
    """What was said in each attempt, without the times."""
    return [[line.partition(" ")[2] for line in attempt.logs] for attempt in await app.jobs.attempts(job_id)]


async def test_a_failed_attempt_keeps_what_was_said(app: Holdfast) -> None:  # E42
    @app.task(retry=SOON)
    async def ship(order: int, *, job: Job = THIS_JOB) -> None:
        log.info("packing %s", order)
        log.debug("too quiet to be heard")
        job.log("weighed", kilos=3, password="hunter2")
        await asyncio.sleep(0)
        if job.attempt < 3:
            raise OSError("no van")

    async with app:
        handle = await ship.enqueue(7)
        await work(app)
        said = ["INFO shop: packing 7", "INFO weighed kilos=3 password=***"]
        assert await logs(app, handle.id) == [said, said, []]


async def test_the_last_attempt_of_a_dead_letter_keeps_them_too(app: Holdfast) -> None:  # E42
    @app.task(retry=ONCE)
    async def ship() -> None:
        log.warning("it will break")
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert await logs(app, handle.id) == [["WARNING shop: it will break"]]


async def test_one_that_is_stopped_by_its_timeout_keeps_them(app: Holdfast) -> None:  # E41 E42
    @app.task(retry=ONCE, timeout="200ms")
    async def ship() -> None:
        log.info("waiting")
        await asyncio.Event().wait()

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert (await app.jobs.get(handle.id)).error_code == "EXECUTION_TIMEOUT"
        assert await logs(app, handle.id) == [["INFO shop: waiting"]]


def nothing_is_heard() -> bool:
    return not [h for h in logging.getLogger().handlers if type(h).__module__.startswith("holdfast")]


async def test_what_goes_well_keeps_nothing_and_costs_no_row(app: Holdfast, db: Database) -> None:  # E42
    snoozed: list[int] = []

    @app.task(retry=SOON)
    async def ship(n: int, *, job: Job = THIS_JOB) -> None:
        log.info("well")
        job.log("very well")
        if n and not snoozed:
            snoozed.append(n)
            raise Snooze("1ms")

    async with app:
        handles = await ship.enqueue_many([0, 1])
        await work(app)
        for handle in handles:
            assert not any(await logs(app, handle.id))
    assert db.count("attempt_log") == 0
    assert nothing_is_heard()


@pytest.mark.parametrize("keep", ["always", "never"])
async def test_the_setting_keeps_all_or_nothing(db: Database, keep: str) -> None:  # E42
    app = new_app(db.url, keep_logs=keep)
    heard: list[bool] = []

    @app.task(retry=SOON)
    async def ship(*, job: Job = THIS_JOB) -> None:
        heard.append(not nothing_is_heard())
        log.info("attempt %s", job.attempt)
        job.log("mine")
        if job.attempt == 1:
            raise OSError("once")

    @app.task
    async def committed(*, job: Job = THIS_JOB) -> None:
        async with job.transaction():
            log.info("inside")
        log.info("after")

    async with app:
        shipped, both = await ship.enqueue(), await committed.enqueue()
        await work(app)
        told = await logs(app, shipped.id), await logs(app, both.id)
    if keep == "never":
        assert told == ([[], []], [[]])
        assert heard == [False, False]
    else:
        assert told == (
            [["INFO shop: attempt 1", "INFO mine"], ["INFO shop: attempt 2", "INFO mine"]],
            [["INFO shop: inside", "INFO shop: after"]],
        )


async def test_jobs_that_run_at_once_do_not_hear_each_other(app: Holdfast) -> None:  # E42
    together = asyncio.Barrier(4)

    @app.task(retry=ONCE)
    async def ship(n: int) -> None:
        log.info("begin %s", n)
        await together.wait()
        log.info("end %s", n)
        raise OSError(str(n))

    log.info("before")
    async with app:
        handles = await ship.enqueue_many(range(4))
        await work(app, concurrency=4)
        for n, handle in enumerate(handles):
            assert await logs(app, handle.id) == [[f"INFO shop: begin {n}", f"INFO shop: end {n}"]]


async def test_a_handler_in_a_thread_is_heard(app: Holdfast) -> None:  # E41 E42
    @app.task(retry=ONCE, execute="thread")
    def ship() -> None:
        log.info("from a thread")
        current_job().log("and so", do=1)
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert await logs(app, handle.id) == [["INFO shop: from a thread", "INFO and so do=1"]]


async def test_a_handler_in_a_process_is_heard(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E41 E42
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    task = app.task(handlers.says, retry=SOON, execute="process")  # type: ignore[call-overload]
    async with app:
        handle = await task.enqueue()
        await work(app)
        first, second, third = await logs(app, handle.id)
        assert first == second == third
        assert first[0] == "INFO handlers: from a process"
        assert first[1].startswith("ERROR handlers: it broke\nTraceback")
        assert len(first) == 2


async def test_middleware_is_heard_with_its_attempt(app: Holdfast) -> None:  # E42 E49
    @app.middleware
    async def around(job: Job, call: Callable[[], Awaitable[Any]]) -> Any:
        log.info("before %s", job.task)
        try:
            return await call()
        finally:
            log.info("after %s", job.task)

    @app.task(retry=ONCE)
    async def ship() -> None:
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert await logs(app, handle.id) == [["INFO shop: before ship", "INFO shop: after ship"]]


@pytest.fixture
def as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("holdfast")
    levels, handlers = (root.level, ours.level), list(root.handlers)
    yield
    structlog.reset_defaults()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    root.handlers[:] = [handler for handler in root.handlers if handler in handlers]


@pytest.mark.usefixtures("as_it_was")
async def test_structlog_is_heard_as_our_front_doors_set_it_up(app: Holdfast) -> None:  # E42 E63
    configure()

    @app.task(retry=ONCE)
    async def ship() -> None:
        structlog.get_logger().info("packed", boxes=2, token="hunter2")
        log.info("both")
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert await logs(app, handle.id) == [["INFO packed boxes=2 token=***", "INFO shop: both"]]


@pytest.mark.usefixtures("as_it_was")
async def test_structlog_is_heard_through_the_standard_library(app: Holdfast) -> None:  # E42 E63
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
    )

    @app.task(retry=ONCE)
    async def ship() -> None:
        structlog.get_logger("shop").info("packed", boxes=2)
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        assert await logs(app, handle.id) == [["INFO shop: packed boxes=2 level=info"]]


async def test_a_chatty_handler_keeps_its_last_words(app: Holdfast) -> None:  # E42
    @app.task(retry=ONCE)
    async def ship() -> None:
        for n in range(10_000):
            log.info("step %s \0 %s", n, "é")
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)
        [said] = await logs(app, handle.id)
    assert len(said) == 201
    assert said[-1].startswith("INFO shop: step 9999")


@pytest.mark.usefixtures("as_it_was")
async def test_the_command_line_shows_them(app: Holdfast, db: Database) -> None:  # E42 E67
    from holdfast.cli.jobs import jobs

    @app.task(retry=ONCE)
    async def ship() -> None:
        log.info("packing \x1b[31m")
        raise OSError("broken")

    async with app:
        handle = await ship.enqueue()
        await work(app)

    def run(*arguments: str) -> str:
        said = CliRunner().invoke(jobs, ["show", handle.id, "--url", db.url, *arguments])
        assert said.exit_code == 0, said.output
        return said.output

    shown = await asyncio.to_thread(run, "--logs")
    assert "Logs of attempt 1" in shown
    assert "INFO shop: packing �[31m" in shown
    assert "packing" not in await asyncio.to_thread(run)
    [attempt] = json.loads(await asyncio.to_thread(run, "--json"))["attempts"]
    assert attempt["logs"][0].endswith("INFO shop: packing \x1b[31m")
