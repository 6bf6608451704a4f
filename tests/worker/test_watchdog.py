"""What holds the event loop is named: its task, its job and its line."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time

import pytest

from holdfast import Holdfast
from holdfast.worker import watchdog

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(watchdog, "ASK_EVERY", 0.01)
    monkeypatch.setattr(watchdog, "ANSWER_WITHIN", 0.2)
    monkeypatch.setattr(watchdog, "GRACE", 0.1)
    caplog.set_level(logging.INFO, "holdfast")


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of this file only: on a busy machine, anything that has to wait for a core may be named, too."""
    said = [line.getMessage() for line in caplog.records]
    return [line for line in said if line.startswith("event_loop.blocked") and "test_watchdog.py:" in line]


async def hold(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """Hold the loop until that was logged: no time has to be guessed."""
    before, until = len(logged(caplog)), time.monotonic() + 20
    while len(logged(caplog)) == before and time.monotonic() < until:
        time.sleep(0.01)


async def test_a_handler_that_holds_the_loop_is_named_once_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:  # E63
    async with Holdfast("memory://", poll="20ms") as app:

        @app.task
        async def convert() -> None:
            await hold(app, caplog)

        @app.task
        async def other() -> None:
            await hold(app, caplog)

        handles = [await convert.enqueue(), await other.enqueue()]
        await app.run_worker(until_idle=True)
        ids = [handle.id for handle in handles]
    first, second = logged(caplog)
    assert f"task=convert job_id={ids[0]}" in first
    assert f"task=other job_id={ids[1]}" in second
    assert "test_watchdog.py:" in first
    assert " in hold " in first


async def test_what_a_handler_started_is_named_after_it_where_python_can_tell(
    caplog: pytest.LogCaptureFixture,
) -> None:  # E63
    async with Holdfast("memory://", poll="20ms") as app:

        @app.task
        async def convert() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(hold(app, caplog))

        await convert.enqueue()
        await app.run_worker(until_idle=True)
    [line] = logged(caplog)
    assert ("task=convert" in line) == (sys.version_info >= (3, 12))
    assert "test_watchdog.py:" in line


async def test_the_thread_ends_with_its_worker() -> None:
    async with Holdfast("memory://", poll="20ms") as app:
        app.task(name="nothing")(asyncio.sleep)
        await app.run_worker(until_idle=True)
    for thread in threading.enumerate():
        if thread.name == "holdfast-watchdog":
            thread.join(20)
            assert not thread.is_alive()


async def test_a_stop_just_before_the_next_question_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    class StoppedBeforeClear(threading.Event):
        def clear(self) -> None:
            dog.stop()
            super().clear()

    dog = watchdog.Watchdog(lambda task: None)
    dog._answered = StoppedBeforeClear()
    thread = threading.Thread(target=dog._run, daemon=True)
    thread.start()
    thread.join(20)  # this holds the loop, so it answers nothing: only the stop can end the thread
    assert not thread.is_alive()
    assert logged(caplog) == []
