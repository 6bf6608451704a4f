"""A real service goes down and comes back slowly while two worker processes call it: what that costs."""

from __future__ import annotations

import pytest

from benchmarks.outage.run import run

pytestmark = [pytest.mark.service]


async def test_an_outage_wastes_few_calls_and_ends_by_itself(postgres_url: str) -> None:  # E20 E22 E23
    found = await run(
        postgres_url, jobs=600, down_seconds=8, cooldown="3s", slow_latency=0.05, concurrency=20, patience=120
    )
    assert found.complete == 600
    assert found.calls_per_job_after_the_trip <= 1.2
    assert found.resumed_after_seconds <= 3 + 5  # the cooldown that may have begun just before, and a little
    assert found.reopened == 0
