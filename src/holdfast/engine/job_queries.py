"""What the engine asks of a store to read jobs and what belongs to them. A store offers it as `store.queries`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from holdfast.jobs.forecast import Forecast
from holdfast.jobs.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
    WorkerRow,
)
from holdfast.jobs.queue_position import QueuePosition
from holdfast.jobs.stats import JobStats

#: A limit that no list reaches.
EVERY = 2**31 - 1
#: An epoch before all others. A late result of a job that never ran has a negative epoch.
FIRST = -(2**62)


class Page(NamedTuple):
    """One page of jobs."""

    rows: list[JobRow]
    next: str | None  #: the *after* of the next page; None after the last one


class JobQueries(Protocol):
    """Reads jobs and what belongs to them: events, attempts, dead letters, workers."""

    async def job(self, job_id: JobId) -> JobRow | None:
        """Return the job, or None if there is none."""

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        """Return the place of a job in its lane and how much of the caps of these *scopes* is in use (`Cap.scope`).

        All of it is read at one moment. Return None if there is no such job.
        """

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        """Return a page of the jobs that match, newest first. Raise `UsageError` if *after* is not from an earlier page.

        A page reads only as many jobs as it can in a few hundredths of a second. So it may have fewer than *limit* jobs, or
        none, and still have a `next`. Jobs are found by the time of their creation on the clock of the process that enqueued
        them: a range of times misses jobs of a process whose clock was wrong by more than a day.

        The engine's own jobs match only if the filter asks for them (`holdfast.jobs.internal.hides_internal`). This holds for
        counts by a filter and for dead letters too.

        Args:
            where: The filter.
            after: The `next` of the page before. None returns the first page.
            limit: How many jobs a page has at most.
            contents: False leaves out arguments and results, which may be a megabyte each: rows have None instead.
        """

    async def count(self, where: JobFilter) -> int:
        """Return how many jobs match. All of them are counted, however long that takes."""

    async def counts(self) -> dict[str, int]:
        """Return how many jobs are in each state, including the engine's own."""

    async def stats(self, most: int) -> JobStats:
        """Return figures about the work to be done, for callers that ask every few seconds. No count goes beyond *most*."""

    async def forecast(self, within: timedelta, bucket: timedelta, most: int) -> Forecast:
        """Return how many queued jobs will be due in each *bucket* of time from now on, up to *within*, by dependency.

        It walks along an index and reads *most* jobs of each kind, retries and first attempts, or *most* of both together. Jobs that
        wait for their key, or for a pause that held them back when they came due, are not in it.
        """

    async def workers(self) -> list[WorkerRow]:
        """Return the live workers, oldest first."""

    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        """Return up to *limit* events with ids above *after*, oldest first, of one job or of all.

        An event that commits later never appears before one that was returned.
        """

    async def newest_event(self) -> int:
        """Return the id of the newest event: with it as *after*, `events` returns only events from now on."""

    async def event_lag(self) -> timedelta:
        """Return the age of the oldest event that `events` holds back because an open transaction may still commit an earlier
        one."""

    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        """Return up to *limit* attempts of a job with epochs above *after*, oldest first, each with its logs and traceback."""

    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        """Return up to *limit* dead letters that match, by id, from behind the id *after*.

        A page with fewer than *limit* is the last one. Without *contents* arguments are not read.
        """

    async def count_dead_letters(self, where: DeadLetterFilter) -> int:
        """Return how many dead letters match."""

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        """Return up to *limit* groups of the dead letters that match, one for each cause, the largest first."""

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        """Return up to *limit* late results of a job with epochs above *after*, by epoch."""

    async def steps(self, job_id: JobId) -> dict[str, str]:
        """Return the results of the steps of a job, by name, in the order in which they were recorded."""

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        """Return the artifacts of a job: those of results and of handlers, by attempt and then by name."""

    async def violations(self) -> list[str]:
        """Check the invariants that the schema cannot enforce (E3), and return a line for each violation."""

    async def health(self) -> dict[str, Any]:
        """Return facts for `holdfast doctor`: the version, the size, the settings of durability."""
