"""Handlers that leave the event loop no time, and jobs that are longer than their lease: run once, all the same."""

from __future__ import annotations

import pytest

from tests.e2e.faults.world import LEASE, PATIENT, Site, eventually

pytestmark = pytest.mark.slow


async def test_long_and_busy_handlers_keep_their_lease(site: Site) -> None:  # E30 E41
    many = 3.5 if site.is_postgres else 10.5
    ids = {
        "a blocking call of many leases": await site.enqueue("block_loop", seconds=many * LEASE),
        "pure Python, longer than a lease": await site.enqueue("spin", seconds=3.5 * LEASE),
    }
    # One job each, and idle ones beside them that would take over whatever loses its lease.
    lease = "2s"  # a heartbeat that waits a second for a core has not lost it
    await site.crew(2, "--concurrency", "1", lease=lease)
    for one in ids.values():
        await site.started(one)
    await site.crew(1, lease=lease)
    await site.drained()
    stories = await site.consistent(ids.values())
    for what, one in ids.items():
        assert [event.kind for event in stories[one]] == ["queued", "processing", "complete"], what
        assert len(site.journal("start", one)) == 1, what
        assert (await site.app.jobs.get(one)).attempt == 1, what
    assert not any(worker.told("session.lost") for worker in site.workers)


async def test_a_call_that_stops_the_whole_process_loses_its_lease_and_says_so(
    sqlite_site: Site,
) -> None:  # E4 E30
    """Nothing can beat for a process in which no thread runs: its job is given to others, and what it says later is refused."""
    site = sqlite_site
    job_id = await site.enqueue("hold_everything", seconds=3 * LEASE)
    [frozen] = await site.crew(1)
    await site.started(job_id)
    [other] = await site.crew(1, **PATIENT)
    row = await site.reaches(job_id, "complete")
    assert (row.attempt, row.result) == (2, other.pid)
    await eventually(lambda: frozen.told("session.lost"), "the first worker to notice")
    await eventually(lambda: len(site.journal("end", job_id)) == 2, "the call to end")
    stories = await site.consistent([job_id])
    kinds = [event.kind for event in stories[job_id] if event.kind != "stale_write"]
    assert kinds == ["queued", "processing", "reclaimed", "processing", "complete"]
    assert (await site.app.jobs.get(job_id)).result == other.pid
