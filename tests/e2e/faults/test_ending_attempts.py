"""Timeouts and cancellations: async handlers are cancelled, processes are killed, threads are told."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.faults.world import PATIENT, Site, alive, eventually

pytestmark = pytest.mark.slow


async def test_a_hard_timeout_ends_each_kind_of_handler(site: Site) -> None:  # E2a E41
    await site.worker("--concurrency", "3", **PATIENT).ready()
    await site.reaches(await site.enqueue("burn", name="warm", seconds=0), "complete")  # its child is kept
    ids = {
        "async": await site.enqueue("gate_limited", name="never"),
        "thread": await site.enqueue("deaf_limited", name="open"),
        "process": await site.enqueue("burn_limited", name="fire", seconds=60),
    }
    for what, one in ids.items():
        row = await site.reaches(one, "failed")
        assert (row.error_code, row.attempt, row.crashes) == ("EXECUTION_TIMEOUT", 1, 0), what
        assert await site.kinds(one) == ["queued", "processing", "failed"], what
    assert site.journal("cancelled", ids["async"])
    [fire] = site.journal("start", "fire")
    assert not alive(fire["pid"])
    # The thread could only be told, and nobody listens: it keeps its slot, and its answer counts for nothing.
    site.flag("open")
    await eventually(lambda: site.journal("end", ids["thread"]), "the thread to end")
    assert (await site.app.jobs.get(ids["thread"])).result is None
    await site.consistent(ids.values())


async def test_a_thread_that_overran_keeps_its_slot_until_it_ends(sqlite_site: Site) -> None:  # E41
    site = sqlite_site
    job_id = await site.enqueue("deaf_limited", name="open")
    await site.worker("--concurrency", "1", **PATIENT).ready()
    await site.reaches(job_id, "failed")
    next_one = await site.enqueue("echo", value=1)
    await asyncio.sleep(0.5)
    assert (await site.app.jobs.get(next_one)).state == "queued"
    site.flag("open")
    await site.reaches(next_one, "complete")


async def test_a_cancel_from_elsewhere_stops_what_runs(site: Site) -> None:  # E29
    ids = {
        "async": await site.enqueue("gate", name="never"),
        "thread": await site.enqueue("listening", seconds=60),
        "process": await site.enqueue("burn", name="fire", seconds=60),
    }
    await site.worker("--concurrency", "3", **PATIENT).ready()
    await site.started(ids["async"])
    await site.started(ids["thread"])
    [fire] = await site.started("fire")
    ids["queued"] = await site.enqueue("gate", name="never")  # three slots: it waits
    for one in reversed(ids.values()):  # the one in line first: whoever is cancelled leaves a slot to it
        await site.app.jobs.cancel(one, by="test", reason="enough")
    await eventually(lambda: site.journal("cancelled", ids["async"]), "the coroutine to be cancelled")
    await eventually(lambda: site.journal("told", ids["thread"]), "the thread to be told")
    await eventually(lambda: not alive(fire["pid"]), "the child to be killed")
    after = await site.enqueue("echo", value=7)
    assert (await site.reaches(after, "complete")).result == 7  # every slot is free again
    for what, one in ids.items():
        row = await site.app.jobs.get(one)
        assert (row.state, row.result) == ("cancelled", None), what
        kinds = await site.kinds(one)
        assert kinds == (["queued"] if what == "queued" else ["queued", "processing"]) + ["cancelled"], what
    assert not site.journal("start", ids["queued"])
    await site.consistent([*ids.values(), after])
