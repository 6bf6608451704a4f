"""The Holdfast app of the screenshots: the types SCREENSHOT and PDF_GENERATION, and the housekeeping.

`build(settings)` makes it; `systems.screenshots.app:app` is the one of the environment, for `holdfast worker`.

No breaker of the engine stands before the browser: a picture fails most often by its page, and with a few bad pages one customer
could stop all others. `hosts` holds single customers at single places instead.
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
from systems.screenshots.browser import Browser, Limits
from systems.screenshots.checks import make_check
from systems.screenshots.failures import ShotFailed, rule
from systems.screenshots.guard import Rules
from systems.screenshots.hosts import Hosts, place_of
from systems.screenshots.promises import Promises, read_promises
from systems.screenshots.records import Books, open_books
from systems.screenshots.settings import Settings
from systems.screenshots.shot import Picture, Shot
from systems.screenshots.sla import Sla
from systems.screenshots.storing import store, sweep

QUEUE, HOUSEKEEPING = "screenshots", "housekeeping"
SCREENSHOT, PDF_GENERATION = "SCREENSHOT", "PDF_GENERATION"
#: The default policy of the source document, 3 retries after 5 s, 25 s and 125 s: for every type that the policy file does not
#: name.
DEFAULT_RETRY = "screenshots"
#: What an attempt may take beyond the browser's time: it may wait for room once, and for the disk.
_OTHER_TIME = timedelta(seconds=30)
#: How often a job is put off for the place of its page; then it is tried.
_MOST_HOLDS = 10
#: Beside the pictures one worker process keeps the books and the house.
_OTHER_SLOTS = 2


class Shooting(Protocol):
    """An object that takes pictures."""

    async def shoot(self, shot: Shot) -> Picture: ...


class Resources(NamedTuple):
    browser: Shooting
    books: Books
    hosts: Hosts


PictureTask = Task[..., Coroutine[Any, Any, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Screenshots:
    """The app, its tasks and what they were made from."""

    settings: Settings
    promises: Promises
    app: Holdfast
    screenshot: PictureTask
    pdf: PictureTask

    def task_for(self, shot: Shot) -> PictureTask:
        return self.pdf if shot.format == "pdf" else self.screenshot


def build(
    settings: Settings,
    *,
    open_browser: Callable[[], AbstractAsyncContextManager[Shooting]] | None = None,
    **options: Any,
) -> Screenshots:
    """The screenshots on these settings. *options* go to `Holdfast` as they are."""
    promises = read_promises(settings.sla_file)
    if not settings.policies_file.exists():
        raise UsageError(
            f"{settings.policies_file.name} is not there; POLICIES_FILE names the file of policies"
        )
    kept = timedelta(seconds=settings.job_retention_sec)
    dispatch = {"dispatch": settings.redis_url} if settings.redis_url else {}
    sweeps = {
        "stuck_every": settings.stuck_jobs_every_sec,
        "stuck_batch": settings.stuck_jobs_batch,
    }
    app = Holdfast(
        settings.database_url,
        metrics_prefix="",  # the names of E62 as its sources write them
        policies=settings.policies_file,
        lease=timedelta(seconds=settings.worker_lease_ttl_sec),
        concurrency=settings.sittings + _OTHER_SLOTS,
        retention=Retention(results=kept, jobs=kept, events=kept),
        **(sweeps | dispatch | options),
    )
    limits = Limits(sittings=settings.sittings, seconds=settings.shot_seconds)

    @app.lifespan
    async def resources() -> AsyncIterator[Resources]:
        opening = open_browser() if open_browser is not None else Browser(limits)
        async with open_books(settings.database_url) as books, opening as browser:
            yield Resources(browser, books, Hosts(books))

    given: dict[str, Any] = {
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
        price=settings.screenshot_price,
        check=make_check(rules, pdf=False),
        **given,
    )
    async def screenshot(shot: Shot, *, job: Job = THIS_JOB) -> dict[str, Any]:
        """Take the picture, put it on disk; where it is."""
        return await store(settings.images_dir, job, await _shoot(job, shot))

    @app.task(
        name=PDF_GENERATION,
        retry=DEFAULT_RETRY,
        price=settings.pdf_price,
        check=make_check(rules, pdf=True),
        **given,
    )
    async def pdf(shot: Shot, *, job: Job = THIS_JOB) -> dict[str, Any]:
        """The same, as sheets."""
        return await store(settings.images_dir, job, await _shoot(job, shot))

    _keep_house(app, settings, promises)
    return Screenshots(settings, promises, app, screenshot, pdf)


async def _shoot(job: Job, shot: Shot) -> Picture:
    """Take the picture, unless the page's place is held for its owner: then the job is put off.

    The reason of the last attempt promises no other one.
    """
    browser: Shooting = job.resources.browser
    place, owner = place_of(shot.url), job.owner or ""
    await _wait_for(job, place, owner)
    try:
        picture = await browser.shoot(shot)
    except ShotFailed as failed:
        await job.resources.hosts.tell(place, owner, failed.code)
        if failed.again and job.attempt >= job.max_attempts:
            raise Retryable(failed.line(final=True), code=failed.code.value) from failed
        raise
    await job.resources.hosts.tell(place, owner, None)
    return picture


async def _wait_for(job: Job, place: str, owner: str) -> None:
    """Put the job off while its owner is held at *place*; not more often than `_MOST_HOLDS`, so that every job ends."""
    seconds = await job.resources.hosts.wait(place, owner)
    if not seconds:
        return
    holds = [
        one for one in await job.attempts() if one.outcome == "snoozed" and one.generation == job.generation
    ]
    if len(holds) < _MOST_HOLDS:
        raise Snooze(timedelta(seconds=seconds))


def _keep_house(app: Holdfast, settings: Settings, promises: Promises) -> None:
    @app.schedule(Every(timedelta(seconds=settings.books_every_sec)))
    @app.task(name="keep_books", queue=HOUSEKEEPING, timeout="5m", retry=1, store_result=False)
    async def keep_books(*, job: Job = THIS_JOB) -> None:
        """Write down what has happened, and judge the promises that are due (E76)."""
        books: Books = job.resources.books
        await books.follow(app, promises)
        await Sla(app, books, promises).judge()

    @app.schedule(Every("10m"))
    @app.task(name="sweep_images", queue=HOUSEKEEPING, timeout="5m", retry=1)
    async def sweep_images(*, job: Job = THIS_JOB) -> int:
        """Remove the pictures whose time is over; how many."""
        await job.resources.books.forget(time.time() - settings.job_retention_sec)
        await job.resources.hosts.expire()
        return await sweep(app, settings.images_dir)
