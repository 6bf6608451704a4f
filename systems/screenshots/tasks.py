"""The Holdfast app of the screenshots: the tasks SCREENSHOT and PDF_GENERATION, and maintenance tasks.

`build(settings)` makes the app. `systems.screenshots.app:app` is configured from the environment, for
`holdfast worker`.

The browser has no breaker of the engine: most pictures fail because of their page, and a few bad pages of one
customer would stop all others. Instead `hosts` holds single customers at single places.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from holdfast import (
    THIS_JOB,
    Every,
    Holdfast,
    Job,
    Retention,
    Retryable,
    Snooze,
    Task,
    UsageError,
)
from holdfast.contrib.credits import Credits
from systems.screenshots.browser import Browser, Limits
from systems.screenshots.checks import make_check
from systems.screenshots.failures import ShotFailed, rule
from systems.screenshots.guard import Rules
from systems.screenshots.hosts import Hosts, place_of
from systems.screenshots.images import store, sweep
from systems.screenshots.promises import Promises, read_promises
from systems.screenshots.records import Books, open_books
from systems.screenshots.settings import Settings
from systems.screenshots.shot import Picture, Shot
from systems.screenshots.sla import Sla

QUEUE, HOUSEKEEPING = "screenshots", "housekeeping"
SCREENSHOT, PDF_GENERATION = "SCREENSHOT", "PDF_GENERATION"
#: The source document's default policy, 3 retries after 5 s, 25 s and 125 s, for types that the policy file
#: does not name.
DEFAULT_RETRY = "screenshots"
#: The time that an attempt may take in addition to the browser's: to wait for a free slot, and for the disk.
_OTHER_TIME = timedelta(seconds=30)
#: How often a job is snoozed because its page's place is held. Then it is tried anyway.
_MOST_HOLDS = 10
#: Slots of a worker process for maintenance tasks, in addition to those for pictures.
_OTHER_SLOTS = 2


class Camera(Protocol):
    """An object that takes pictures."""

    async def shoot(self, shot: Shot) -> Picture: ...


class Resources(NamedTuple):
    """The connections that a worker process holds open."""

    browser: Camera
    books: Books
    hosts: Hosts


PictureTask = Task[..., Coroutine[Any, Any, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Screenshots:
    """The app, its tasks and its settings."""

    settings: Settings
    promises: Promises
    app: Holdfast
    screenshot: PictureTask
    pdf: PictureTask

    def task_for(self, shot: Shot) -> PictureTask:
        """Return the task for the format of *shot*."""
        return self.pdf if shot.format == "pdf" else self.screenshot


def build(
    settings: Settings,
    *,
    open_browser: Callable[[], AbstractAsyncContextManager[Camera]] | None = None,
    **options: Any,
) -> Screenshots:
    """Build the screenshots app.

    *options* are passed on to `Holdfast`; *open_browser* replaces the real browser.
    """
    promises = read_promises(settings.sla_file)
    if not settings.policies_file.exists():
        raise UsageError(
            f"{settings.policies_file.name} does not exist; set POLICIES_FILE to the policy file"
        )
    kept = timedelta(seconds=settings.job_retention_sec)
    dispatch = {"dispatch": settings.redis_url} if settings.redis_url else {}
    sweeps = {
        "stuck_every": settings.stuck_jobs_every_sec,
        "stuck_batch": settings.stuck_jobs_batch,
    }
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # E62 fixes the metric names without a prefix
        policies=settings.policies_file,
        extensions=[Credits()],
        lease=timedelta(seconds=settings.worker_lease_ttl_sec),
        concurrency=settings.worker_concurrency + _OTHER_SLOTS,
        retention=Retention(results=kept, jobs=kept, events=kept),
        **(sweeps | dispatch | options),
    )
    limits = Limits(concurrency=settings.worker_concurrency, seconds=settings.shot_seconds)

    @app.lifespan
    async def resources() -> AsyncIterator[Resources]:
        browser_context = open_browser() if open_browser is not None else Browser(limits)
        async with open_books(settings.database_url) as books, browser_context as browser:
            yield Resources(browser, books, Hosts(books))

    task_options: dict[str, Any] = {
        "queue": QUEUE,
        "timeout": timedelta(seconds=2 * settings.shot_seconds) + _OTHER_TIME,
        "stuck_after": timedelta(seconds=settings.stuck_after_sec),
        "stuck_action": "retry",
        "max_crashes": settings.worker_max_crashes,
        "rules": [rule],
    }

    rules = Rules.read(os.environ)

    @app.task(
        name=SCREENSHOT,
        retry=DEFAULT_RETRY,
        extra={"price": settings.screenshot_price},
        check=make_check(rules, pdf=False),
        **task_options,
    )
    async def screenshot(shot: Shot, *, job: Job = THIS_JOB) -> dict[str, Any]:
        """Take the picture, write it to disk, and return its file and size."""
        return await store(settings.images_dir, job, await _shoot(job, shot))

    @app.task(
        name=PDF_GENERATION,
        retry=DEFAULT_RETRY,
        extra={"price": settings.pdf_price},
        check=make_check(rules, pdf=True),
        **task_options,
    )
    async def pdf(shot: Shot, *, job: Job = THIS_JOB) -> dict[str, Any]:
        """Print the page to a PDF, write it to disk, and return its file and size."""
        return await store(settings.images_dir, job, await _shoot(job, shot))

    _add_maintenance_tasks(app, settings, promises)
    return Screenshots(settings, promises, app, screenshot, pdf)


async def _shoot(job: Job, shot: Shot) -> Picture:
    """Take the picture, or snooze the job while the page's place is held for its owner.

    The error of the last attempt has the message that promises no further one.
    """
    browser: Camera = job.resources.browser
    place, owner = place_of(shot.url), job.owner or ""
    await _snooze_if_held(job, place, owner)
    try:
        picture = await browser.shoot(shot)
    except ShotFailed as failed:
        await job.resources.hosts.record(place, owner, failed.code)
        if failed.again and job.attempt >= job.max_attempts:
            raise Retryable(failed.line(final=True), code=failed.code.value) from failed
        raise
    await job.resources.hosts.record(place, owner, None)
    return picture


async def _snooze_if_held(job: Job, place: str, owner: str) -> None:
    """Raise `Snooze` while the owner is held at *place*, at most `_MOST_HOLDS` times.

    The limit makes every job end.
    """
    seconds = await job.resources.hosts.wait(place, owner)
    if not seconds:
        return
    holds = [
        one for one in await job.attempts() if one.outcome == "snoozed" and one.generation == job.generation
    ]
    if len(holds) < _MOST_HOLDS:
        raise Snooze(timedelta(seconds=seconds))


def _add_maintenance_tasks(app: Holdfast, settings: Settings, promises: Promises) -> None:
    @app.schedule(Every(timedelta(seconds=settings.books_every_sec)))
    @app.task(name="keep_books", queue=HOUSEKEEPING, timeout="5m", retry=1, store_result=False)
    async def keep_books(*, job: Job = THIS_JOB) -> None:
        """Copy new events to the books, and check the promises that are due (E76)."""
        books: Books = job.resources.books
        await books.follow(app, promises)
        await Sla(app, books, promises).judge()

    @app.schedule(Every("10m"))
    @app.task(name="sweep_images", queue=HOUSEKEEPING, timeout="5m", retry=1)
    async def sweep_images(*, job: Job = THIS_JOB) -> int:
        """Remove expired pictures and old rows, and return the number of files."""
        await job.resources.books.forget(time.time() - settings.job_retention_sec)
        await job.resources.hosts.expire()
        return await sweep(app, settings.images_dir)
