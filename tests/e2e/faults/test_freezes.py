"""Workers that stop for longer than their lease and wake up later: they may write nothing."""

from __future__ import annotations

import signal

import pytest

from devservices.proxy import Proxy
from tests.e2e.faults.world import LEASE, PATIENT, Site, eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("step", [False, True], ids=["result", "step"])
async def test_what_a_frozen_worker_writes_when_it_wakes_is_refused(site: Site, step: bool) -> None:  # E4 E5
    job_id = await site.enqueue("held_up", step=step)
    frozen = await site.worker().ready()
    await site.started(job_id)
    frozen.signal(signal.SIGSTOP)
    await site.worker(**PATIENT).ready()
    row = await site.reaches(job_id, "complete")
    assert (row.result, row.attempt) == ("by attempt 2", 2)
    site.flag("go on")
    frozen.signal(signal.SIGCONT)
    # It noticed, began a new session, and works again.
    await eventually(lambda: len(frozen.told("worker.started")) == 2, "the worker to begin again")
    if not step:  # a step may also be stopped before it tries
        await eventually(lambda: site.kinds_if(job_id, "stale_write"), "the refusal to be on record")
    kinds = [kind for kind in await site.kinds(job_id) if kind != "stale_write"]
    assert kinds == ["queued", "processing", "reclaimed", "processing", "complete"]
    row = await site.app.jobs.get(job_id)
    assert (row.state, row.result, row.attempt, row.generation) == ("complete", "by attempt 2", 2, 1)
    if step:
        assert await (await site.store()).queries.steps(row.id) == {"once": '"by attempt 2"'}
    again = await site.enqueue("echo", value=5)
    assert (await site.reaches(again, "complete")).result == 5
    await site.consistent([job_id, again])


async def test_a_process_that_was_frozen_runs_its_own_lost_job_again(site: Site) -> None:  # E4 E5 E30
    job_id = await site.enqueue("deaf", name="open")
    worker = await site.worker("--concurrency", "4").ready()
    [first] = await site.started(job_id)
    worker.signal(signal.SIGSTOP)
    await eventually(lambda: site.is_expired(job_id), "its lease to run out", 10 * LEASE)
    worker.signal(signal.SIGCONT)
    _, second = await site.started(job_id, 2)  # the same process, while the old thread still runs
    assert (first["pid"], second["pid"]) == (worker.pid, worker.pid)
    assert second["epoch"] > first["epoch"]
    site.flag("open")
    row = await site.reaches(job_id, "complete")
    assert (row.attempt, row.epoch) == (2, second["epoch"])
    await eventually(lambda: len(site.journal("end", job_id)) == 2, "both threads to end")
    stories = await site.consistent([job_id])
    assert [e.kind for e in stories[job_id] if e.kind == "complete"] == ["complete"]


@pytest.mark.service
async def test_a_worker_cut_off_from_its_store_stops_its_work_before_it_is_given_away(
    postgres_site: Site, postgres_proxy: Proxy
) -> None:  # E4
    site = postgres_site
    job_id = await site.enqueue("gate", name="open")
    # A lease that is not lost before the cut: its own duties would take the job back.
    cut_off = await site.worker(url=postgres_proxy.route(site.url), lease="4s").ready()
    await site.started(job_id)
    await site.worker("--no-maintenance", "--queues", "other").ready()
    postgres_proxy.black_hole = True  # nothing passes and nothing breaks: only its own clock can tell
    await eventually(lambda: site.journal("cancelled", job_id), "the handler to be stopped")
    assert (await site.app.jobs.get(job_id)).state == "processing"  # nobody else reclaims here
    postgres_proxy.heal()
    await site.started(job_id, 2)
    site.flag("open")
    row = await site.reaches(job_id, "complete")
    assert (row.result, row.attempt) == (cut_off.pid, 2)
    await site.consistent([job_id])
