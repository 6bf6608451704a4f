"""A handler that raises leaves file and line behind: with the attempt, in the log and for those who run the house."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from holdfast import Holdfast, Job
from holdfast.cli.dead import dead
from holdfast.cli.jobs import jobs
from holdfast.logging import LogMessage
from tests.apps import ONCE, SOON, Database, new_app, work
from tests.integration import handlers

pytestmark = pytest.mark.anyio

HERE = "tests/integration/test_tracebacks.py"


def divide(by: int) -> float:
    return 1 / by


def line_of(function: object, more: int) -> int:
    return function.__code__.co_firstlineno + more  # type: ignore[attr-defined, no-any-return]


AT = f'File "{HERE}", line {line_of(divide, 1)}, in divide'


async def tracebacks(app: Holdfast, job_id: str) -> list[str | None]:
    return [attempt.traceback for attempt in await app.jobs.attempts(job_id)]


async def test_every_attempt_that_raises_says_where(app: Holdfast, db: Database) -> None:  # E42
    @app.task(retry=SOON)
    async def on_the_loop(by: int) -> float:
        return divide(by)

    @app.task(retry=SOON)
    def in_a_thread(by: int) -> float:
        return divide(by)

    async with app:
        ids = [(await task.enqueue(0)).id for task in (on_the_loop, in_a_thread)]
        ids += [(await on_the_loop.enqueue(0)).id for _ in range(5)]
        await work(app)
        for job_id in ids:
            found = await tracebacks(app, job_id)
            assert len(found) == 3
            assert len(set(found)) == 1
            assert found[0] is not None
            lines = found[0].splitlines()
            assert len(lines) == 4, lines  # the handler, what it called, and nothing of ours
            assert lines[2].strip() == AT
            assert lines[-1] == "ZeroDivisionError: division by zero"
    assert db.count("traceback") == 2  # seven jobs, twenty-one attempts, two places


async def test_a_child_process_says_where(app: Holdfast) -> None:  # E42
    raises = app.task(retry=ONCE, execute="process")(handlers.says)
    stubborn = app.task(retry=ONCE, execute="process")(handlers.raises_what_cannot_travel)
    async with app:
        plain, other = (await raises.enqueue()).id, (await stubborn.enqueue()).id
        await work(app)
        [first], [second] = await tracebacks(app, plain), await tracebacks(app, other)
    assert first is not None
    assert second is not None
    assert 'File "tests/integration/handlers.py", line' in first
    assert first.splitlines()[-1] == "OSError: broken"
    assert "in raises_what_cannot_travel" in second
    assert "ValueError: the cause" in second
    assert second.splitlines()[-1] == "tests.integration.handlers.Stubborn"


async def test_groups_and_causes_are_told_whole(app: Holdfast) -> None:  # E42
    @app.task(retry=ONCE)
    async def several() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(divide, 0))

    @app.task(retry=ONCE)
    async def wrapped() -> None:
        try:
            divide(0)
        except ZeroDivisionError as error:
            raise OSError("no van") from error

    async with app:
        ids = (await several.enqueue()).id, (await wrapped.enqueue()).id
        await work(app)
        [[group], [cause]] = [await tracebacks(app, job_id) for job_id in ids]
    assert group is not None
    assert cause is not None
    assert AT in group
    assert "    ZeroDivisionError: division by zero" in group
    first, _, last = cause.partition("direct cause of the following exception:")
    assert AT in first
    assert "<locals>.wrapped" in last
    assert cause.splitlines()[-1] == "OSError: no van"


async def test_a_handler_that_was_stopped_says_where_it_was(app: Holdfast) -> None:  # E42
    @app.task(retry=ONCE, timeout="50ms")
    async def waits() -> None:
        await asyncio.Event().wait()

    async with app:
        job_id = (await waits.enqueue()).id
        await work(app)
        [found] = await tracebacks(app, job_id)
    assert found is not None
    assert f'File "{HERE}", line' in found
    assert "asyncio/locks.py" in found


async def test_a_middleware_may_wrap_what_a_child_raised(app: Holdfast) -> None:
    raises = app.task(retry=ONCE, execute="process")(handlers.says)

    @app.middleware
    async def wrap(job: Job, call):  # type: ignore[no-untyped-def]
        try:
            return await call()
        except OSError as error:
            raise RuntimeError("wrapped") from error

    async with app:
        job_id = (await raises.enqueue()).id
        await work(app)
        [found] = await tracebacks(app, job_id)
    assert found is not None
    assert found.index("handlers.py") < found.index("direct cause") < found.index("<locals>.wrap")


async def test_a_success_and_a_known_failure_write_no_traceback(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:  # E46
    from holdfast.stores.postgres import attempt_data as in_postgres
    from holdfast.stores.sqlite import attempt_data as in_sqlite

    app, written = new_app(db.url), list[int]()
    module = in_postgres if db.is_postgres else in_sqlite
    keep = module.keep_tracebacks

    def counted(move, tracebacks):  # type: ignore[no-untyped-def]
        written.append(len(tracebacks))
        return keep(move, tracebacks)

    monkeypatch.setattr(module, "keep_tracebacks", counted)

    @app.task(retry=SOON)
    async def work_on(by: int) -> float:
        return divide(by)

    async with app:
        for by in (1, 0, 1, 0, 0):
            await work_on.enqueue(by)
            await work(app)
    assert written == [1]


@pytest.fixture
def info() -> Iterator[None]:
    log = logging.getLogger("holdfast")
    before, level = log.level, logging.INFO
    log.setLevel(level)
    yield
    log.setLevel(before)


async def test_the_log_of_a_failed_attempt_has_the_reason_and_each_traceback_once(
    app: Holdfast, info: None, caplog: pytest.LogCaptureFixture
) -> None:  # E63
    @app.task(retry=SOON)
    async def fails(by: int) -> float:
        return divide(by)

    async with app:
        await fails.enqueue(0)
        await work(app)
    told = [
        one
        for record in caplog.records
        if isinstance(one := record.msg, LogMessage) and one.event.startswith("job.")
    ]
    events = [(one.event, one.facts["reason"]) for one in told]
    reason = "ZeroDivisionError: division by zero"
    assert events == [
        ("job.retry_scheduled", reason),
        ("job.retry_scheduled", reason),
        ("job.failed", reason),
    ]
    assert AT in told[0].facts["traceback"]
    assert ["traceback" in one.facts for one in told] == [True, False, False]
    assert len({one.facts["traceback_id"] for one in told}) == 1


async def test_the_commands_show_it(app: Holdfast, db: Database) -> None:  # E42
    @app.task(retry=SOON)
    async def fails(by: int) -> float:
        return divide(by)

    async with app:
        job_id = (await fails.enqueue(0)).id
        await work(app)

    def said(about: typer.Typer, *words: str) -> str:
        answer = CliRunner(env={"COLUMNS": "200"}).invoke(about, ["show", job_id, *words, "--url", db.url])
        assert answer.exit_code == 0, answer.output
        return answer.output

    shown = await asyncio.to_thread(said, jobs)
    assert "Traceback of attempts 1, 2, 3" in shown
    assert shown.count(AT) == 1
    assert AT in await asyncio.to_thread(said, dead)
    letter = json.loads(await asyncio.to_thread(said, dead, "--json"))
    assert AT in letter["traceback"]
    job = json.loads(await asyncio.to_thread(said, jobs, "--json"))
    assert [AT in attempt["traceback"] for attempt in job["attempts"]] == [True] * 3
    assert "traceback" not in job["attempts"][0]["failure"]
