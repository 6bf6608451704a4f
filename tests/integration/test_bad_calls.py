"""Verbs that are called wrongly: one line that says what is wrong with the call, whatever the store, and nothing happens."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import THIS_JOB, Holdfast, Job, UsageError
from tests.apps import ONCE, Database, work

pytestmark = pytest.mark.anyio

Call = Callable[[Any, Any], Awaitable[Any]]
CALLS: dict[str, list[Call]] = {
    r"a job is named by its id, a text, and not by <Handle echo .*>; of a handle it is \.id": [
        lambda app, handle: app.jobs.get(handle),
        lambda app, handle: app.jobs.result(handle, "1s"),
        lambda app, handle: app.jobs.retry(handle),
        lambda app, handle: app.jobs.cancel(handle),
        lambda app, handle: app.jobs.attempts(handle),
        lambda app, handle: app.events.list(job_id=handle),
        lambda app, handle: app.jobs.explain(handle),
        lambda app, handle: app.external.end(handle, None, generation=1, worker="w"),
    ],
    r"no filter bogus; there are: ": [
        lambda app, handle: app.jobs.list(bogus=1),
        lambda app, handle: app.dead_letters.list(bogus=1),
        lambda app, handle: app.dead_letters.redrive(bogus=1),
        lambda app, handle: app.dead_letters.discard(reason="x", bogus=1),
    ],
    r"(task|ids) is 3; it is a text, or a list of texts": [
        lambda app, handle: app.jobs.list(task=3),
        lambda app, handle: app.dead_letters.list(ids=3),
        lambda app, handle: app.dead_letters.redrive(ids=3),
    ],
    r"owner is 3; it is a text": [lambda app, handle: app.jobs.list(owner=3)],
    r"args is 3; it gives values by name": [lambda app, handle: app.jobs.list(args=3)],
    r"args cannot be stored as JSON: it holds NaN": [
        lambda app, handle: app.jobs.list(args={"n": float("nan")}),
        lambda app, handle: app.operations.begin("cancel", args={"n": float("nan")}),
    ],
    r"args cannot be stored as JSON: it holds a object": [
        lambda app, handle: app.jobs.list(args={"n": object()})
    ],
    r"died_after is 3; write a moment": [lambda app, handle: app.dead_letters.list(died_after=3)],
    r"limit is .*; it is a whole number, [01] to ": [
        lambda app, handle: app.jobs.list(limit="x"),
        lambda app, handle: app.jobs.list(limit=0),
        lambda app, handle: app.events.list(limit="x"),
        lambda app, handle: app.events.list(limit=-1),
        lambda app, handle: app.dead_letters.list(limit=0),
        lambda app, handle: app.dead_letters.redrive(limit="x"),
        lambda app, handle: app.operations.list(limit=-1),
        lambda app, handle: app.jobs.stuck(limit="x"),
    ],
    r"after is .*; it is a whole number": [lambda app, handle: app.events.list(after="x")],
    r"rate is .*; it is a number": [
        lambda app, handle: app.dead_letters.redrive(rate=0),
        lambda app, handle: app.dead_letters.redrive(rate="x"),
    ],
    r"queue is 3; it is a text": [lambda app, handle: app.dead_letters.redrive(to_queue=3)],
    r"rate is 'x'; it is a number": [lambda app, handle: app.operations.begin("retry", rate="x")],
    r"no filter \w+; there are: state": [lambda app, handle: app.operations.begin("retry", bogus=1)],
    r"to_queue is 3; it is a text": [lambda app, handle: app.operations.begin("redrive", to_queue=3)],
    r"no operation has the id 3": [lambda app, handle: app.operations.get(3)],
    r"jobs is .*; it is a list of what app.jobs.stuck": [
        lambda app, handle: app.jobs.reclaim([handle.id]),
        lambda app, handle: app.jobs.reclaim(handle),
    ],
    r"(name|owner) is 3; it is up to 200 printable": [
        lambda app, handle: app.keys.create("admin", name=3),
        lambda app, handle: app.keys.create("owner", owner=3),
    ],
    r"no valid key has the id 3": [lambda app, handle: app.keys.revoke(3)],
    r"no queue named 3; there are: default": [
        lambda app, handle: app.queues.pause(3),
        lambda app, handle: app.queues.resume(3),
    ],
    r"no dependency named 3; there are none": [lambda app, handle: app.breakers.open(3)],
    r"concurrency is .*; it is a whole number": [
        lambda app, handle: app.run_worker(concurrency=0, until_idle=True),
        lambda app, handle: app.run_worker(concurrency="x", until_idle=True),
    ],
    r"queues is .*; it is a list of names": [
        lambda app, handle: app.run_worker(queues="default", until_idle=True),
        lambda app, handle: app.run_worker(queues=[3], until_idle=True),
        lambda app, handle: app.run_worker(queues=3, until_idle=True),
    ],
    r"queues is empty; name those to serve": [lambda app, handle: app.run_worker(queues=[], until_idle=True)],
}


async def test_a_wrong_call_is_refused_in_one_line_and_does_nothing(
    db: Database, app: Holdfast
) -> None:  # E47
    @app.task
    async def echo(value: int) -> int:
        return value

    async with app:
        handle = await echo.enqueue(1)
        for why, calls in CALLS.items():
            for call in calls:
                with pytest.raises(UsageError, match=why) as refused:
                    await call(app, handle)
                assert "\n" not in str(refused.value)
        assert await app.keys.find(None) is None
        assert (await handle.job()).attempt == 0
        assert len(await app.events.list()) == 1


async def test_a_worker_that_is_given_a_queue_without_tasks_says_so(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(queue="mail")
    async def echo(value: int) -> int:
        return value

    async with app:
        await app.run_worker(queues=["mail"], until_idle=True)
        assert "queue.unknown" not in caplog.text
        await app.run_worker(queues=["mail", "mial"], until_idle=True)
    assert "queue.unknown queues=['mial']" in caplog.text


async def test_a_wrong_call_inside_a_handler_fails_the_job_with_one_line(app: Holdfast) -> None:  # E40 E47
    async def send() -> str:
        return "sent"

    mistakes: dict[str, Callable[[Any], Awaitable[Any]]] = {
        "the step 'mail' is <coroutine .*; it is a function and its arguments": lambda job: job.step(
            "mail", send()
        ),
        "the step 'mail' is None; it is a function": lambda job: job.step("mail", None),
        "name is 3; it is a text": lambda job: job.step(3, send),
        "percent is 'half'; it is a number, 0 to 100": lambda job: job.progress("half"),
    }

    @app.task(retry=ONCE)
    async def err(why: str, *, job: Job = THIS_JOB) -> None:
        job.log(3)  # type: ignore[arg-type]
        await mistakes[why](job)

    @app.task(retry=ONCE)
    async def depend(*, job: Job = THIS_JOB) -> None:
        async with job.dependency(""):
            pass

    async with app:
        handles = {why: await err.enqueue(why) for why in mistakes}
        handles["name is ''; it is a text"] = await depend.enqueue()
        await work(app)
        for why, handle in handles.items():
            [letter] = await app.dead_letters.list(ids=[handle.id])
            assert re.search(why, letter.detail), letter.detail
            assert (letter.code, (await handle.job()).attempt) == ("BAD_CALL", 1)
