"""Behind PgBouncer in transaction mode: everybody's statements share three sessions, and nothing may be kept on them.

The contract of the store is tried through it in tests/contract (`pooled`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest

from devservices.pgbouncer import PgBouncer
from devservices.postgres import Postgres
from holdfast import Holdfast
from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.job import Claimed, Settlement
from holdfast.jobs.verdict import Complete, Failure, RetryAfter
from tests.conftest import installed
from tests.e2e.faults.app import make_app
from tests.e2e.faults.world import PATIENT, Site, Worker, eventually

pytestmark = [pytest.mark.service, pytest.mark.slow]

HOUR = timedelta(hours=1)
#: Let through what it would refuse; it is dropped then.
DROPS_SETTINGS = (
    "ignore_startup_parameters = enable_seqscan,jit,lock_timeout,idle_in_transaction_session_timeout,"
    "statement_timeout"
)


@pytest.fixture
async def pooled_site(pgbouncer_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(pgbouncer_url, tmp_path) as site:
        yield site


@pytest.fixture
async def hands(pooled_site: Site) -> AsyncIterator[list[Holdfast]]:
    """Four apps on one database, each with connections of its own to the pooler."""
    apps = [make_app(pooled_site.url) for _ in range(4)]
    for app in apps:
        await app.runtime.engine()
    yield apps
    for app in apps:
        await app.close()


def complaints(worker: Worker) -> list[str]:
    """What it logged that was not meant for a quiet day."""
    return [line for line in worker.log.splitlines() if '"level": "info"' not in line]


async def test_callers_that_share_sessions_enqueue_each_job_once(
    pooled_site: Site, hands: list[Holdfast], postgres_url: str
) -> None:  # E43 E51
    singles = await asyncio.gather(
        *(app.tasks["echo"].enqueue(value=n) for n, app in enumerate(hands * 50)),
        *(
            app.tasks["echo"].options(dedupe_key=f"same {n % 10}").enqueue(value=n)
            for n, app in enumerate(hands * 10)
        ),
    )
    many = await asyncio.gather(
        *(app.tasks["echo"].enqueue_many([{"value": n} for n in range(150)]) for app in hands)
    )
    by_thread = await asyncio.to_thread(lambda: pooled_site.app.tasks["echo"].enqueue_sync(value=1).id)
    ids = {handle.id for handle in singles} | {handle.id for batch in many for handle in batch} | {by_thread}
    assert len(ids) == 200 + 10 + 4 * 150 + 1
    assert (await pooled_site.app.jobs.counts())["queued"] == len(ids)
    stored = Counter(event.job_id for event in await pooled_site.all_events())
    assert stored == Counter(ids)
    assert await (await pooled_site.store()).queries.violations() == []
    with psycopg.connect(postgres_url) as direct:
        sessions = direct.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert sessions is not None
    assert sessions[0] <= 3


async def test_a_job_enqueued_in_a_callers_transaction_shares_its_fate(pooled_site: Site) -> None:  # E43 E51
    site, plain = pooled_site, pooled_site.url.partition("?")[0]
    echo, kept = site.app.tasks["echo"], list[str]()
    connection = await asyncpg.connect(plain, statement_cache_size=0)
    try:
        for n in range(10):
            undone = connection.transaction()
            await undone.start()
            await echo.options(connection=connection).enqueue(value=n)
            await undone.rollback()
            async with connection.transaction():
                kept.append((await echo.options(connection=connection).enqueue(value=n)).id)
    finally:
        await connection.close()

    def with_psycopg() -> None:
        with psycopg.connect(plain, prepare_threshold=None) as sync:
            for n in range(10):
                echo.options(connection=sync).enqueue_sync(value=n)
                sync.rollback()
                kept.append(echo.options(connection=sync).enqueue_sync(value=n).id)
                sync.commit()

    await asyncio.to_thread(with_psycopg)
    assert sorted(event.job_id for event in await site.all_events()) == sorted(kept)
    assert await site.worker("--until-idle").ended() == 0
    assert (await site.app.jobs.counts())["complete"] == len(kept) == 20


async def test_hands_that_share_sessions_claim_settle_and_reclaim_each_job_once(
    pooled_site: Site, hands: list[Holdfast]
) -> None:  # E5 E30 E51
    ids = await pooled_site.enqueue_many("echo", [{"value": n} for n in range(200)])
    stores = [(await app.runtime.engine()).store for app in hands]
    lane = pooled_site.app.tasks["echo"].lane
    sessions = await asyncio.gather(*(store.open_session("hand", HOUR) for store in stores))

    async def claim_all() -> list[list[Claimed]]:
        return await asyncio.gather(
            *(store.claim(session, [lane], 50) for store, session in zip(stores, sessions, strict=True))
        )

    first = await claim_all()
    assert Counter(one.lease.job_id for part in first for one in part) == Counter(ids)
    # The first hand's jobs are completed, the second's are to be tried again, the third's and fourth's are lost.
    completed, again, *lost = first
    boom = Failure.of("NETWORK", "boom")
    assert set(
        await stores[3].settle([Settlement(one.lease, Complete("1"), one.attempt) for one in completed])
    ) == {SettlementStatus.APPLIED}
    assert set(
        await stores[0].settle(
            [Settlement(one.lease, RetryAfter(timedelta(), boom), one.attempt) for one in again]
        )
    ) == {SettlementStatus.APPLIED}
    for store, session in list(zip(stores, sessions, strict=True))[2:]:
        await store.close_session(session)
    reclaimed = await asyncio.gather(*[(await app.runtime.engine()).recovery.reclaim() for app in hands])
    assert sum(reclaimed) == sum(map(len, lost)) == 100
    late = await stores[1].settle([Settlement(one.lease, Complete("2"), one.attempt) for one in lost[0]])
    assert set(late) == {SettlementStatus.STALE}
    await stores[0].promote(1000)
    sessions = await asyncio.gather(*(store.open_session("hand", HOUR) for store in stores))
    second = await claim_all()
    taken = [one for part in second for one in part]
    assert len(taken) == 150
    for store, part in zip(stores, second, strict=True):
        await store.settle([Settlement(one.lease, Complete("3"), one.attempt) for one in part])
    await pooled_site.consistent(ids)


async def test_a_worker_drains_five_hundred_jobs_through_it(pooled_site: Site) -> None:  # E5 E51
    site = pooled_site
    ids = await site.enqueue_many("flaky", [{"value": n} for n in range(500)])
    worker = site.worker("--until-idle", **PATIENT)
    assert await worker.ended() == 0
    assert (await site.app.jobs.counts())["complete"] == 500
    assert len(site.journal("start")) == 600  # each fifth one twice
    assert complaints(worker) == []
    await site.consistent(ids)


async def test_two_workers_share_the_jobs_and_double_none(pooled_site: Site) -> None:  # E5 E51
    site = pooled_site
    crew = await site.crew(2, "--concurrency", "4", **PATIENT)
    gates = await site.enqueue_many("gate", [{"name": "open"}] * 5)  # one more than either can hold
    for one in gates:
        await site.started(one)
    site.flag("open")
    ids = await site.enqueue_many("flaky", [{"value": n} for n in range(200)])
    await site.drained()
    starts = site.journal("start")
    assert set(Counter((start["name"], start["attempt"]) for start in starts).values()) == {1}
    assert len(starts) == 5 + 240
    assert {start["pid"] for start in starts} == {worker.pid for worker in crew}
    for worker in crew:
        worker.process.terminate()
        assert await worker.ended() == 0
        assert complaints(worker) == []
    await site.consistent([*gates, *ids])


async def test_without_a_listener_an_idle_worker_finds_jobs_by_looking(pooled_site: Site) -> None:  # E51
    site = pooled_site
    [worker] = await site.crew(1, poll="500ms", lease="10s", heartbeat="3s")
    await site.reaches(await site.enqueue("echo", value=0), "complete")
    for value in range(3):
        row = await site.reaches(await site.enqueue("echo", value=value), "complete")
        assert (row.result, row.attempt) == (value, 1)  # nobody tells it, and it looks twice a second
    assert complaints(worker) == []


async def test_a_worker_past_the_pooler_is_woken_by_who_enqueues_through_it(
    pooled_site: Site, postgres_url: str
) -> None:  # E51
    site = pooled_site
    await site.worker(url=postgres_url, poll="60s", lease="120s", heartbeat="3s").ready()
    await site.reaches(await site.enqueue("echo", value=0), "complete", 30)
    one = await site.enqueue("echo", value=1)
    assert (await site.reaches(one, "complete", 30)).result == 1  # half of the time it would sleep


async def test_the_jobs_of_a_killed_worker_are_taken_over(pooled_site: Site) -> None:  # E30 E51
    site = pooled_site
    job_id = await site.enqueue("gate", name="open")
    first = await site.worker().ready()
    await site.started(job_id)
    first.kill()
    second = await site.worker(**PATIENT).ready()
    await site.started(job_id, 2)
    site.flag("open")
    row = await site.reaches(job_id, "complete")
    assert (row.result, row.attempt) == (second.pid, 2)
    await site.consistent([job_id])


async def test_workers_survive_a_restart_of_the_pooler(
    postgres: Postgres, postgres_url: str, tmp_path: Path
) -> None:  # E51
    with installed(lambda: PgBouncer(postgres)) as pooler:
        async with Site(f"{pooler.route(postgres_url)}?prepare=off", tmp_path) as site:
            running = await site.enqueue("gate", name="open")
            [worker] = await site.crew(1, lease="20s", heartbeat="500ms")
            await site.started(running)
            for value in range(2):
                pooler.stop()
                await eventually(
                    lambda before=value: len(worker.told("heartbeat.missed")) > before,  # type: ignore[misc]
                    "the worker to notice",
                )
                pooler.start()
                one = await site.enqueue("echo", value=value)
                assert (await site.reaches(one, "complete")).attempt == 1
            site.flag("open")
            row = await site.reaches(running, "complete")
            assert (row.attempt, row.result) == (1, worker.pid)
            assert not worker.has_traceback


@pytest.mark.parametrize("more", ["", DROPS_SETTINGS], ids=["refuses settings", "drops settings"])
async def test_without_prepare_off_one_line_says_what_to_do(
    postgres: Postgres, pooled_site: Site, postgres_url: str, more: str
) -> None:  # E51
    with installed(lambda: PgBouncer(postgres, more=more)) as pooler:
        worker = pooled_site.worker(url=pooler.route(postgres_url))
        assert await worker.ended() == 5
    where = f"127.0.0.1:{pooler.port}/{postgres_url.rpartition('/')[2]}"
    [line] = worker.log.splitlines()
    assert line == (
        f"holdfast: a pooler stands before {where} and keeps nothing of ours on a connection;"
        " add ?prepare=off to the URL"
    )
