"""A short torture, so that the long one is known to work: `make torture MINUTES=10`."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.domain.job import JobId
from tests.conftest import installed
from tests.e2e.faults.world import Site
from tests.services.postgres import find_binaries
from tests.torture.audit import Summary, audit, percentile
from tests.torture.run import torture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 5.0


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
async def test_a_short_torture_loses_nothing(store: str, tmp_path: Path) -> None:  # E5 E30 E50
    if store == "postgres":
        installed(find_binaries)
    summary = await torture(store, SECONDS / 60, 3, tmp_path)
    assert summary.acknowledged > 5
    assert summary.blows
    assert (summary.lost, summary.second_ends, summary.stuck, summary.broken) == ([], [], [], [])
    assert sum(summary.ended.values()) >= summary.acknowledged


async def test_the_audit_sees_what_is_lost_stuck_or_wrong(tmp_path: Path) -> None:
    async with Site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path) as site:
        done = await site.enqueue("echo", value=5)
        await site.app.run_worker(until_idle=True)
        waiting = await site.enqueue("echo", value=6)
        summary = Summary("sqlite", "", 0, 0, 0)
        await audit(site, {JobId(done): 4, JobId(waiting): 6, JobId("gone"): 7}, summary)
    assert (summary.lost, summary.stuck) == (["gone"], [waiting])
    assert summary.broken == [f"{done}: its result is 5, not 4 (E4)"]
    assert not summary.holds


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1) == 3.0
    assert percentile([], 0.99) == 0.0
