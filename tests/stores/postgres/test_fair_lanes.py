"""Fair lines on PostgreSQL: as cheap as others however long they are, and nobody locks anything in a caller's transaction."""

from __future__ import annotations

import asyncio
from collections import Counter

import asyncpg
import psycopg
import pytest

from holdfast.jobs.job import Claimed, JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.verdict import Complete, Release
from holdfast.resilience.fairness import STRIDE, UNPLACED
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemIds
from tests.stores.postgres.lanes import (
    enqueue,
    fill,
    owners_of,
    pages_of_claims,
    report_reads,
    session,
    stores,
)

pytestmark = pytest.mark.anyio

FAIR, PLAIN = Lane("mail", "send", fair=True), Lane("mail", "log")
JOBS, OWNERS = 50_000, 5_000


async def place_all(store: PostgresStore) -> None:
    while await store._database.read(store._stager.all):
        pass


@pytest.mark.slow
async def test_a_long_line_of_many_owners_is_claimed_as_cheaply_as_any(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E25
    report_reads(monkeypatch)
    async with stores(postgres_url) as [store]:
        fill(postgres_url, PLAIN, JOBS)
        fill(
            postgres_url,
            FAIR,
            JOBS,
            f"CASE WHEN mod(i, 10) < 4 THEN 'hog' ELSE 'owner ' || mod(i, {OWNERS}) END",
        )
        await place_all(store)
        holder = await session(store)
        plain, fair = [
            await pages_of_claims(postgres_url, store, holder, [lane], 40) for lane in (PLAIN, FAIR)
        ]
        assert 0 < fair < 2 * plain  # 1.05 where nothing is wrong

        # Whoever comes new starts among the next of twice as many as there are owners: those who stand at the same pass and
        # have come before are served first, one of each owner.
        [newcomer] = await enqueue(store, FAIR, ["newcomer"])
        active = OWNERS * 6 // 10 + 1  # the others' numbers are the hog's
        before: list[str] = []
        while newcomer not in before and len(before) < 2 * active:
            before += [one.lease.job_id for one in await store.claim(holder, [FAIR], 1000)]
        assert newcomer in before[: 2 * active]


async def test_owners_with_long_and_short_lines_get_equal_shares(postgres_url: str) -> None:  # E25
    async with stores(postgres_url) as [store]:
        backlogs = {f"owner {number}": 30 * 2**number for number in range(6)}
        await enqueue(store, FAIR, [owner for owner, size in backlogs.items() for _ in range(size)])
        holder, served = await session(store), Counter[str]()
        for _ in range(18):
            served.update(owners_of(await store.claim(holder, [FAIR], 10)))
        shares = [served[owner] for owner in backlogs]
        assert sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)) > 0.99  # Jain's index


async def test_many_processes_enqueue_and_claim_one_fair_line(postgres_url: str) -> None:  # E25
    """Placing, claiming and giving back at the same time loses nobody and hands nobody out twice."""
    wanted, feeding = 300, 3
    async with stores(postgres_url, 3) as several:

        async def feed(store: PostgresStore, name: str) -> None:
            nonlocal feeding
            for number in range(wanted // 10):
                await enqueue(store, FAIR, [f"{name} {number % 4}", name] * 5)
            feeding -= 1

        async def work(store: PostgresStore) -> list[Claimed]:
            holder, done, misses = await session(store), list[Claimed](), 0
            while feeding or misses < 20:
                claimed = await store.claim(holder, [FAIR], 7)
                misses = 0 if claimed else misses + 1
                back, kept = claimed[:1], claimed[1:]
                if len(done) > 50:
                    back, kept = [], claimed
                await store.settle([Settlement(one.lease, Release(), one.attempt) for one in back])
                await store.settle([Settlement(one.lease, Complete("1"), one.attempt) for one in kept])
                done += kept
            return done

        async with asyncio.TaskGroup() as group:
            for number, store in enumerate(several):
                group.create_task(feed(store, f"feeder {number}"))
            workers = [group.create_task(work(store)) for store in several]
        done = [one.lease.job_id for worker in workers for one in worker.result()]
        assert len(done) == len(set(done)) == 3 * wanted


async def test_nobody_is_claimed_before_being_placed_and_a_busy_stager_keeps_nobody_waiting(
    postgres_url: str,
) -> None:  # E25
    async with stores(postgres_url) as [store]:
        holder = await session(store)
        stager = await asyncpg.connect(postgres_url)
        try:
            fill(postgres_url, FAIR, 3, "'ann'")
            await stager.execute("SELECT pg_advisory_lock(1398030151, id) FROM holdfast.lane")
            async with asyncio.timeout(20):
                [bob] = await enqueue(store, FAIR, ["bob"])
                assert await store.claim(holder, [FAIR], 10) == []
            await stager.execute("SELECT pg_advisory_unlock_all()")
        finally:
            await stager.close()
        claimed = await store.claim(holder, [FAIR], 2)
        assert set(owners_of(claimed)) == {"ann", "bob"}
        assert bob in [one.lease.job_id for one in claimed]


async def test_an_open_transaction_of_a_caller_keeps_no_other_job_of_its_owner_waiting(
    postgres_url: str,
) -> None:  # E25 E54
    async with stores(postgres_url) as [store]:
        connection = await asyncpg.connect(postgres_url)
        ids = SystemIds()
        try:
            async with connection.transaction():
                slow = NewJob(ids.job_id(), "{}", JobSpec(lane=FAIR, owner="ann"))
                await store.enqueue_in(connection, [slow])
                quick, other = await enqueue(store, FAIR, ["ann", "bob"])
                holder = await session(store)
                async with asyncio.timeout(20):
                    claimed = [one.lease.job_id for one in await store.claim(holder, [FAIR], 10)]
                assert claimed == [quick, other]
        finally:
            await connection.close()
        assert [one.lease.job_id for one in await store.claim(holder, [FAIR], 10)] == [slow.id]


async def test_a_line_that_has_come_far_begins_at_zero_again(postgres_url: str) -> None:  # E25
    far = UNPLACED // 2
    async with stores(postgres_url) as [store]:
        first = await enqueue(store, FAIR, ["ann", "ann", "ann", "bob"])
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"UPDATE holdfast.ready SET ord = ord + {far}")
            connection.execute(f"UPDATE holdfast.flow SET last = last + {far}")
            connection.execute(f"UPDATE holdfast.line SET head = head + {far}, last = last + {far}")
        second = await enqueue(store, FAIR, ["ann", "bob", "eve"])
        with psycopg.connect(postgres_url) as connection:
            [(highest,)] = connection.execute("SELECT max(ord) FROM holdfast.ready").fetchall()
            assert highest == 3 * STRIDE  # ann's fourth
            [(last,)] = connection.execute("SELECT last FROM holdfast.line").fetchall()
            assert last == highest
        claimed = [one.lease.job_id for one in await store.claim(await session(store), [FAIR], 10)]
        assert set(claimed[:3]) == {first[0], first[3], second[2]}
        assert claimed[3:] == [first[1], second[1], first[2], second[0]]


async def test_so_does_one_that_nobody_stands_in(postgres_url: str) -> None:  # E25
    far = UNPLACED // 2
    async with stores(postgres_url) as [store]:
        holder = await session(store)
        await enqueue(store, FAIR, ["ann"])
        assert len(await store.claim(holder, [FAIR], 10)) == 1
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"UPDATE holdfast.flow SET last = {far}")
            connection.execute(f"UPDATE holdfast.line SET last = {far}")
        ann, bob = await enqueue(store, FAIR, ["ann", "bob"])
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT last FROM holdfast.line").fetchall() == [(STRIDE,)]
        assert [one.lease.job_id for one in await store.claim(holder, [FAIR], 10)] == [bob, ann]


async def test_an_owner_whose_jobs_weigh_next_to_nothing_comes_last_and_comes(
    postgres_url: str,
) -> None:  # E25
    async with stores(postgres_url) as [store]:
        await store.lanes.weigh({"light": 0.001})
        await enqueue(store, FAIR, ["light"] * 3)
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"UPDATE holdfast.flow SET last = {UNPLACED - 2}")
        light = await enqueue(store, FAIR, ["light"] * 2)
        claimed = [one.lease.job_id for one in await store.claim(await session(store), [FAIR], 10)]
        assert len(claimed) == 5
        assert set(claimed[3:]) == set(light)


async def test_the_place_in_a_fair_line_counts_who_is_served_before(postgres_url: str) -> None:  # E25
    async with stores(postgres_url) as [store]:
        hog = await enqueue(store, FAIR, ["hog"] * 5)
        new = await enqueue(store, FAIR, ["new"] * 2)
        with psycopg.connect(postgres_url) as connection:
            sql = "SELECT id::text FROM holdfast.ready ORDER BY ord, id"
            order = [row[0] for row in connection.execute(sql.encode())]
        assert order == [hog[0], new[0], hog[1], new[1], *hog[2:]]
