"""Handlers that hold the event loop, or the whole interpreter: a worker that gets SIGTERM ends all the same."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.faults.world import PATIENT, Site, Worker, alive, eventually

pytestmark = pytest.mark.slow

#: What lets signals in, so that the process can end itself.
HOLDS = ["Python", "a sleep", "a regular expression"]
#: The seconds that faulthandler says it has waited: the grace, and five.
ENDED = "Timeout (0:00:05.500000)!"


async def held(site: Site, how: str, *options: str, command: str = "worker") -> tuple[str, Worker, int]:
    """A job whose handler holds its worker, the process that was started, and the one that runs the handler."""
    job_id = await site.enqueue("hold_loop", how=how)
    worker = site.worker(*options, command=command, grace="500ms")
    [start] = await site.started(job_id)
    return job_id, worker, start["pid"]


async def ran_elsewhere(site: Site, job_id: str) -> None:
    """Another worker takes the job over and completes it: nothing was lost."""
    other = await site.worker(**PATIENT).ready()
    row = await site.reaches(job_id, "complete")
    assert (row.result, row.attempt) == (other.pid, 2)
    await site.consistent([job_id])
    assert len(site.journal("end", job_id)) == 1


@pytest.mark.parametrize("how", HOLDS)
async def test_a_worker_whose_loop_is_held_ends_after_the_grace(site: Site, how: str) -> None:  # E31
    job_id, worker, _ = await held(site, how)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 1
    assert ENDED in worker.log
    assert "in hold_loop" in worker.log  # the stacks say who it was
    await ran_elsewhere(site, job_id)


@pytest.mark.parametrize("how", [*HOLDS, "C"])
async def test_workers_under_a_parent_end_with_it(sqlite_site: Site, how: str) -> None:  # E31
    site = sqlite_site
    job_id, parent, pid = await held(site, how, "--processes", "2")
    parent.signal(signal.SIGTERM)
    assert await parent.ended() == 1
    assert not alive(pid)
    # Where no signal gets in, the parent ends it; where one does, it ends itself before that.
    assert bool(parent.told("process.killed")) == (how == "C")
    assert (ENDED in parent.log) == (how != "C")
    await ran_elsewhere(site, job_id)


@pytest.mark.parametrize(
    ("how", "options"), [("Python", ()), ("a regular expression", ()), ("C", ("--processes", "2"))]
)
async def test_up_ends_as_a_worker_does(sqlite_site: Site, how: str, options: tuple[str, ...]) -> None:  # E31
    site = sqlite_site
    job_id, worker, pid = await held(site, how, *options, command="up")
    worker.signal(signal.SIGINT)
    assert await worker.ended() == 1
    assert not alive(pid)
    assert (ENDED in worker.log) == (how != "C")
    await ran_elsewhere(site, job_id)


async def test_a_second_signal_does_not_give_a_held_loop_more_time(sqlite_site: Site) -> None:  # E31
    site = sqlite_site
    job_id = await site.enqueue("hold_loop", how="Python")
    worker = site.worker(grace="1h")
    await site.started(job_id)
    worker.signal(signal.SIGTERM)
    worker.signal(signal.SIGINT)
    assert await worker.ended() == 1
    assert "Timeout (0:00:05)!" in worker.log
    await ran_elsewhere(site, job_id)


async def test_a_child_process_ends_with_its_worker_though_nothing_can_run_in_it(
    sqlite_site: Site,
) -> None:  # E31 E41
    site = sqlite_site
    await site.enqueue("burn_in_c", name="fire")
    worker = await site.worker(**PATIENT).ready()
    [fire] = await site.started("fire")
    worker.signal(signal.SIGKILL)
    await worker.ended()
    await eventually(lambda: not alive(fire["pid"]), "the child to end")


async def test_what_holds_the_loop_is_named_once(sqlite_site: Site) -> None:  # E63
    site = sqlite_site
    ids = [await site.enqueue("block_loop", seconds=2) for _ in range(2)]
    worker = await site.worker("--concurrency", "1", **PATIENT).ready()
    for one in ids:
        await site.reaches(one, "complete")
    [line] = [line for line in worker.told("event_loop.blocked") if line["task"]]
    assert (line["task"], line["job_id"], line["level"]) == ("block_loop", ids[0], "warning")
    assert line["at"].startswith("tests/e2e/faults/app.py:")
    assert line["at"].endswith(" in block_loop")


async def test_a_loop_that_turns_is_not_named(sqlite_site: Site) -> None:  # E63
    site = sqlite_site
    ids = [await site.enqueue("gate", name="open"), await site.enqueue("deaf", name="open")]
    worker = await site.worker(**PATIENT).ready()
    for one in ids:
        await site.started(one)
    await site.reaches(await site.enqueue("block_loop", seconds=0.2), "complete")
    site.flag("open")
    for one in ids:
        await site.reaches(one, "complete")
    # On a busy machine the process as a whole may be without a core for a second; that names no task.
    assert not [line for line in worker.told("event_loop.blocked") if line["task"]]
