"""How soon work goes on after a fault. `make test` has the same faults without the clock."""

from __future__ import annotations

import asyncio

import pytest

from devservices.postgres import Postgres
from devservices.proxy import Proxy
from devservices.rabbitmq import RabbitMq
from tests.e2e.faults.relay_app import TOPIC, make_app
from tests.e2e.faults.test_postgres_away import more_starts, patiently_enqueue
from tests.e2e.faults.test_relay import all_published, relaying
from tests.e2e.faults.world import PATIENT, Site, eventually
from tests.nightly.conftest import Within

pytestmark = [pytest.mark.nightly, pytest.mark.service, pytest.mark.timeout(300)]


async def test_the_job_of_a_killed_worker_runs_again_within_15_seconds(
    sqlite_site: Site, within: Within
) -> None:  # E30
    """The lease is 1 s; the rest is the start of the next worker."""
    site = sqlite_site
    job_id = await site.enqueue("gate", name="open")
    first = await site.worker("--concurrency", "1").ready()
    await site.started(job_id)
    with within(15, "seconds until the job of a killed worker runs again"):
        first.kill()
        await site.worker("--concurrency", "1", **PATIENT).ready()
        await site.started(job_id, 2)
    site.flag("open")
    await site.reaches(job_id, "complete")


async def test_workers_go_on_within_10_seconds_of_the_start_of_postgresql(
    durable_postgres: Postgres, tmp_path_factory: pytest.TempPathFactory, within: Within
) -> None:  # E5 E51
    async with Site(durable_postgres.create_database("jobs"), tmp_path_factory.mktemp("site")) as site:
        crew = await site.crew(2, "--concurrency", "4")
        enough = asyncio.Event()
        enqueueing = asyncio.ensure_future(patiently_enqueue(site, 5000, enough))
        await more_starts(site, 50)
        durable_postgres.kill()
        await eventually(
            lambda: all(w.told("claim.retrying") or w.told("heartbeat.missed") for w in crew), "the outage"
        )
        durable_postgres.start()
        with within(10, "seconds until workers go on after PostgreSQL was killed"):
            await more_starts(site, 1)
        enough.set()
        await enqueueing
        await site.drained()


async def test_a_worker_that_lost_its_listener_finds_a_job_within_5_seconds(
    postgres_site: Site, postgres: Postgres, within: Within
) -> None:  # E51
    site = postgres_site
    await site.crew(1, poll="1s", lease="10s", heartbeat="3s")
    await site.reaches(await site.enqueue("echo", value=1), "complete")
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        " AND datname = current_database()"
    )
    postgres.execute(cut, site.url.rsplit("/", 1)[1])
    with within(5, "seconds until a worker without its listener has run a job"):
        await site.reaches(await site.enqueue("echo", value=2), "complete")


async def test_an_idle_worker_behind_pgbouncer_finds_jobs_within_20_seconds(
    pooled_site: Site, within: Within
) -> None:  # E51
    site = pooled_site
    await site.crew(1, poll="500ms", lease="10s", heartbeat="3s")
    await site.reaches(await site.enqueue("echo", value=0), "complete")
    for value in range(3):
        with within(20, f"seconds until an idle worker behind PgBouncer has run job {value + 1}"):
            await site.reaches(await site.enqueue("echo", value=value), "complete")


async def test_the_relay_publishes_within_10_seconds_of_the_start_of_its_broker(
    broker: RabbitMq, sqlite_url: str, within: Within
) -> None:  # E44
    async with make_app(sqlite_url, broker.url()) as app, relaying(app):
        await app.outbox.publish(TOPIC, "before")
        await all_published(app)
        await asyncio.to_thread(broker.kill)
        for n in range(100):
            await app.outbox.publish(TOPIC, {"n": n}, key=str(n % 20))
        await asyncio.to_thread(broker.start)
        with within(10, "seconds until the relay has published after its broker was killed"):
            await all_published(app)


async def test_the_relay_publishes_within_10_seconds_of_three_quick_flaps(
    broker: RabbitMq, sqlite_url: str, within: Within
) -> None:  # E44
    with Proxy(broker.host, broker.port, postgres=False) as proxy:
        async with make_app(sqlite_url, proxy.route(broker.url())) as app, relaying(app):
            await app.outbox.publish(TOPIC, "before")
            await all_published(app)
            await asyncio.to_thread(proxy.flap)
            with within(10, "seconds until the relay has published after three flaps"):
                await app.outbox.publish(TOPIC, "after")
                await all_published(app)
