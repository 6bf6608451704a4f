"""A real service goes down and comes back slowly while two worker processes call it: what that costs."""

from __future__ import annotations

import pytest

from benchmarks.outage.run import Figures, run

pytestmark = [pytest.mark.service]


async def outage(url: str) -> Figures:
    return await run(
        url, jobs=600, down_seconds=8, cooldown="3s", slow_latency=0.05, concurrency=20, timeout=120
    )


async def test_an_outage_wastes_few_calls_and_ends_by_itself(postgres_url: str) -> None:  # E20 E22 E23
    found = await outage(postgres_url)
    assert found.complete == 600
    assert found.calls_per_job_after_the_trip <= 1.2


@pytest.mark.nightly
async def test_work_goes_on_within_the_cooldown_and_five_seconds_and_does_not_stop_again(
    postgres_url: str,
) -> None:  # E20 E22
    found = await outage(postgres_url)
    assert found.resumed_after_seconds <= 3 + 5  # the cooldown that may have begun just before, and a little
    assert found.reopened == 0
