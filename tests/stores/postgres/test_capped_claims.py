"""Caps and charges on PostgreSQL, with many processes at once: a bound holds whoever comes when."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast.engine.lane_store import Cap, Charge
from holdfast.engine.tables.usage import quota_use
from holdfast.jobs.job import Lane, Settlement
from holdfast.jobs.verdict import Complete, Release
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.limits import charge
from tests.apps import until
from tests.stores.postgres.lanes import MINUTE, enqueue, session, stores

pytestmark = pytest.mark.anyio

LANE = Lane("mail", "send")
CAP = Cap("queue:mail", concurrency=5)


async def running(store: PostgresStore) -> int:
    return (await store.queries.counts())["processing"]


async def test_many_workers_never_run_more_than_the_cap(postgres_url: str) -> None:  # E26
    async with stores(postgres_url, 4) as several:
        await enqueue(several[0], LANE, [None] * 300)
        seen: list[int] = []
        done = 0

        async def work(store: PostgresStore) -> None:
            nonlocal done
            holder = await session(store)
            while done < 300:
                claimed = await store.claim(holder, [LANE], 3, caps=[CAP, Cap("task:send", concurrency=4)])
                seen.append(await running(store))
                ends = [Settlement(one.lease, Complete("1"), one.attempt) for one in claimed]
                if len(ends) == 3:
                    ends[0] = Settlement(claimed[0].lease, Release(), claimed[0].attempt)
                await store.settle(ends)
                done += sum(isinstance(end.verdict, Complete) for end in ends)

        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            for store in several:
                group.create_task(work(store))
        assert max(seen) <= 4
        assert max(seen) > 1


async def test_a_bound_that_was_made_smaller_counts_who_runs_beyond_it(postgres_url: str) -> None:  # E26
    async with stores(postgres_url) as [store]:
        await enqueue(store, LANE, [None] * 10)
        holder = await session(store)
        first = await store.claim(holder, [LANE], 5, caps=[CAP])
        smaller = CAP._replace(concurrency=3)
        for end, left in ((0, 0), (1, 0), (2, 1)):  # 4, 3, then 2 are running
            await store.settle([Settlement(first[end].lease, Complete("1"), first[end].attempt)])
            assert len(await store.claim(holder, [LANE], 5, caps=[smaller])) == left


async def test_a_rate_holds_over_all_workers(postgres_url: str) -> None:  # E26
    async with stores(postgres_url, 4) as several:
        await enqueue(several[0], LANE, [None] * 100)
        rate = Cap("queue:mail", rate=7, per=timedelta(hours=1))

        async def claim(store: PostgresStore) -> int:
            holder = await session(store)
            return sum([len(await store.claim(holder, [LANE], 3, caps=[rate])) for _ in range(5)])

        assert sum(await asyncio.gather(*map(claim, several))) == 7


async def test_a_worker_frozen_in_a_capped_claim_keeps_nobody_from_other_lanes(
    postgres_url: str,
) -> None:  # E26
    async with stores(postgres_url) as [store]:
        await enqueue(store, LANE, [None] * 10)
        [free] = await enqueue(store, Lane("mail", "log"), [None])
        holder, rate = await session(store), Cap("queue:mail", concurrency=5, rate=100, per=MINUTE)
        assert len(await store.claim(holder, [LANE], 2, caps=[rate])) == 2
        frozen = await asyncpg.connect(postgres_url)
        try:
            async with frozen.transaction():
                await frozen.fetch("SELECT * FROM holdfast.meter FOR UPDATE")
                assert await store.claim(holder, [LANE], 2, caps=[rate]) == []
                assert [one.lease.job_id for one in await store.claim(holder, [Lane("mail", "log")], 2)] == [
                    free
                ]
        finally:
            await frozen.close()
        assert len(await store.claim(holder, [LANE], 2, caps=[rate])) == 2


async def test_charges_with_the_same_keys_in_any_order_do_not_block_each_other(
    postgres_url: str,
) -> None:  # E18
    async with stores(postgres_url, 4) as several:
        ann, acme = Charge("owner:ann", "day", 50), Charge("org:acme", "month", 1000, 2)
        often = Charge("org:acme", "rate", 10_000, 1, MINUTE)

        async def charge(store: PostgresStore, turned: bool) -> int:
            group = [often, acme, ann] if turned else [ann, acme, often]
            answers = [answer for _ in range(10) for answer in await store.lanes.charge([group, group[:2]])]
            return answers.count(None)

        taken = await asyncio.gather(*(charge(store, n % 2 == 0) for n, store in enumerate(several)))
        used = await quota_use(several[0], "owner:ann")
        assert used == {"day": 50}
        assert sum(taken) >= 50
        assert (await quota_use(several[0], "org:acme"))["month"] % 2 == 0


async def test_a_group_that_is_refused_leaves_the_others_of_its_batch_alone(postgres_url: str) -> None:  # E18
    async with stores(postgres_url) as [store]:
        small, large = Charge("owner:ann", "day", 3), Charge("owner:ann", "day", 3, 3)
        answers = await store.lanes.charge([[small], [large], [small, small], [small], []])
        assert [answer is None for answer in answers] == [True, False, True, False, True]
        assert await quota_use(store, "owner:ann") == {"day": 3}


async def test_of_two_first_charges_of_a_day_at_once_the_second_counts_the_first(
    postgres_url: str,
) -> None:  # E18
    async with stores(postgres_url) as [store]:
        one_a_day = Charge("owner:ann", "day", 1)
        first = await asyncpg.connect(postgres_url)
        try:
            await first.execute(
                "INSERT INTO holdfast.usage VALUES ('owner:ann', 'day', holdfast.clock() - interval '2 days', 1)"
            )
            async with first.transaction():
                assert await charge(first, [[one_a_day]]) == [None]
                second = asyncio.create_task(store.lanes.charge([[one_a_day]]))
                await until(lambda: is_blocking(first))
            [refused] = await second
            assert refused is not None
        finally:
            await first.close()
        assert await quota_use(store, "owner:ann") == {"day": 1}


async def is_blocking(connection: asyncpg.Connection[Any]) -> bool:
    """Whether another session waits for a lock of this one."""
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
        )
    )
