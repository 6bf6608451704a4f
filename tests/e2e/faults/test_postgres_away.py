"""PostgreSQL killed, restarted, cut: workers wait, come back by themselves, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from devservices.postgres import Postgres
from holdfast.errors import StoreError
from tests.e2e.faults.world import PATIENT, Site, eventually

pytestmark = [pytest.mark.slow, pytest.mark.service]


async def patiently_enqueue(site: Site, count: int, stop: asyncio.Event) -> list[str]:
    """Enqueue one after the other, each until it is acknowledged, under the same id."""
    ids: list[str] = []
    for value in range(count):
        job_id = str(site.app.runtime.new_id())
        while True:
            try:
                await site.app.tasks["echo"].options(id=job_id).enqueue(value=value)
                break
            except StoreError:
                await asyncio.sleep(0.1)
        ids.append(job_id)
        if stop.is_set():
            break
        await asyncio.sleep(0.002)
    return ids


async def more_starts(site: Site, count: int) -> None:
    before = len(site.journal("start"))
    await eventually(lambda: len(site.journal("start")) >= before + count, "more jobs to start")


async def test_a_killed_server_loses_and_doubles_nothing(
    durable_postgres: Postgres, tmp_path: Path
) -> None:  # E5 E6
    async with Site(durable_postgres.create_database("jobs"), tmp_path) as site:
        crew = await site.crew(2, "--concurrency", "4")
        enough = asyncio.Event()
        enqueueing = asyncio.ensure_future(patiently_enqueue(site, 5000, enough))
        for _ in range(2):
            await more_starts(site, 50)
            durable_postgres.kill()
            await eventually(
                lambda: all(w.told("claim.retrying") or w.told("heartbeat.missed") for w in crew),
                "the outage",
            )
            durable_postgres.start()
            await more_starts(site, 1)
        enough.set()
        ids = await enqueueing
        await site.drained()
        assert all(worker.process.poll() is None for worker in crew)  # the same processes
        await site.consistent(ids)
        assert {(await site.app.jobs.get(one)).state for one in ids} == {"complete"}
        # A stop while the server is away ends too: nothing can be written, so nothing is waited for for long.
        durable_postgres.kill()
        crew[0].signal(signal.SIGTERM)
        assert await crew[0].ended(50) == 0
        assert not any(worker.has_traceback for worker in crew), crew[0].log + crew[1].log


async def test_workers_survive_the_loss_of_every_connection(
    postgres_site: Site, postgres: Postgres
) -> None:  # E5
    site = postgres_site
    running = await site.enqueue("gate", name="open")
    [worker] = await site.crew(1, **PATIENT)
    await site.started(running)
    for _ in range(3):  # three flaps
        postgres.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'"
        )
        one = await site.enqueue("echo", value=3)
        row = await site.reaches(one, "complete")
        assert (row.result, row.attempt) == (3, 1)
    site.flag("open")
    row = await site.reaches(running, "complete")
    assert (row.attempt, row.result) == (1, worker.pid)  # the lease was kept all along
    await site.consistent([running])


async def test_without_its_listener_a_worker_finds_jobs_by_looking(
    postgres_site: Site, postgres: Postgres
) -> None:  # E51
    site = postgres_site
    [_] = await site.crew(1, poll="1s", lease="10s", heartbeat="3s")
    for _ in range(2):
        one = await site.enqueue("echo", value=1)
        await site.reaches(one, "complete")
        cut = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            " AND datname = current_database()"
        )
        postgres.execute(cut, site.url.rsplit("/", 1)[1])
        two = await site.enqueue("echo", value=2)
        await site.reaches(two, "complete")


async def test_a_worker_whose_rights_are_taken_away_says_so_and_goes_on_when_it_has_them_again(
    postgres_site: Site, postgres: Postgres
) -> None:  # E51
    site, name = postgres_site, postgres_site.url.rsplit("/", 1)[1]
    postgres.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'plain'")
    try:
        for what in ("SCHEMA", "ALL TABLES IN SCHEMA", "ALL SEQUENCES IN SCHEMA", "ALL FUNCTIONS IN SCHEMA"):
            postgres.execute(f"GRANT ALL ON {what} holdfast TO {name}", name)
        url = site.url.replace(f"{postgres.user}:{postgres.password}@", f"{name}:plain@")
        worker = await site.worker(url=url).ready()
        await site.reaches(await site.enqueue("echo", value=1), "complete")
        postgres.execute(f"REVOKE ALL ON holdfast.job FROM {name}", name)
        two = await site.enqueue("echo", value=2)
        await eventually(lambda: worker.told("claim.retrying"), "the worker to say that it cannot claim")
        postgres.execute(f"GRANT ALL ON holdfast.job TO {name}", name)
        assert (await site.reaches(two, "complete")).result == 2
        assert worker.process.poll() is None
        worker.kill()
    finally:
        postgres.execute(f"DROP OWNED BY {name}", name)
        postgres.execute(f"DROP ROLE {name}")


async def test_a_worker_started_without_its_database_says_so_in_one_line(
    tmp_path: Path, postgres: Postgres
) -> None:
    url = postgres.url("nothing_here").replace(f":{postgres.port}/", ":1/")
    site = Site(url, tmp_path)
    worker = site.worker(wait_for_store="0s")
    assert await worker.ended() == 5
    assert worker.log.splitlines() == [
        "holdfast: PostgreSQL at 127.0.0.1:1/nothing_here cannot be reached; is it running?"
    ]
