"""`app.jobs`: read jobs, wait for them, retry and cancel them, and reclaim those that are stuck."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from holdfast.diagnosis.explain import Explanation
from holdfast.engine.context import Awaited
from holdfast.engine.engine import Engine
from holdfast.engine.explanations import explain_job
from holdfast.engine.filters import JobFilters, job_filter, jobs_matching
from holdfast.engine.job_queries import EVERY, FIRST, Page
from holdfast.engine.manual_retry import job_row, retry_job
from holdfast.engine.namespace import Namespace
from holdfast.engine.stuck import find_stuck, reclaim_stuck
from holdfast.errors import Conflict, HoldfastError, JobFailed, ResultExpired
from holdfast.jobs.internal import hides_internal, is_internal
from holdfast.jobs.job import Artifact, Attempt, JobFilter, JobId, JobRow, LateResult, StuckJob, named
from holdfast.jobs.moves import FINISHED, State
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.tasks.payload import decode_any
from holdfast.tasks.task import checked_priority
from holdfast.values.duration import Duration, format_duration, optional
from holdfast.values.validation import optional_span, whole

#: How many jobs one page may hold.
MOST_JOBS = 10_000
#: How many pages without a visible job are read before an empty page is returned.
_EMPTY_PAGES = 20
#: Seconds between two reads of a job that is waited for, unless the store wakes the caller earlier.
_POLL = 1.0


class Jobs(Namespace):
    """Read jobs, wait for them, retry and cancel them."""

    async def get(self, job_id: str) -> JobRow:
        """Return the job as it is now. Raises `UnknownJob` when there is none."""
        return await job_row(await self._engine(), named(job_id))

    async def list(
        self,
        where: JobFilter | None = None,
        *,
        after: str | None = None,
        limit: int = 50,
        contents: bool = True,
        **filters: Unpack[JobFilters],
    ) -> Page:
        """Return a page of jobs, newest first: `await app.jobs.list(state="failed", task="convert")`.

        A page may hold fewer than *limit* jobs, or none, and have a `next` all the same. The engine's own jobs
        (`holdfast.webhook`, …) are left out, unless they are named by id or task, or with `internal=True`.

        Args:
            where: A filter that was made before; then no other filters are given.
            after: The `next` of the page before.
            limit: How many jobs the page holds at most.
            contents: Without them, arguments and results are not read.
            filters: Which jobs; see `JobFilters`.
        """
        chosen = jobs_matching(where, filters)
        whole("limit", limit, 1, MOST_JOBS)
        store = (await self._engine()).store
        page = await store.queries.jobs(chosen, after=after, limit=limit, contents=contents)
        for _ in range(_EMPTY_PAGES if hides_internal(chosen) else 0):
            if page.rows or page.next is None:
                break
            page = await store.queries.jobs(chosen, after=page.next, limit=limit, contents=contents)
        return page

    async def count(self, where: JobFilter | None = None, **filters: Unpack[JobFilters]) -> int:
        """Return how many jobs match."""
        chosen = jobs_matching(where, filters)
        return await (await self._engine()).store.queries.count(chosen)

    async def counts(self, *, internal: bool = False) -> dict[str, int]:
        """Return how many jobs are in each state; with *internal*, count the engine's own too."""
        store = (await self._engine()).store
        counts = await store.queries.counts()
        hidden = [] if internal else [lane.task for lane in await store.lanes.all() if is_internal(lane.task)]
        for state in [State(name) for name, number in counts.items() if hidden and number]:
            where = JobFilter(states=(state,), tasks=tuple(set(hidden)))
            counts[state] = max(0, counts[state] - await store.queries.count(where))
        return counts

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobRow:
        """Wait until the job has ended, however it ended, and return its row.

        Raises `TimeoutError` when it has not ended after *timeout*.
        """
        return await _ended_row(await self._engine(), named(job_id), optional_span("timeout", timeout))

    async def result(self, job_id: str, timeout: Duration | None = None, *, as_json: bool = False) -> Any:
        """Wait until the job is complete, and return its result.

        The result has the type that the task's function names. *as_json*, or where this app does not know the task, it is
        JSON data.

        Raises:
            JobFailed: It ended without a result.
            ResultExpired: Retention has removed the result.
            TimeoutError: It has not ended after *timeout*.
        """
        engine = await self._engine()
        row = await self.wait(job_id, timeout)
        if row.state is not State.COMPLETE:
            raise JobFailed(job_id, row.state, row.error_code, row.error_message)
        result, task = await _stored_result(engine, row), engine.tasks.get(row.task)
        return result if task is None or as_json else task.returns.read(result)

    async def explain(self, job_id: str) -> Explanation:
        """Return why the job is not running and when it is expected to run: a sentence, a code and facts."""
        return await explain_job(await self._engine(), named(job_id))

    async def attempts(self, job_id: str, *, after: int = 0, limit: int = EVERY) -> builtins.list[Attempt]:
        """Return the attempts of a job, oldest first, from behind the epoch *after*."""
        return await (await self._engine()).store.queries.attempts(named(job_id), after=after, limit=limit)

    async def late_results(
        self, job_id: str, *, after: int | None = None, limit: int = EVERY
    ) -> builtins.list[LateResult]:
        """Return results that arrived after the job had ended, from behind the epoch *after*. They changed nothing."""
        start = FIRST if after is None else after
        return await (await self._engine()).store.queries.late_results(
            named(job_id), after=start, limit=limit
        )

    async def artifacts(self, job_id: str) -> builtins.list[Artifact]:
        """Return what the job's attempts have stored outside of the database."""
        return await (await self._engine()).store.queries.artifacts(named(job_id))

    async def read_artifact(self, reference: str) -> bytes:
        """Return the bytes of an artifact: what `job.artifact(…)` has stored, or a large result as JSON.

        Raises `ResultExpired` when it was removed.
        """
        return await (await self._engine()).artifact_store.read(reference)

    async def retry(
        self,
        job_id: str,
        *,
        by: str = "api",
        owner: str | None = None,
        from_step: str | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | str | None = None,
        precondition: Precondition = UNCONDITIONAL,
    ) -> int:
        """Run a failed, cancelled, waiting or stuck job now, and return its queue position.

        Args:
            job_id: The job.
            by: Who retries it; the event records it.
            owner: Refuse a job of another owner.
            from_step: Forget this step and every one recorded after it. Without it all steps are kept.
            args: Call the task with these arguments instead, all of them by name. Its steps are forgotten then, unless
                *from_step* says which.
            priority: The job's priority from now on; None keeps the one it has.
            precondition: Retry only if the job is still as it was read.

        Raises:
            Conflict: The job is complete, or it is processing and not stuck.
            QuotaExceeded: Its owner, or the organization of its owner, has used up its quota of manual retries.
        """
        engine, known = await self._engine(), named(job_id)
        level = None if priority is None else checked_priority(priority)
        if owner is not None and (await job_row(engine, known)).owner != owner:
            raise Conflict(f"job {job_id} belongs to another owner")
        return await retry_job(
            engine,
            known,
            by=by,
            from_step=from_step,
            args=args,
            priority=level,
            precondition=precondition,
        )

    async def cancel(
        self,
        job_id: str,
        *,
        by: str = "api",
        reason: str = "",
        precondition: Precondition = UNCONDITIONAL,
    ) -> None:
        """Cancel a queued or processing job. A running attempt is asked to stop. Raises `Conflict` when it has ended."""
        engine, known = await self._engine(), named(job_id)
        await engine.store.cancel(known, by, reason, precondition=precondition)
        engine.moved(known)

    async def stuck(
        self,
        *,
        longer_than: Duration | None = None,
        task: str | Collection[str] | None = None,
        owner: str | None = None,
        ids: str | Collection[str] | None = None,
        limit: int = 100,
    ) -> builtins.list[StuckJob]:
        """Return attempts that run too long although their worker is alive, oldest first.

        Too long is longer than the `stuck_after` of the task, or than *longer_than*. A full page may not be all; what is
        reclaimed makes room for the rest.
        """
        where = job_filter(task=task, owner=owner, ids=ids)
        return await find_stuck(await self._engine(), where, longer_than=optional(longer_than), limit=limit)

    async def reclaim(self, jobs: Sequence[StuckJob], *, by: str = "api") -> int:
        """Take stuck jobs from their workers, and return how many were taken.

        They fail with `STUCK` and are retried, or become dead letters. A job that has ended since, or that was reclaimed by
        another caller, is left alone. The events record *by*.
        """
        return await reclaim_stuck(await self._engine(), jobs, by=by)


async def _ended_row(engine: Engine, job_id: JobId, limit: timedelta | None) -> JobRow:
    # On a clock that is moved by hand, real time counts too: otherwise nothing might ever end the wait.
    loop = asyncio.get_running_loop()
    began, really_began = engine.clock.monotonic(), loop.time()
    with Awaited(job_id) as awaited:
        while True:
            row = await job_row(engine, job_id)
            if row.state in FINISHED:
                return row
            awaited.seen(row, engine.clock.now())
            left = _POLL
            if limit is not None:
                spent = max(engine.clock.monotonic() - began, loop.time() - really_began)
                left = limit.total_seconds() - spent
            if left <= 0:
                raise TimeoutError(await _why_not_ended(engine, row, limit or timedelta()))
            await engine.store.wait_for_end(row.id, min(left, _POLL))


async def _why_not_ended(engine: Engine, row: JobRow, waited: timedelta) -> str:
    state = f"job {row.id} is still {row.state} after {format_duration(waited)}"
    try:
        return f"{state}. {(await explain_job(engine, row.id)).sentence}"
    except HoldfastError:
        return state


async def _stored_result(engine: Engine, row: JobRow) -> Any:
    """Return the result of a complete job as JSON data. Raises `ResultExpired` when retention has removed it."""
    if row.expired_at is not None:
        raise ResultExpired(f"the result of job {row.id}", f"it was removed on {row.expired_at:%Y-%m-%d}")
    if row.artifact is None:
        return row.result
    return decode_any(await engine.artifact_store.read(row.artifact))
