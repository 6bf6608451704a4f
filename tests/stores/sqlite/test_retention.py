"""What retention costs on SQLite does not grow with what it keeps, counted in steps of SQLite's machine."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.jobs.job import JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Complete
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import ManualClock
from holdfast.wiring import SystemIds

pytestmark = pytest.mark.anyio

LANE = Lane("default", "work")
JOBS, LIMIT = 5000, 100
DAY = timedelta(days=1)
KEEP = Retention(results=DAY, jobs=30 * DAY, events=10 * DAY)


async def finish(store: SqliteStore, jobs: int) -> None:
    ids = SystemIds()
    session = await store.open_session("anna", DAY)
    for _ in range(jobs // 500):
        await store.enqueue(
            [NewJob(ids.job_id(), "{}", JobSpec(lane=LANE, dedupe=ids.job_id().encode())) for _ in range(500)]
        )
        claimed = await store.claim(session, [LANE], 500)
        await store.settle([Settlement(one.lease, Complete('"x"'), one.attempt) for one in claimed])


async def purge(store: SqliteStore) -> tuple[int, int]:
    """Return how many rows one round has purged, and in how many tens of steps."""
    assert store._database.writer is not None
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    store._database.writer._connection.set_progress_handler(step, 10)
    try:
        done = await store.purge(None, KEEP, LIMIT)
    finally:
        store._database.writer._connection.set_progress_handler(None, 0)
    return done, steps


async def test_a_round_does_not_walk_over_what_is_kept(tmp_path: Path) -> None:  # E38
    clock = ManualClock()
    store = SqliteStore(str(tmp_path / "jobs.db"), clock, None)
    await store.open()
    await finish(store, JOBS)
    done, steps = await purge(store)  # all of them are young
    assert done == 0
    assert steps <= 300
    clock.advance("2d")
    done, _ = await purge(store)
    assert done == LIMIT
    while (await purge(store))[0]:
        pass
    done, steps = await purge(store)  # their results are gone, and they stay for a month
    assert done == 0
    assert steps <= 300
    clock.advance("31d")
    done, steps = await purge(store)
    assert done > 0
    assert steps <= 60 * LIMIT  # not one for each dedupe key that there is
    await store.close()
