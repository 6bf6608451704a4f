"""Metrics from end to end (E62): a real worker on a real store, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import asyncpg
import prometheus_client
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from holdfast import THIS_JOB, Fatal, Holdfast, Job, Retry, Retryable, UsageError, __version__
from holdfast.health.inputs import MOST
from holdfast.metrics.names import FAMILIES
from tests.apps import SOON, Database, new_app, until, work, working

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(app: Holdfast) -> Samples:
    """Every sample by its name and labels, read anew from the store."""
    app.metrics.gauges._stale_at = 0.0
    body, kind = await app.metrics.text()
    assert kind.startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"holdfast_{name}", tuple(sorted(labels.items()))))


async def test_every_family_of_the_promise_is_exposed_even_without_a_sample() -> None:  # E62
    app = Holdfast("memory://")
    async with app:
        body, _ = await app.metrics.text()
        told = {line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")}
        assert told == {f"holdfast_{name}" for name in FAMILIES}
        openmetrics, kind = await app.metrics.text("application/openmetrics-text; version=1.0.0")
        assert "openmetrics" in kind
        families = list(parse_openmetrics(openmetrics.decode()))  # type: ignore[no-untyped-call]
        assert len(families) == len(FAMILIES)


async def test_a_queue_has_a_sample_while_nothing_waits_in_it(app: Holdfast) -> None:  # E62
    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        seen = await scrape(app)
    assert (value(seen, "queue_depth", queue="mail"), value(seen, "jobs_active", queue="mail")) == (0, 0)
    assert value(seen, "queue_lag_seconds", queue="mail") == 0
    assert value(seen, "build_info", version=__version__) == 1


async def test_the_names_begin_with_the_prefix_that_is_set() -> None:  # E62
    for prefix in ("shop_", ""):
        async with Holdfast("memory://", metrics_prefix=prefix) as app:
            body, _ = await app.metrics.text()
        told = {line.split()[2] for line in body.decode().splitlines() if line.startswith("# TYPE")}
        assert told == {f"{prefix}{name}" for name in FAMILIES}
    with pytest.raises(UsageError, match="letters, digits and _"):
        Holdfast("memory://", metrics_prefix="my shop")


async def test_what_a_worker_does_is_counted_by_task_queue_and_code(app: Holdfast) -> None:  # E62
    assert app.metrics is app.metrics
    tries: dict[str, int] = {}

    @app.task(queue="mail", retry=SOON)
    async def flaky(name: str, fails: int) -> None:
        tries[name] = tries.get(name, 0) + 1
        if tries[name] <= fails:
            raise Retryable("again")

    @app.task(retry=SOON)
    async def refused() -> None:
        raise Fatal("no", code="NO_WAY")

    @app.task
    async def by_itself(*, job: Job = THIS_JOB) -> None:
        async with job.transaction():
            pass

    async with app:
        await flaky.enqueue("a", 0)
        await flaky.enqueue_many([("b", 1), ("c", 9)])
        await flaky.options(dedupe_key="one").enqueue("a", 0)
        await flaky.options(dedupe_key="one").enqueue("a", 0)  # a duplicate is not created
        await refused.enqueue()
        await by_itself.enqueue()
        await work(app)
        seen = await scrape(app)
    mail = {"task": "flaky", "queue": "mail"}
    assert value(seen, "jobs_created_total", **mail) == 4
    assert value(seen, "jobs_completed_total", **mail) == 3
    assert value(seen, "jobs_failed_total", **mail, error_code="RETRYABLE") == 1
    assert value(seen, "jobs_nonretryable_total", **mail, error_code="RETRYABLE") is None
    assert value(seen, "jobs_nonretryable_total", task="refused", queue="default", error_code="NO_WAY") == 1
    assert value(seen, "attempts_total", task="flaky", attempt="1") == 4
    assert value(seen, "attempts_succeeded_total", task="flaky", attempt="1") == 2
    assert value(seen, "attempts_total", task="flaky", attempt="2") == 2
    assert value(seen, "attempts_succeeded_total", task="flaky", attempt="2") == 1
    assert value(seen, "attempts_total", task="flaky", attempt="3") == 1
    assert value(seen, "retries_scheduled_total", type="automatic") == 3
    assert value(seen, "job_processing_duration_seconds_count", **mail) == 7
    assert value(seen, "time_to_success_seconds_count", **mail) == 3
    assert value(seen, "jobs_completed_total", task="by_itself", queue="default") == 1
    assert value(seen, "dead_letters") == 2
    assert value(seen, "jobs_active", queue="mail") == 0
    assert value(seen, "outbox_lag_seconds") is None


async def test_gauges_tell_what_waits_runs_and_comes_later(app: Holdfast) -> None:  # E62
    go = asyncio.Event()

    @app.task(queue="slow")
    async def slow() -> None:
        await go.wait()

    async with app:
        await slow.enqueue_many([{}] * 3)
        await slow.options(delay="1h").enqueue()
        async with working(app, concurrency=1):
            await until(lambda: _is(app, "jobs_active", 1.0, queue="slow"))
            seen = await scrape(app)
            assert value(seen, "queue_depth", queue="slow") == 2
            assert value(seen, "jobs_delayed") == 1
            lag = value(seen, "queue_lag_seconds", queue="slow")
            assert lag is not None
            assert 0 < lag < 60
            go.set()


async def _is(app: Holdfast, name: str, wanted: float, **labels: str) -> bool:
    return value(await scrape(app), name, **labels) == wanted


async def test_peoples_retries_and_lost_workers_are_counted(app: Holdfast) -> None:  # E62
    @app.task(retry=Retry(1))
    async def fails() -> None:
        raise Retryable("no")

    async with app:
        app.metrics  # noqa: B018 - counts from here on
        handle = await fails.enqueue()
        other = await fails.enqueue()
        await work(app)
        await app.jobs.retry(handle.id)
        await app.dead_letters.redrive(ids=other.id)
        store = (await app.runtime.engine()).store
        session = await store.open_session("lost", app.runtime.settings.lease)
        assert len(await store.claim(session, [fails.lane], 5)) == 2
        await store.close_session(session)
        assert await (await app.runtime.engine()).recovery.reclaim() == 2
        seen = await scrape(app)
    assert value(seen, "manual_retry_total") == 2
    assert value(seen, "retries_scheduled_total", type="manual") == 1
    assert value(seen, "retries_scheduled_total", type="redriven") == 1
    assert value(seen, "stuck_recovered_total") == 2
    assert value(seen, "jobs_failed_total", task="fails", queue="default", error_code="WORKER_LOST") == 2


async def test_a_dependencys_calls_and_breaker_are_told(app: Holdfast) -> None:  # E62
    @app.task(depends_on="gateway")
    async def call() -> None: ...

    async with app:
        app.metrics  # noqa: B018 - counts from here on
        await call.enqueue_many([{}] * 3)
        await work(app)
        assert value(await scrape(app), "breaker_state", dependency="gateway") in (0, None)
        await app.breakers.open("gateway", duration="1h")
        seen = await scrape(app)
        assert value(seen, "dependency_latency_seconds_count", dependency="gateway") == 3
        assert value(seen, "breaker_state", dependency="gateway") == 2
        first = value(seen, "breaker_open_seconds_total", dependency="gateway")
        await asyncio.sleep(0.05)
        later = value(await scrape(app), "breaker_open_seconds_total", dependency="gateway")
        assert first is not None
        assert later is not None
        assert later >= first + 0.04


async def test_a_second_scrape_does_not_ask_the_store_again(app: Holdfast) -> None:  # E62
    asked = 0

    async with app:
        store = (await app.runtime.engine()).store
        stats = store.queries.stats

        async def counted(most: int) -> Any:
            nonlocal asked
            asked += 1
            assert most == MOST
            return await stats(most)

        store.queries.stats = counted  # type: ignore[method-assign]
        await asyncio.gather(*(app.metrics.text() for _ in range(20)))
        await app.metrics.text()
    assert asked == 1


async def test_a_store_that_is_away_leaves_the_gauges_out_and_keeps_the_counters(db: Database) -> None:  # E62
    app = new_app(db.url)

    @app.task
    async def quick() -> None: ...

    async with app:
        app.metrics  # noqa: B018 - counts from here on
        await quick.enqueue()
        store = (await app.runtime.engine()).store

        async def hangs(most: int) -> Any:
            from holdfast import StoreUnavailable

            raise StoreUnavailable("away")

        store.queries.stats = hangs  # type: ignore[method-assign]
        seen = await scrape(app)
    assert value(seen, "jobs_delayed") is None
    assert value(seen, "jobs_created_total", task="quick", queue="default") == 1


async def test_the_metrics_can_stand_beside_an_applications_own() -> None:  # E62
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("shop_orders", "Orders.", registry=registry).inc()
    app = Holdfast("memory://")
    registry.register(app.metrics)
    names = {family.name for family in parse(prometheus_client.generate_latest(registry).decode())}
    assert {"shop_orders", "holdfast_jobs_created", "holdfast_queue_depth"} <= names
    with pytest.raises(ValueError, match="jobs_created"):
        registry.register(Holdfast("memory://").metrics)


async def test_events_behind_a_long_transaction_have_a_lag(postgres_url: str) -> None:  # E60 E62
    app = new_app(postgres_url)

    @app.task
    async def send() -> None: ...

    other = await asyncpg.connect(postgres_url)
    async with app:
        await send.enqueue()
        assert value(await scrape(app), "event_lag_seconds") == 0
        held = other.transaction()
        await held.start()
        await other.execute("SELECT pg_current_xact_id()")  # it may write, as far as anybody knows
        seen = await app.events.list()
        await send.enqueue()
        assert await app.events.list() == seen  # the reader waits for it …
        assert (value(await scrape(app), "event_lag_seconds") or 0) > 0
        await held.rollback()
        await other.close()
        assert value(await scrape(app), "event_lag_seconds") == 0
        assert len(await app.events.list()) > len(seen)  # … and misses nothing
