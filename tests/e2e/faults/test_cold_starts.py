"""A hard timeout counts from when the handler runs: what its process needs to start is not charged to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.stores.encoding import OVERRUN_MARGIN
from holdfast.tasks.task import Task
from holdfast.worker import processes
from holdfast.worker.processes import COLD_START, ChildEnded, ChildNotReady, ProcessPool
from tests.e2e.faults import slow_start
from tests.e2e.faults.world import PATIENT, Site, alive, eventually

LIMIT = 1.0  #: the timeout of `linger`


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    with ThreadPoolExecutor(4) as threads:
        made = ProcessPool(threads)
        yield made
        made.close()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTS_FOLDER", str(tmp_path))


def task() -> Task[..., Any]:
    return Holdfast("memory://").task(execute="process")(slow_start.linger)


def ended(kinds: list[str]) -> list[str]:
    """Without what a busy machine may add: a start that was too slow even so, and was not charged either."""
    return [kind for kind in kinds if kind not in ("processing", "released")]


def test_the_store_allows_for_a_cold_start() -> None:  # E41
    """And for the way of the claim and of the verdict: else it would take back what may still run."""
    assert OVERRUN_MARGIN.total_seconds() >= COLD_START + 1.5


@pytest.mark.slow
async def test_the_start_of_a_process_is_not_charged_to_its_job(site: Site) -> None:  # E41
    job_id = await site.enqueue("linger", name="cold", seconds=LIMIT / 10)
    worker = site.worker(faults_slow_start=f"{1.2 * LIMIT}", **PATIENT)
    row = await site.reaches(job_id, "complete")
    assert (row.attempt, len(site.journal("start", "cold"))) == (1, 1)
    assert ended(await site.kinds(job_id)) == ["queued", "complete"]
    assert not worker.has_traceback


@pytest.mark.slow
async def test_a_handler_that_overruns_is_killed_when_its_own_time_is_over(site: Site) -> None:  # E2a E41
    job_id = await site.enqueue("linger", name="endless", seconds=60)
    await site.worker(faults_slow_start=f"{LIMIT}", **PATIENT).ready()
    row = await site.reaches(job_id, "failed")
    assert (row.error_code, row.attempt, row.crashes) == ("EXECUTION_TIMEOUT", 1, 0)
    assert ended(await site.kinds(job_id)) == ["queued", "failed"]
    [start] = site.journal("start", "endless")
    last = max(line["at"] for line in site.journal("alive", "endless"))
    # Its own time, and not what its start has left of it: nothing. Where others have the cores it writes less often.
    assert 0.3 * LIMIT < last - start["at"] < LIMIT + COLD_START
    assert not alive(start["pid"])


@pytest.mark.slow
async def test_a_job_whose_process_starts_too_slowly_is_given_back_until_it_is_ready(
    sqlite_site: Site,
) -> None:  # E9 E41
    site = sqlite_site
    job_id = await site.enqueue("linger", name="later", seconds=LIMIT / 10)
    await site.worker(faults_slow_start=f"{COLD_START + 2}", **PATIENT).ready()
    row = await site.reaches(job_id, "complete")
    kinds = await site.kinds(job_id)
    assert kinds == [
        "queued",
        *["processing", "released"] * kinds.count("released"),
        "processing",
        "complete",
    ]
    assert kinds.count("released") >= 1
    assert (row.attempt, row.crashes) == (1, 0)  # nothing was burnt
    assert len(site.journal("importing")) == 1  # it was the same process all along
    assert len(site.journal("start", "later")) == 1


async def test_a_child_that_nobody_waits_for_is_there_for_the_next(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:  # E41
    monkeypatch.setenv("FAULTS_SLOW_START", "0.5")
    linger = task()
    with pytest.raises(ChildNotReady, match=r"the process of linger was not ready after 0\.01 s"):
        await pool.take(linger, 0.01)
    waiting = asyncio.create_task(pool.take(linger, None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    [child] = pool._all
    assert await pool.take(linger, 30) is child
    pool.give(child)
    assert await pool.take(linger, 0.01) is child


async def test_a_child_that_is_never_ready_is_an_error_and_not_a_wait_for_ever(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:  # E41
    monkeypatch.setenv("FAULTS_SLOW_START", "60")
    monkeypatch.setattr(processes, "READY_WITHIN", 0.1)
    linger = task()
    with pytest.raises(ChildEnded, match="the process of linger was not ready after 0 s"):
        await pool.take(linger, None)
    # The same for one that had been left: whoever comes next is told.
    with pytest.raises(ChildNotReady):
        await pool.take(linger, 0.001)
    [child] = pool._all
    await eventually(lambda: not child.alive, "the child to be given up")
    with pytest.raises(ChildEnded):
        await pool.take(linger, None)
    assert pool._all == set()


async def test_a_child_that_died_in_its_sleep_is_replaced(pool: ProcessPool) -> None:  # E41
    linger = task()
    child = await pool.take(linger, None)
    pool.give(child)
    child._process.kill()
    await eventually(lambda: not child.alive, "the child to end")
    assert await pool.take(linger, None) is not child
