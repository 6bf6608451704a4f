"""The Holdfast app of the reports: the task `report` behind the breaker of the model, and the folder watch.

`build(settings)` makes the app. `systems.reports.app:app` is configured from the environment, for `holdfast
worker`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from holdfast import THIS_JOB, Every, Holdfast, Job, LeaseLost, Retention, Snooze, Task
from holdfast.policies import BreakerPolicy
from systems.common.databases import database_of
from systems.reports.chain import DOCUMENTS, Chain, Resources
from systems.reports.documents import Documents, Place
from systems.reports.failures import failed, rule
from systems.reports.model.client import model_client
from systems.reports.policy import retry_policy
from systems.reports.records import Records, open_records
from systems.reports.rules import WATCH, make_check
from systems.reports.schemas import Schema
from systems.reports.settings import Settings
from systems.reports.watch import enqueue_new_documents

QUEUE, MODEL, HOUSEKEEPING = "reports", "model", "housekeeping"
#: The time that an attempt may take in addition to the model's: for reading, writing, and waiting for the
#: database.
_OTHER_TIME = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Reports:
    """The app, its task and its settings."""

    settings: Settings
    app: Holdfast
    report: Task[..., Coroutine[Any, Any, dict[str, Any]]]


def roots(settings: Settings) -> list[str]:
    """Return the URLs of the document roots: the configured ones and the watched one."""
    return [*settings.documents_url, *([settings.watch_url] if settings.watch_url else [])]


def build(settings: Settings, **options: Any) -> Reports:
    """Build the reports app. *options* are passed on to `Holdfast`."""
    kept = timedelta(seconds=settings.job_retention_sec)
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # E62 fixes the metric names without a prefix
        lease=timedelta(seconds=settings.worker_lease_ttl_sec),
        concurrency=settings.worker_concurrency,
        retention=Retention(results=kept, jobs=kept, events=kept),
        **options,
    )
    breaker = BreakerPolicy(
        window=settings.circuit_window,
        threshold=settings.circuit_fail_threshold,
        cooldown=timedelta(milliseconds=settings.circuit_cooldown_ms),
    )
    app.dependency(MODEL, breaker=breaker)
    app.dependency(DOCUMENTS, breaker=breaker)
    app.on("failed", "timed_out", "retry", "reclaimed", "manual_retry", "redriven")(
        Records(database_of(settings.database_url)).follow
    )

    @app.lifespan
    async def resources() -> AsyncIterator[Resources]:
        async with open_records(settings.database_url) as records, model_client(settings) as client:
            yield Resources(client, records, Documents(roots(settings)), Place(settings.reports_url))

    model_time = timedelta(milliseconds=settings.model_timeout_ms)

    @app.task(
        queue=QUEUE,
        retry=retry_policy(settings.retry_max_attempts, timedelta(milliseconds=settings.retry_first_ms)),
        timeout=model_time + _OTHER_TIME,
        depends_on=MODEL,
        max_crashes=settings.worker_max_crashes,
        rules=[rule],
        check=make_check(settings, Documents(roots(settings))),
    )
    async def report(
        source: str, schema: str | Schema, *, instructions: str = "", job: Job = THIS_JOB
    ) -> dict[str, Any]:
        """Make the report of the document at *source* by a schema; return its key and the repairs."""
        try:
            created = (await app.jobs.get(job.id)).created_at.timestamp()
            await job.resources.records.begin(job.id, created)
            return await Chain(job, settings, source, schema, instructions).run()
        except (Snooze, LeaseLost):
            raise
        except Exception as error:
            named = failed(error, attempt=job.attempt, max_attempts=job.max_attempts)
            if named is error:
                raise
            raise named from error

    if settings.watch_url:
        every = timedelta(milliseconds=settings.watch_every_ms)

        @app.schedule(Every(every), missed="once")
        @app.task(queue=HOUSEKEEPING, timeout="5m", retry=1)
        async def watch_documents(*, job: Job = THIS_JOB) -> int:
            """Enqueue a report for each new document; return how many."""

            async def enqueue(job_id: str, address: str) -> None:
                await report.options(id=job_id, owner=WATCH).enqueue(address, settings.watch_schema)

            return await enqueue_new_documents(Place(settings.watch_url), job.resources.records, enqueue)

    return Reports(settings, app, report)
