"""PostgreSQL undoes a transaction because it met another: it is sent again by itself, so often and no more."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.jobs.job import Claimed
from holdfast.stores.postgres.database import TRIES
from tests.e2e.faults.app import make_app
from tests.e2e.faults.test_reclaiming import orphans
from tests.e2e.faults.world import Site, eventually

pytestmark = pytest.mark.service

HOUR = timedelta(hours=1)
#: A table whose next inserts are undone with a code of the server's, and a count of the inserts that were tried.
UNDO = """
CREATE SEQUENCE public.tries;
CREATE FUNCTION public.undo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') <= {times} THEN
        RAISE EXCEPTION 'undone' USING ERRCODE = '{code}';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER undo AFTER INSERT ON holdfast.{table} FOR EACH STATEMENT EXECUTE FUNCTION public.undo();
"""
DEADLOCK, SERIALIZATION = "40P01", "40001"


def undo_inserts(site: Site, table: str, code: str, times: int) -> None:
    with psycopg.connect(site.url, autocommit=True) as server:
        server.execute(UNDO.format(table=table, code=code, times=times).encode())


def tried(site: Site) -> int:
    with psycopg.connect(site.url) as server:
        row = server.execute("SELECT last_value FROM public.tries").fetchone()
    assert row is not None
    return int(row[0])


async def claim(site: Site) -> list[Claimed]:
    store = await site.store()
    return await store.claim(await store.open_session("hand", HOUR), [site.app.tasks["echo"].lane], 10)


@pytest.mark.parametrize("code", [DEADLOCK, SERIALIZATION])
async def test_an_enqueue_that_was_undone_is_sent_again(postgres_site: Site, code: str) -> None:  # E6 E51
    undo_inserts(postgres_site, "job", code, TRIES - 1)
    ids = await postgres_site.enqueue_many("echo", [{"value": n} for n in range(3)])
    assert tried(postgres_site) == TRIES
    assert sorted(event.job_id for event in await postgres_site.all_events()) == sorted(ids)


@pytest.mark.parametrize("code", [DEADLOCK, SERIALIZATION])
async def test_a_claim_that_was_undone_is_sent_again(postgres_site: Site, code: str) -> None:  # E6 E51
    job_id = await postgres_site.enqueue("echo", value=1)
    undo_inserts(postgres_site, "lease", code, TRIES - 1)
    [one] = await claim(postgres_site)
    assert (one.lease.job_id, one.attempt) == (job_id, 1)
    assert await postgres_site.kinds(job_id) == ["queued", "processing"]


async def test_what_is_undone_again_and_again_is_told_after_so_many_tries(
    postgres_site: Site,
) -> None:  # E6 E51
    undo_inserts(postgres_site, "job", SERIALIZATION, 1000)
    with pytest.raises(StoreUnavailable, match="undid a transaction that met another; try again"):
        await postgres_site.enqueue("echo", value=1)
    assert tried(postgres_site) == TRIES
    assert (await postgres_site.app.jobs.counts())["queued"] == 0


async def test_a_reclaim_that_meets_a_deadlock_goes_through(postgres_site: Site) -> None:  # E30 E51
    """Two leases, locked in this order by the reaper and in the other one by somebody else."""
    site = postgres_site
    first, second = sorted(one.lease.job_id for one in await orphans(site, 2))
    other = await asyncpg.connect(site.url)
    lock = "SELECT 1 FROM holdfast.lease WHERE job_id = $1 FOR UPDATE"
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    watch = await asyncpg.connect(site.url)
    try:
        async with other.transaction():
            await other.execute("SET LOCAL deadlock_timeout = '20s'")  # it is not the one who is undone
            await other.execute(lock, second)
            reclaiming = asyncio.create_task((await site.app.runtime.engine()).recovery.reclaim())

            async def waits() -> bool:
                return bool(await watch.fetchval(waiting))

            await eventually(waits, "the reaper to wait for the second lease")
            await other.execute(lock, first)  # only possible once the reaper was undone
        assert await reclaiming == 2
    finally:
        await other.close()
        await watch.close()
    for job_id in (first, second):
        assert await site.kinds(job_id) == ["queued", "processing", "reclaimed"]


@pytest.mark.slow
async def test_a_database_that_is_serializable_by_default_loses_and_doubles_nothing(
    postgres_site: Site,
) -> None:  # E5 E51
    site = postgres_site
    with psycopg.connect(site.url, autocommit=True) as server:
        server.execute(
            f"ALTER DATABASE {site.url.rpartition('/')[2]} SET default_transaction_isolation = serializable".encode()
        )
    crew = await site.crew(2, lease="10s", heartbeat="2s")
    apps = [make_app(site.url) for _ in range(4)]
    try:
        handles = [
            handle
            for batch in await asyncio.gather(
                *(app.tasks["flaky"].enqueue_many([{"value": n} for n in range(25)]) for app in apps)
            )
            for handle in batch
        ]
        handles += await asyncio.gather(
            *(app.tasks["flaky"].enqueue(value=n) for n, app in enumerate(apps * 10))
        )
    finally:
        for app in apps:
            await app.close()
    await site.drained(50)
    assert (await site.app.jobs.counts())["complete"] == len(handles) == 140
    assert not any(worker.has_traceback for worker in crew)
    await site.consistent([handle.id for handle in handles])
