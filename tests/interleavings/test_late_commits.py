"""A caller may commit long after its job took a place in the queue and its event took a number."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from devservices.postgres import Postgres
from holdfast.jobs.job import JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.verdict import Failure, RetryAfter
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import ManualClock
from holdfast.wiring import SystemClock, SystemIds
from tests.databases import new_database

LANE = Lane("default", "email")


async def test_a_job_is_found_although_others_behind_it_were_claimed_before(
    postgres: Postgres,
) -> None:  # E5 E51
    ids, spec = SystemIds(), JobSpec(lane=LANE)
    early, late = (NewJob(ids.job_id(), "{}", spec) for _ in "ab")
    with new_database(postgres) as url:
        store = PostgresStore(url, SystemClock(), None)
        await store.open()
        try:
            session = await store.open_session("worker", timedelta(hours=1))
            async with store.transaction() as connection:
                await store.enqueue_in(connection, [early])
                await store.enqueue([late])
                [claimed] = await store.claim(session, [LANE], 2)
                assert claimed.lease.job_id == late.id
            [claimed] = await store.claim(session, [LANE], 2)
            assert claimed.lease.job_id == early.id
        finally:
            await store.close()


async def test_a_reader_of_the_log_does_not_pass_by_a_transaction_that_is_still_open(
    postgres: Postgres,
) -> None:  # E60
    """Its events have lower numbers. A cursor that went past them would skip them for good."""
    ids, spec = SystemIds(), JobSpec(lane=LANE)
    early, late = (NewJob(ids.job_id(), "{}", spec) for _ in "ab")
    with new_database(postgres) as url:
        store = PostgresStore(url, SystemClock(), None)
        await store.open()
        try:
            async with store.transaction() as connection:
                await store.enqueue_in(connection, [early])
                await store.enqueue([late])
                while_open = await store.queries.events(after=0, limit=10)
                assert await store.queries.newest_event() == 0
            cursor = max((event.id for event in while_open), default=0)
            async with asyncio.timeout(10):  # others on this server may keep events back for a moment
                while len(seen := while_open + await store.queries.events(after=cursor, limit=10)) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert [event.job_id for event in seen] == [early.id, late.id]
        finally:
            await store.close()


async def test_a_retry_is_due_by_the_servers_clock(postgres: Postgres) -> None:  # E4
    """Not by that of the process, which may be an hour ahead."""
    ahead = ManualClock(datetime.now(UTC) + timedelta(hours=1))
    job = NewJob(SystemIds().job_id(), "{}", JobSpec(lane=LANE, max_attempts=3))
    with new_database(postgres) as url:
        store = PostgresStore(url, ahead, None)
        await store.open()
        try:
            await store.enqueue([job])
            session = await store.open_session("worker", timedelta(hours=1))
            for delay in (timedelta(), timedelta(minutes=1)):
                [claimed] = await store.claim(session, [LANE], 1)
                verdict = RetryAfter(delay, Failure("BOOM", "BOOM happened"))
                await store.settle([Settlement(claimed.lease, verdict, claimed.attempt)])
                row, now = await store.queries.job(job.id), await store.now()
                assert row is not None
                assert timedelta() <= now + delay - row.run_at < timedelta(seconds=30)
        finally:
            await store.close()


async def test_a_dedupe_key_taken_by_an_open_transaction_does_not_end_that_of_another_caller(
    postgres: Postgres,
) -> None:  # E36 E44
    """The second waits for the first and is a duplicate of it. An error here would undo all else that it did."""
    ids, spec = SystemIds(), JobSpec(lane=LANE, dedupe=bytes(32))
    one, twin, other = (NewJob(ids.job_id(), "{}", s) for s in (spec, spec, JobSpec(lane=LANE)))
    with new_database(postgres) as url:
        store = PostgresStore(url, SystemClock(), None)
        await store.open()

        async def second(begun: asyncio.Event) -> bool:
            async with store.transaction() as connection:
                await store.enqueue_in(connection, [other])
                begun.set()
                [answer] = await store.enqueue_in(connection, [twin])
                return answer.duplicate and answer.id == one.id

        try:
            async with asyncio.timeout(20), store.transaction() as connection:
                await store.enqueue_in(connection, [one])
                begun = asyncio.Event()
                waiting = asyncio.ensure_future(second(begun))
                await begun.wait()
                waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
                while not await connection.fetchval(waits):  # until it stands at the key
                    await connection.execute("SELECT pg_stat_clear_snapshot(), pg_sleep(0.01)")
            assert await waiting
            assert (await store.queries.counts())["queued"] == 2
        finally:
            await store.close()
