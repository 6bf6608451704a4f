"""Many workers at one queue: each job is started once."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.e2e.faults.world import Site

pytestmark = pytest.mark.slow


async def test_eight_workers_start_each_of_a_thousand_jobs_once(site: Site) -> None:  # E4 E5
    # Eight on two cores: slow is not dead.
    await site.crew(8, "--concurrency", "4", lease="10s", heartbeat="3s")
    ids = await site.enqueue_many("gate", [{"name": "open"}] * 5)  # one more than any of them can hold
    for one in ids:
        await site.started(one)
    ids += await site.enqueue_many("nothing", [{}] * 995)
    site.flag("open")
    await site.drained()
    starts = Counter(line["name"] for line in site.journal("start"))
    assert starts == Counter(ids)
    assert {(await site.app.jobs.get(one)).attempt for one in ids[::100]} == {1}
    stories = await site.consistent(ids)
    assert all([e.kind for e in stories[one]] == ["queued", "processing", "complete"] for one in ids)
    assert len({line["pid"] for line in site.journal("start")}) > 1
    # And now all eight wait for one.
    [single] = await site.enqueue_many("nothing", [{}])
    await site.reaches(single, "complete")
    assert len(site.journal("start", single)) == 1
