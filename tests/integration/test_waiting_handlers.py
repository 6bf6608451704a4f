"""Handlers that wait for other jobs: when they hold every slot of their worker, that is noticed, logged once and shown."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Handle, Holdfast, State
from holdfast.cli.doctor import waiting_findings
from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.jobs.job import Session
from holdfast.worker import worker as workers
from holdfast.worker.deadlocks import DeadlockDetector
from tests.apps import new_app, until, working

SLOTS = 2


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[int]:
    """How often a worker has looked, which it does often here."""
    caplog.set_level(logging.INFO, "holdfast")
    monkeypatch.setattr(workers, "BEAT_EVERY", 0.02)
    counted, look = [0], DeadlockDetector.check

    async def counting(self: DeadlockDetector, session: Session) -> None:
        await look(self, session)
        counted[0] += 1

    monkeypatch.setattr(DeadlockDetector, "check", counting)
    return counted


def shop(url: str) -> Holdfast:
    app = new_app(url, grace="0s")

    @app.task
    async def render(page: int) -> int:
        return page * 10

    @app.task(queue="renderers", name="render_elsewhere")
    async def render_elsewhere(page: int) -> int:
        return page * 10

    @app.task
    async def invoice(page: int, where: str, delay: str = "0s") -> int:
        handle = await app.tasks[where].options(delay=delay).enqueue(page)
        found: int = await handle.result()
        return found + 1

    @app.task
    def plain_invoice(page: int) -> int:
        return int(app.sync.jobs.result(render.enqueue_sync(page).id)) + 1

    return app


async def is_logged(caplog: pytest.LogCaptureFixture) -> bool:
    return bool(warnings(caplog))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if "worker.deadlocked" in line.getMessage()]


async def is_waiting(app: Holdfast, count: int) -> bool:
    return [worker.waiting for worker in await app.queues.workers()] == [count]


async def test_slots_that_are_all_held_by_handlers_that_wait_are_told(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:  # E28
    calls = [{"page": page, "where": "render"} for page in range(5)]
    await check_deadlock(shop(store_url), "invoice", calls, caplog)


async def test_handlers_in_threads_are_counted_too(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:  # E28
    await check_deadlock(shop(database_url), "plain_invoice", [{"page": page} for page in range(5)], caplog)


async def check_deadlock(
    app: Holdfast, parent: str, calls: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    async with app:
        parents = await app.tasks[parent].enqueue_many(calls)
        async with working(app, concurrency=SLOTS):
            await until(lambda: is_waiting(app, SLOTS))
            child = (await app.jobs.list(task="render")).rows[0]
            why = await app.jobs.explain(child.id)
            assert why.reason is WaitReason.NO_SLOT
            assert f"({SLOTS})" in why.sentence
            [finding] = waiting_findings(await app.queues.workers())
            assert finding.level == "problem"
            await until(lambda: is_logged(caplog))  # written after the store has it
            [line] = warnings(caplog)
            assert "raise the concurrency" in line
            # The way out: another worker, which has room.
            async with working(app, concurrency=10):
                for handle in parents:
                    assert await handle.result(timeout="20s") in range(1, 42, 10)
            await until(lambda: is_waiting(app, 0))
        assert len(warnings(caplog)) == 1


async def test_what_can_still_go_on_is_not_taken_for_it(
    store_url: str, looks: list[int], caplog: pytest.LogCaptureFixture
) -> None:  # E28
    app = shop(store_url)

    async def looked(parents: Sequence[Handle[Any]]) -> bool:
        """Whether the worker has looked a few times since all of these run."""
        if {(await one.job()).state for one in parents} != {State.PROCESSING}:
            looks[0] = 0
        return looks[0] > 5

    async with app:
        invoice = app.tasks["invoice"]
        later = await invoice.enqueue_many([{"page": 1, "where": "render", "delay": "1h"}] * SLOTS)
        async with working(app, concurrency=SLOTS, queues=["default"]):  # they wait for what is not due yet
            await until(lambda: looked(later))
            assert await is_waiting(app, 0)
        for handle in later:
            await app.jobs.cancel(handle.id)
        others = await invoice.enqueue_many([{"page": 1, "where": "render_elsewhere"}] * SLOTS)
        async with working(app, concurrency=SLOTS, queues=["default"]):  # for what others have to run
            await until(lambda: looked(others))
            assert await is_waiting(app, 0)
        async with working(app, concurrency=SLOTS + 1):  # and here a slot is left
            await until(lambda: _is_empty(app))
    assert warnings(caplog) == []


async def _is_empty(app: Holdfast) -> bool:
    counts = await app.jobs.counts()
    return counts["processing"] == 0 and counts["queued"] <= SLOTS  # those of the delayed ones
