"""Held lanes on PostgreSQL: however many jobs wait in one, the others are claimed as if it were not there."""

from __future__ import annotations

import psycopg
import pytest

from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.jobs.job import Lane
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.resilience.breaker import Breaker, BreakerState
from tests.stores.postgres.lanes import MINUTE, fill, pages_of_claims, report_reads, session, stores

pytestmark = pytest.mark.anyio

FREE, HELD = Lane("mail", "send"), Lane("mail", "convert", "gateway")
JOBS = 60_000


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["pause", "breaker"])
async def test_a_lane_full_of_held_jobs_does_not_make_the_others_dearer(
    postgres_url: str, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E24
    report_reads(monkeypatch)
    async with stores(postgres_url) as [store]:
        await store.register([HELD])
        fill(postgres_url, FREE, 10_000)
        worker = await session(store)
        without = await pages_of_claims(postgres_url, store, worker, [FREE, HELD], 40)
        fill(postgres_url, HELD, JOBS)
        if holder == "pause":
            scope = Scope(ScopeKind.TASK, "convert")
            await store.lanes.hold(scope, Cause.PAUSE, span=None, reason="deploy", by="ann")
        else:
            now = await store.now()
            opened = Breaker(BreakerState.OPEN, 1, now, now, now + MINUTE)
            assert await swap_breaker(store, Dependency("gateway"), opened, holds=True)
        written = rows_written(postgres_url)
        beside = await pages_of_claims(postgres_url, store, worker, [FREE, HELD], 40)
        assert 0 < beside < 2 * without  # 1.15 at most where nothing is wrong
        assert rows_written(postgres_url) == written


def rows_written(url: str) -> int:
    """How many rows of held jobs were changed since they came."""
    with psycopg.connect(url) as connection:
        sql = """SELECT count(*) FROM holdfast.ready r JOIN holdfast.lane l ON l.id = r.lane
                  WHERE l.task = 'convert' AND r.xmax::text <> '0'"""
        [(count,)] = connection.execute(sql.encode()).fetchall()
        return int(count)
