"""A job may take its place in line long before it can be seen: whoever enqueues it commits when they like."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.job import JobSpec, Lane, NewJob
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemClock, SystemIds
from tests.services.databases import new_database
from tests.services.postgres import Postgres

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
