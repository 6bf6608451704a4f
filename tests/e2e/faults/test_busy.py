"""Handlers that leave the event loop no time, and jobs that are longer than their lease: run once, all the same."""

from __future__ import annotations

import pytest

from tests.e2e.faults.world import Site

pytestmark = pytest.mark.slow


async def test_long_and_busy_handlers_keep_their_lease(site: Site) -> None:  # E30 E41
    settings = {"lease": "800ms", "heartbeat": "200ms"}
    ids = {
        "a blocking call, ten leases": await site.enqueue("block_loop", seconds=8.0),
        "pure Python, three leases": await site.enqueue("spin", seconds=2.5),
    }
    # One job each, and idle ones beside them that would take over whatever loses its lease.
    await site.crew(2, "--concurrency", "1", **settings)
    for one in ids.values():
        await site.started(one)
    await site.crew(1, **settings)
    await site.drained()
    stories = await site.consistent(ids.values())
    for what, one in ids.items():
        assert [event.kind for event in stories[one]] == ["queued", "processing", "complete"], what
        assert len(site.journal("start", one)) == 1, what
        assert (await site.app.job(one)).attempt == 1, what
    assert not any(worker.told("session.lost") for worker in site.workers)
