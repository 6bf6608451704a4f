"""What signals mean to a worker: SIGHUP, which ends a process by default, and the deadline that a stop has."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, State, signals

pytestmark = pytest.mark.anyio


@pytest.fixture
def unheard() -> Iterator[list[int]]:
    """The hang-ups that no worker has taken: here they end nobody."""
    heard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGHUP, before)
    gc.unfreeze()  # a worker that owns its process freezes what is there


async def hang_up(app: Holdfast) -> tuple[asyncio.Task[None], State]:
    """A worker that is hung up on in the middle of a job, and the job's state once it has been let go on."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task
    async def ship() -> None:
        begun.set()
        await go_on.wait()

    working = asyncio.create_task(app.run_worker(handle_signals=True))
    async with asyncio.timeout(20):
        handle = await ship.enqueue()
        await begun.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait([working], timeout=0.1)
        go_on.set()
        await handle.result()
    return working, (await handle.job()).state


async def test_a_worker_whose_terminal_is_gone_finishes_what_it_has_and_ends(
    monkeypatch: pytest.MonkeyPatch, unheard: list[int]
) -> None:  # E5
    monkeypatch.setattr(signals, "sighup_stops_us", lambda: True)
    async with Holdfast("memory://") as app:
        working, state = await hang_up(app)
        async with asyncio.timeout(20):
            await working
    assert (state, unheard) == (State.COMPLETE, [])


async def test_a_program_that_goes_on_after_its_worker_is_not_ended(
    monkeypatch: pytest.MonkeyPatch, unheard: list[int]
) -> None:  # E31
    armed: list[str] = []
    monkeypatch.setattr(
        faulthandler, "dump_traceback_later", lambda seconds, **given: armed.append(f"{seconds:.0f}")
    )
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: armed.append("lifted"))
    monkeypatch.setattr(signals, "sighup_stops_us", lambda: True)
    for grace in ("30s", "7s"):  # what was lifted can be armed again
        async with Holdfast("memory://", grace=grace) as app:
            working, _ = await hang_up(app)
            async with asyncio.timeout(20):
                await working
    assert armed == ["35", "lifted", "12", "lifted"]


async def test_without_a_terminal_and_without_a_file_of_policies_a_hang_up_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, unheard: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(signals, "sighup_stops_us", lambda: False)
    caplog.set_level(logging.INFO, "holdfast")
    async with Holdfast("memory://") as app:
        working, state = await hang_up(app)
        assert not working.done()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert (state, unheard) == (State.COMPLETE, [])
    assert "policy_file.not_set" in caplog.text


async def test_a_worker_under_nohup_does_not_hear_its_terminal_go(
    monkeypatch: pytest.MonkeyPatch, unheard: list[int]
) -> None:
    monkeypatch.setattr(signals, "sighup_stops_us", lambda: True)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with Holdfast("memory://") as app:
        working, state = await hang_up(app)
        assert not working.done()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert state is State.COMPLETE
