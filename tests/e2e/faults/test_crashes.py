"""Workers that are killed: nothing is lost, nothing ends twice, and a job that kills is buried."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import pytest

from tests.e2e.faults.memory_bound import memory_bound
from tests.e2e.faults.world import LEASE, PATIENT, Site, alive, eventually

pytestmark = pytest.mark.slow


async def test_a_job_whose_worker_is_killed_runs_again_and_ends_once(site: Site) -> None:  # E5 E8 E30
    job_id = await site.enqueue("gate", name="open")
    first = await site.worker().ready()
    await site.started(job_id)
    first.kill()
    second = await site.worker(**PATIENT).ready()
    await site.started(job_id, 2)
    site.flag("open")
    row = await site.reaches(job_id, "complete")
    assert (row.result, row.attempt, row.crashes, row.generation) == (second.pid, 2, 0, 1)
    assert await site.kinds(job_id) == ["queued", "processing", "reclaimed", "processing", "complete"]
    one, two = await site.app.jobs.attempts(job_id)
    assert (one.outcome, one.attempt, two.outcome, two.attempt) == ("reclaimed", 1, "complete", 2)
    assert one.failure is not None
    assert one.failure.code == "WORKER_LOST"
    assert one.worker != two.worker
    await site.consistent([job_id])


async def test_a_crash_is_counted_until_an_attempt_ends_in_order(postgres_site: Site) -> None:  # E2a E30
    site = postgres_site
    job_id = await site.enqueue("gate", name="never")
    await site.worker().ready()
    await site.started(job_id)
    site.workers[0].kill()
    await site.worker("--queues", "other").ready()  # it has the duties, but not the job
    row = await site.reaches(job_id, "queued")
    assert (row.attempt, row.crashes, row.leased_by) == (1, 1, None)
    assert row.last_failure is not None
    assert row.last_failure["code"] == "WORKER_LOST"


async def test_killing_whole_groups_at_random_loses_and_doubles_nothing(site: Site) -> None:  # E5 E30
    chance = random.Random(7)
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(300)], max_attempts=50)
    crew = [site.worker("--concurrency", "4") for _ in range(2)]
    for worker in crew:
        await worker.ready()
    kills = 0
    while kills < 5:
        await asyncio.sleep(chance.uniform(0.02, 0.5))
        place = chance.randrange(len(crew))
        crew[place].kill()
        kills += 1
        crew[place] = site.worker("--concurrency", "4")
        if kills < 3:
            ids += await site.enqueue_many("echo", [{"value": n} for n in range(100)], max_attempts=50)
    await site.drained()
    stories = await site.consistent(ids)
    rows = [await site.app.jobs.get(one) for one in ids]
    assert {row.state for row in rows} == {"complete"}
    assert all(len(stories[one]) >= 3 for one in ids)


async def test_a_job_that_kills_its_worker_ends_as_a_dead_letter(site: Site) -> None:  # E2a E30 E32
    bystander = await site.enqueue("gate", name="open")
    site.flag("open")
    job_id = await site.enqueue("kill_worker")
    # One process is replaced by the supervisor; the other half of the pair is there to be killed too.
    supervisor = site.worker("--processes", "2")
    row = await site.reaches(job_id, "failed")
    assert (row.error_code, row.attempt, row.crashes) == ("WORKER_LOST", 2, 2)
    assert await site.kinds(job_id) == ["queued", "processing", "reclaimed", "processing", "failed"]
    [letter] = await site.app.dead_letters.list()
    assert (letter.id, letter.code, letter.attempts) == (job_id, "WORKER_LOST", 2)
    await site.reaches(bystander, "complete")
    assert len(supervisor.told("process.exited")) == 2
    supervisor.signal(signal.SIGTERM)
    assert await supervisor.ended() == 0
    await site.consistent([job_id, bystander])


async def test_a_job_whose_worker_the_kernel_kills_for_its_memory_ends_as_a_dead_letter(
    sqlite_site: Site,
) -> None:  # E2a E30 E32
    site = sqlite_site
    with memory_bound(400_000_000) as bound:
        job_id, bystander = await site.enqueue("hoard"), await site.enqueue("echo", value=7)
        supervisor = site.worker("--processes", "2", under=bound.command if bound else ())
        try:
            row = await site.reaches(job_id, "failed")
            assert (row.error_code, row.attempt, row.crashes) == ("WORKER_LOST", 2, 2)
            assert (await site.reaches(bystander, "complete")).result == 7
            lost = [process["code"] for process in supervisor.told("process.exited")]
        finally:
            supervisor.kill()
        # The one that hoards is killed each time; while it dies, the kernel may take another one with it.
        kills = bound.kills() if bound else 2
        assert kills >= 2
        assert lost == [-signal.SIGKILL] * kills
    [letter] = await site.app.dead_letters.list()
    assert (letter.id, letter.code, letter.attempts) == (job_id, "WORKER_LOST", 2)
    await site.consistent([job_id, bystander])


async def test_an_orphan_is_run_by_the_worker_that_restarts_at_once(sqlite_site: Site) -> None:  # E30
    site = sqlite_site
    job_id = await site.enqueue("gate", name="open")
    began = time.monotonic()
    first = await site.worker("--concurrency", "1").ready()
    await site.started(job_id)
    first.kill()
    # A limit of one: the dead holder must not fill it.
    await site.worker("--concurrency", "1", **PATIENT).ready()
    starts = await site.started(job_id, 2)
    assert starts[1]["at"] - began > LEASE  # never before the lease has run out
    site.flag("open")
    await site.reaches(job_id, "complete")
    await site.consistent([job_id])


async def test_orphans_wait_for_the_next_worker_when_all_are_gone(postgres_site: Site) -> None:  # E30
    site = postgres_site
    ids = [await site.enqueue("gate", name="open") for _ in range(6)]
    crew = await site.crew(2, "--concurrency", "3")
    for one in ids:
        await site.started(one)
    for worker in crew:
        worker.kill()
    site.flag("open")
    rows = [await site.app.jobs.get(one) for one in ids]
    assert {row.state for row in rows} == {"processing"}  # nobody is there to take them back
    await site.worker(**PATIENT).ready()
    await site.drained()
    stories = await site.consistent(ids)
    for one in ids:
        assert [e.kind for e in stories[one]] == [
            "queued",
            "processing",
            "reclaimed",
            "processing",
            "complete",
        ]


async def test_the_child_process_of_a_killed_worker_ends_with_it(sqlite_site: Site) -> None:  # E41
    site = sqlite_site
    await site.enqueue("burn", name="fire", seconds=60)
    worker = await site.worker().ready()
    await eventually(lambda: site.journal("alive", "fire"), "the child to work")
    child = site.journal("start", "fire")[0]["pid"]
    assert child != worker.pid
    os.kill(worker.pid, signal.SIGKILL)  # only the worker: what it started has to notice by itself
    worker.process.wait()
    await eventually(lambda: not alive(child), "the child to end with its parent")


async def test_due_jobs_are_promoted_once_while_their_promoters_are_killed(site: Site) -> None:  # E5
    ids = await site.enqueue_many("echo", [{"value": n} for n in range(200)], delay="1s")
    crew = await site.crew(2)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        victim = crew.pop(0)
        await asyncio.sleep(0.4)
        victim.kill()
        crew.append(site.worker())
    await site.drained()
    stories = await site.consistent(ids)
    assert {(await site.app.jobs.get(one)).state for one in ids} == {"complete"}
    assert all(sum(event.kind == "queued" for event in stories[one]) == 1 for one in ids)
