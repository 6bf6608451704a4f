"""A policy file that changes while a worker runs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from holdfast import Holdfast, Retry, gc_tuning
from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.verdict import Failure
from holdfast.resilience.breaker import BreakerState
from holdfast.resilience.guard import UNLIMITED, CallPermit
from holdfast.tasks.policy_file import reloading
from holdfast.tasks.policy_file.reloading import Reloader
from holdfast.tasks.task import Task
from holdfast.testing import ManualClock, app_in_memory, drain
from holdfast.worker.dependencies import Dependencies
from tests.claimed import claimed_job

pytestmark = pytest.mark.anyio

LANE = Lane("default", "t", "gateway")
CLAIMED = claimed_job(LANE)


class Heard:
    """What a module logs, instead of logging it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **facts: Any) -> None:
        self.lines.append((event, facts))

    info = warning

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(reloading, "log", heard)
    return heard


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policies.toml"
    file.write_text("[tasks.t]\nmax_attempts = 3\ntimeout = '10s'")
    return file


def declare(file: Path) -> tuple[Holdfast, Reloader, Task[Any, Any]]:
    app = Holdfast("memory://", policies=file)

    @app.task(retry=Retry(2, base="1m", jitter="none"))
    async def t() -> None:
        raise ConnectionError("down")

    return app, app.runtime.declared.reloader, app.tasks["t"]


async def test_a_changed_file_is_in_force_for_the_next_enqueue_and_the_next_failure(
    file: Path, heard: Heard
) -> None:  # E10
    app, reloader, task = declare(file)
    assert not reloader.reload(app.tasks)  # nothing has changed
    file.write_text("[tasks.t]\nmax_attempts = 9\nbackoff = { fixed = '5s', jitter = 'none' }")
    assert reloader.reload(app.tasks)
    assert task.policy.retry.max_attempts == task.plain_spec.max_attempts == 9
    assert task.policy.timeout is task.plain_spec.timeout is None
    assert task.policy.retry.backoff.delay(1, 0.5) == timedelta(seconds=5)
    assert app.runtime.declared.policies is reloader.policies
    assert heard.events() == ["policy_file.reloaded"]
    assert not reloader.reload(app.tasks)


async def test_a_bad_file_is_logged_once_and_the_old_policies_stay(file: Path, heard: Heard) -> None:  # E10
    app, reloader, task = declare(file)
    before, policies = task.policy, app.runtime.declared.policies
    file.write_text("[tasks.t]\nmax_attempts = 9\ntimeout = 'soon'")
    for _ in range(3):
        assert not reloader.reload(app.tasks)
    assert task.policy is before
    assert app.runtime.declared.policies is policies
    [(event, facts)] = heard.lines
    assert event == "policy_file.refused"
    assert (
        facts["reason"]
        == f'{file}:3: tasks.t.timeout: \'soon\' is not a duration; write "30s", "1h30m" or a timedelta'
    )
    file.write_text("[tasks.t]\nmax_attempts = 9")
    assert reloader.reload(app.tasks)
    assert task.policy.retry.max_attempts == 9


async def test_a_file_that_does_not_fit_one_task_changes_none(file: Path, heard: Heard) -> None:  # E10
    app, reloader, task = declare(file)

    @app.task
    async def other() -> None: ...

    file.write_text("[tasks.other]\nmax_attempts = 7\n[tasks.t.backoff]\nfixed = '2h'")
    assert not reloader.reload(app.tasks)
    assert other.policy.retry.max_attempts == 5
    assert task.policy.retry.max_attempts == 3
    assert heard.events() == ["policy_file.refused"]


async def test_a_file_that_is_gone_for_a_while_changes_nothing(file: Path, heard: Heard) -> None:  # E10
    app, reloader, task = declare(file)
    text = file.read_text()
    file.unlink()
    for _ in range(3):
        assert not reloader.reload(app.tasks)
    assert task.policy.retry.max_attempts == 3
    assert heard.events() == ["policy_file.refused"]
    file.write_text(text)
    assert reloader.reload(app.tasks)


async def test_a_file_that_was_moved_into_place_is_noticed(file: Path, heard: Heard) -> None:  # E10
    app, reloader, task = declare(file)
    new = file.with_suffix(".new")
    new.write_text(file.read_text().replace("3", "4"))
    facts = file.stat()
    os.utime(new, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # as old and as long as the other
    new.rename(file)
    assert reloader.reload(app.tasks)
    assert task.policy.retry.max_attempts == 4


async def test_being_asked_reads_the_file_whether_it_has_changed_or_not(file: Path, heard: Heard) -> None:
    app, reloader, _ = declare(file)
    assert reloader.reload(app.tasks, asked=True)
    assert not Reloader(None).reload(app.tasks, asked=True)


async def test_a_stored_job_keeps_its_attempts_and_gets_the_new_backoff(
    file: Path, heard: Heard
) -> None:  # E10
    app, reloader, task = declare(file)
    clock = ManualClock()
    with app_in_memory(app, clock=clock):
        handle = await task.enqueue()
        file.write_text("[tasks.t]\nmax_attempts = 9\nbackoff = { fixed = '7s', jitter = 'none' }")
        assert reloader.reload(app.tasks)
        await drain(app)
        row = await handle.job()
        assert row.max_attempts == 3
        assert row.run_at - clock.now() == timedelta(seconds=7)
        assert (await (await task.enqueue()).job()).max_attempts == 9


async def test_a_worker_notices_a_changed_file_by_itself(file: Path, heard: Heard) -> None:  # E10
    app, reloader, task = declare(file)
    clock = ManualClock()
    looking = asyncio.create_task(reloader.run(app.tasks, clock))
    await asyncio.sleep(0)
    file.write_text("[tasks.t]\nmax_attempts = 9")
    clock.advance(reloading.LOOK_EVERY)
    for _ in range(5):
        await asyncio.sleep(0)
    assert task.policy.retry.max_attempts == 9
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


async def test_what_is_said_of_a_dependency_changes_in_a_worker_that_runs(
    file: Path, heard: Heard
) -> None:  # E10 E20
    file.write_text("[dependencies.gateway]\nlimiter = { start = 40 }\nbudget = { capacity = 100 }")
    clock = ManualClock()
    app = Holdfast("memory://", policies=file, clock=clock)
    app.task(name="t", depends_on="gateway")(call)
    gateway, store = Dependency("gateway"), (await app.runtime.engine()).store
    session = await store.open_session("w1", timedelta(hours=1))
    worker = Dependencies(await app.runtime.engine(), lambda: None)
    await worker.serve([gateway])

    async def say(text: str) -> None:
        file.write_text(f"[dependencies.gateway]\n{text}")
        assert app.runtime.declared.reloader.reload(app.tasks, asked=True)
        clock.advance("1s")
        await worker.sync(session)

    def fail(times: int) -> None:
        for given in worker.enter(gateway, [CLAIMED] * times):
            assert isinstance(given, CallPermit)
            worker.failed(given, Failure.of("NETWORK", "down"), clock.monotonic())

    assert worker.room(gateway) == 40
    fail(4)
    await say("limiter = { most = 15 }\nbreaker = { window = 5, min_calls = 5, cooldown = '1h' }")
    assert worker.room(gateway) == 15
    fail(1)
    assert worker.room(gateway) > 0  # what was seen before is not judged by the new words
    fail(4)
    assert worker.room(gateway) == 0
    await worker.sync(session)
    [state_of_dependency] = await app.breakers.list()
    assert state_of_dependency.breaker.state is BreakerState.OPEN

    await say("breaker = false\nlimiter = false")
    assert worker.room(gateway) == 0  # it is open until its time has come
    clock.advance("1h")
    await worker.sync(session)
    [state_of_dependency] = await app.breakers.list()
    assert (state_of_dependency.breaker.state, worker.room(gateway)) == (BreakerState.CLOSED, UNLIMITED)


async def call() -> None: ...


@pytest.mark.slow
async def test_sighup_makes_a_real_worker_read_its_file_again(tmp_path: Path) -> None:  # E10
    """And goes on working: the hang-up of a daemon is no reason to end."""
    (tmp_path / "holdfast.toml").write_text("[tasks.t]\nmax_attempts = 3")
    (tmp_path / "app_here.py").write_text(
        dedent("""
        from holdfast import Holdfast
        app = Holdfast("sqlite:///jobs.db")

        @app.task
        async def t() -> int:
            return app.tasks["t"].policy.retry.max_attempts
        """)
    )
    worker = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "app_here:app"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        app = Holdfast(f"sqlite:///{tmp_path}/jobs.db", policies=tmp_path / "holdfast.toml")

        @app.task
        async def t() -> int:
            return 0

        async with app:
            assert await (await t.enqueue()).result(timeout="30s") == 3
            (tmp_path / "holdfast.toml").write_text("[tasks.t]\nmax_attempts = 4")
            worker.send_signal(signal.SIGHUP)
            async with asyncio.timeout(30):
                while await (await t.enqueue()).result(timeout="30s") != 4:
                    pass
        assert worker.poll() is None
    finally:
        worker.terminate()
        _, said = worker.communicate(timeout=30)
    assert "policy_file.reloaded" in said
    assert worker.returncode == 0


async def test_sighup_does_not_end_a_worker_without_a_file(
    monkeypatch: pytest.MonkeyPatch, heard: Heard, tmp_path: Path
) -> None:  # E10
    monkeypatch.chdir(tmp_path)  # no holdfast.toml here
    for done in ("freeze_imports", "raise_threshold"):  # this process is not its own
        monkeypatch.setattr(gc_tuning, done, int)
    monkeypatch.setattr(sys, "stdin", StringIO())
    app = Holdfast("memory://")

    @app.task
    async def hang_up() -> None:
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL, "it would end us"
        os.kill(os.getpid(), signal.SIGHUP)

    handle = await hang_up.enqueue()
    await app.run_worker(until_idle=True, handle_signals=True)
    assert (await handle.job()).state == "complete"
    assert heard.events() == ["policy_file.not_set"]
