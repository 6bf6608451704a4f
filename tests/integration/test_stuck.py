"""Attempts that run on for too long, with a real worker on both stores: reported, or reclaimed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Retry, UsageError, current_job
from tests.apps import ONCE, SOON, Database, kinds, new_app, until, work

pytestmark = pytest.mark.anyio


async def test_a_stuck_attempt_is_reclaimed_and_the_job_runs_again(
    db: Database, app: Holdfast
) -> None:  # E30
    stopped = asyncio.Event()

    @app.task(retry=SOON, stuck_after="1s", stuck_action="retry")  # for the second on a busy machine, too
    async def shoot() -> str:
        job = current_job()
        if job.attempt == 1:
            try:
                await asyncio.sleep(600)
            finally:
                stopped.set()
        return f"attempt {job.attempt}"

    async with app:
        handle = await shoot.enqueue()
        await work(app)
        assert await handle.result("30s") == "attempt 2"
        first, _ = await app.jobs.attempts(handle.id)
        assert first.outcome == "reclaimed"
        assert first.failure is not None
        assert first.failure.code == "STUCK"
        assert await kinds(app, handle.id) == ["queued", "processing", "reclaimed", "processing", "complete"]
    assert stopped.is_set()


async def test_a_stuck_attempt_is_reported_once_and_left_alone(
    db: Database, app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:  # E30
    def told() -> int:
        return sum("job.stuck" in record.getMessage() for record in caplog.records)

    async def reported() -> int:
        return told()

    @app.task(stuck_after="100ms")
    async def crawl() -> str:
        await until(reported)
        await asyncio.sleep(0.3)  # and is looked at again
        return "done"

    with caplog.at_level(logging.WARNING, "holdfast"):
        async with app:
            handle = await crawl.enqueue()
            await work(app)
            assert await handle.result("30s") == "done"
            assert (await handle.job()).attempt == 1
    assert told() == 1


async def test_a_task_that_may_run_for_ever_is_never_stuck(db: Database, app: Holdfast) -> None:  # E30
    @app.task(stuck_after=None, stuck_action="retry")
    async def crawl() -> None: ...

    @app.task
    async def usual() -> None: ...

    async with app:
        engine = await app.runtime.engine()
        assert set(engine.recovery.stuck_limits()) == {"usual"}
        assert engine.recovery.stuck_limits("retry") == {}


@pytest.fixture
async def held(app: Holdfast) -> AsyncIterator[dict[str, str]]:
    """Ids of jobs that a worker holds and does not end, by their owners."""

    @app.task(name="shoot", retry=SOON, stuck_after="1h")
    async def shoot() -> None: ...

    @app.task(name="crawl", retry=ONCE, stuck_after=None)
    async def crawl() -> None: ...

    async with app:
        ids: dict[str, str] = {}
        for owner in ("ann", "bob"):
            ids[owner] = (await shoot.options(owner=owner).enqueue()).id
        ids["nobody"] = (await crawl.enqueue()).id
        store = (await app.runtime.engine()).store
        session = await store.open_session("slow", timedelta(hours=3))
        fair = shoot.lane._replace(fair=True)
        while len(await store.held(session)) < len(ids):
            await store.claim(session, [shoot.lane, fair, crawl.lane], 3)
        yield ids


async def test_stuck_jobs_are_found_by_task_owner_and_id(
    app: Holdfast, held: dict[str, str]
) -> None:  # E30 S5
    async def found(**asked: Any) -> set[str]:
        return {one.id for one in await app.jobs.stuck(**asked)}

    assert await found() == set()  # not for an hour, and crawl never
    assert await found(longer_than=0) == set(held.values())
    assert await found(longer_than=0, task="shoot") == {held["ann"], held["bob"]}
    assert await found(longer_than=0, owner="ann") == {held["ann"]}
    assert await found(longer_than=0, ids=[held["bob"], "x"]) == {held["bob"]}
    assert await found(longer_than=0, owner="ann", ids=held["bob"]) == set()
    assert len(await found(longer_than=0, limit=2)) == 2
    [one] = await app.jobs.stuck(longer_than=0, ids=held["ann"])
    assert (one.task, one.queue, one.attempt, one.max_attempts, one.worker) == (
        "shoot",
        "default",
        1,
        3,
        "slow",
    )


async def test_stuck_jobs_are_reclaimed_as_they_were_found_and_once(
    app: Holdfast, held: dict[str, str]
) -> None:  # E30 S5
    stuck = await app.jobs.stuck(longer_than=0)
    assert await app.jobs.reclaim([]) == 0
    assert await app.jobs.reclaim(stuck) == 3
    assert await app.jobs.reclaim(stuck) == 0  # the same epoch is not theirs any more
    assert await kinds(app, held["ann"]) == ["queued", "processing", "reclaimed"]
    row = await app.jobs.get(held["nobody"])  # it had one attempt
    assert (row.state, row.error_code) == ("failed", "STUCK")
    [attempt] = await app.jobs.attempts(held["ann"])
    assert attempt.failure is not None
    assert attempt.failure.detail == "attempt 1 ran longer than 0s at worker slow"


async def test_what_is_stuck_is_asked_for_and_reclaimed_without_an_event_loop(
    app: Holdfast, held: dict[str, str]
) -> None:  # E30
    found = await asyncio.to_thread(lambda: app.sync.jobs.stuck(longer_than=0, owner="ann"))
    assert await asyncio.to_thread(lambda: app.sync.jobs.reclaim(found)) == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"task": "shot"}, "no task named 'shot'; known here: crawl, shoot"),
        ({"limit": 0}, "limit is 0; it is a whole number, 1 to 500"),
        ({"limit": 501}, "limit is 501"),
        ({"owner": "a\0b"}, "is not text that could be stored"),
        ({"longer_than": "soon"}, "'soon' is not a duration"),
    ],
)
async def test_a_question_that_cannot_be_answered_is_told_in_one_line(
    app: Holdfast, held: dict[str, str], asked: dict[str, Any], words: str
) -> None:  # E30
    with pytest.raises(UsageError) as refused:
        await app.jobs.stuck(**asked)
    assert words in str(refused.value)


def test_an_unknown_action_is_refused_in_one_line() -> None:  # E30
    app = new_app("memory://")
    with pytest.raises(UsageError, match="stuck_action is 'kill'; it is one of report, retry"):
        app.task(stuck_action="kill", retry=Retry(1))(_nothing)  # type: ignore[call-overload]


async def _nothing() -> None: ...
