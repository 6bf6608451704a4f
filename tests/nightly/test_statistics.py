"""What statistics cost: the CPU of folding against that of the jobs themselves, and how fast a fold catches up."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.statistics.folding import fold
from tests.apps import new_app, work

pytestmark = [pytest.mark.anyio, pytest.mark.nightly]

JOBS = 20_000


def cpu(url: str) -> float:
    """The seconds of CPU of this process, and of the backends of its database."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    seconds = own.ru_utime + own.ru_stime
    if not url.startswith("postgres"):
        return seconds
    database = url.rsplit("/", 1)[1]
    ticks = sum(map(_ticks, [one for one in Path("/proc").iterdir() if _serves(one, database)]))
    return seconds + ticks / os.sysconf("SC_CLK_TCK")


def _serves(process: Path, database: str) -> bool:
    try:
        title = (process / "cmdline").read_text() if process.name.isdigit() else ""
    except OSError:
        return False
    return title.startswith("postgres:") and f" {database} " in title


def _ticks(process: Path) -> int:
    fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


async def run_jobs(app: Holdfast) -> None:
    task = app.task(name="note")(_note)
    for _ in range(JOBS // 1000):
        await task.enqueue_many(range(1000))
    await work(app, maintenance=False, concurrency=100)


async def _note(number: int) -> int:
    return number


async def test_folding_costs_a_small_share_of_the_jobs_and_catches_up(database_url: str) -> None:  # E68a
    app = new_app(database_url)
    async with app:
        store = (await app.runtime.engine()).store
        began, before = time.monotonic(), cpu(database_url)
        await run_jobs(app)
        drained, between = time.monotonic(), cpu(database_url)
        while await fold(store):
            pass
        folded, after = time.monotonic(), cpu(database_url)
        share, pace = (after - between) / (between - before), (drained - began) / (folded - drained)
        print(f"fold: {share:.1%} of the CPU of the jobs, {pace:.1f} times as fast")
        assert share <= 0.08
        assert pace >= 2
        assert await fold(store) is False
    app = new_app(database_url)
    async with app:
        counts = (await app.stats.overview()).counts
        assert (counts["enqueued"], counts["started"], counts["completed"]) == (JOBS, JOBS, JOBS)
