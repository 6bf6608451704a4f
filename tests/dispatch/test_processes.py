"""Processes that get their jobs from Redis, killed in the middle: nothing is lost, and nothing ends twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from devservices.redis import RedisServer
from holdfast import Holdfast
from tests.apps import until

APP = """
import asyncio, os
from holdfast import Holdfast

app = Holdfast(lease="1500ms", reclaim_every="100ms", poll="100ms", concurrency=4)


@app.task(max_crashes=50)
async def note(number: int) -> int:
    await asyncio.sleep(0.01)
    return number
"""
JOBS = 150
pytestmark = pytest.mark.service


@contextlib.contextmanager
def a_worker(folder: Path, url: str, dispatch: str) -> Iterator[subprocess.Popen[bytes]]:
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "worker", "tasks:app", "--dispatch", dispatch],
        cwd=folder,
        env={**os.environ, "HOLDFAST_DATABASE_URL": url},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait(10)


async def test_a_worker_that_is_killed_loses_nothing_of_what_the_broker_gave_it(
    tmp_path: Path, postgres_url: str, own_redis: RedisServer
) -> None:  # E45 S6 E30
    (tmp_path / "tasks.py").write_text(APP)
    app = Holdfast(postgres_url)

    @app.task
    async def note(number: int) -> int:
        raise AssertionError("other processes run it")

    async with app:
        await note.enqueue_many([{"number": number} for number in range(JOBS)])

        async def done(least: int) -> bool:
            return (await app.jobs.counts())["complete"] >= least

        with a_worker(tmp_path, postgres_url, own_redis.url()) as first:
            await until(lambda: done(20))
            first.kill()  # the one that does the duty, too
            with a_worker(tmp_path, postgres_url, own_redis.url()) as second:
                await until(lambda: done(JOBS))
                second.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(second.wait, 10) == 0
        engine = await app.runtime.engine()
        assert await engine.store.queries.violations() == []
        ends: Counter[str] = Counter()
        after = 0
        while events := await app.events.list(after=after):
            ends.update(event.job_id for event in events if event.kind == "complete")
            after = events[-1].id
        assert len(ends) == JOBS
        assert set(ends.values()) == {1}
