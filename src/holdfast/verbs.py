"""The verbs as an app offers them: the same words in Python, on the command line, in SQL files and in events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any

from holdfast.domain.duration import Duration, optional
from holdfast.domain.job import (
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
)
from holdfast.domain.moves import State
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Page, Retention
from holdfast.errors import JobFailed, UsageError


class Verbs(ABC):
    """What can be done with jobs, through whatever engine is at hand."""

    @abstractmethod
    async def engine(self) -> Engine:
        """The engine of the running event loop."""

    async def wait(self, job_id: JobId, timeout: Duration | None) -> JobRow:
        """The row of the job once it is complete; `JobFailed` when it ended otherwise."""
        row = await (await self.engine()).wait(job_id, timeout)
        if row.state is not State.COMPLETE:
            raise JobFailed(job_id, row.state, row.error_code, row.error_message)
        return row

    async def job(self, job_id: str) -> JobRow:
        """The job as it is now. `UnknownJob` when there is none."""
        return await (await self.engine()).job(job_id)

    async def jobs(self, *, after: str | None = None, limit: int = 50, **where: Any) -> Page:
        """Newest first: `app.jobs(state="failed", task="convert", owner=…, tag=…, args={…})`."""
        return await (await self.engine()).jobs(job_filter(**where), after=after, limit=limit)

    async def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return await (await self.engine()).counts()

    async def events(self, *, after: int = 0, limit: int = 1000, job_id: str | None = None) -> list[Event]:
        return await (await self.engine()).events(after=after, limit=limit, job_id=job_id)

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await (await self.engine()).attempts(job_id)

    async def late_results(self, job_id: str) -> list[LateResult]:
        return await (await self.engine()).late_results(job_id)

    async def retry(
        self, job_id: str, *, by: str = "api", owner: str | None = None, from_step: str | None = None
    ) -> int:
        """Run a failed, cancelled, waiting or stuck job now; its place in line. Else `Conflict`."""
        return await (await self.engine()).retry(job_id, by=by, owner=owner, from_step=from_step)

    async def cancel(self, job_id: str, *, by: str = "api", reason: str = "") -> None:
        """Queued or processing → cancelled. A running attempt is told to stop."""
        await (await self.engine()).cancel(job_id, by=by, reason=reason)

    async def dead_letters(
        self, *, after: str | None = None, limit: int = 50, **where: Any
    ) -> list[DeadLetter]:
        return await (await self.engine()).dead_letters(dead_letter_filter(**where), after=after, limit=limit)

    async def dead_letter_groups(self, *, limit: int = 50, **where: Any) -> list[DeadLetterGroup]:
        return await (await self.engine()).dead_letter_groups(dead_letter_filter(**where), limit)

    async def redrive(
        self,
        ids: str | Collection[str] | None = None,
        *,
        by: str = "api",
        to_queue: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
        **where: Any,
    ) -> int:
        """Give dead letters another life: one, many, or all that match; how many were queued."""
        chosen = dead_letter_filter(ids=ids, **where)
        return await (await self.engine()).redrive(
            chosen, by=by, queue=to_queue, rate=rate, limit=limit, progress=progress
        )

    async def discard(
        self, ids: str | Collection[str] | None = None, *, reason: str, by: str = "api", **where: Any
    ) -> int:
        """Strike dead letters; their jobs stay failed. How many."""
        return await (await self.engine()).discard(dead_letter_filter(ids=ids, **where), reason=reason, by=by)

    async def purge(
        self,
        *,
        results: Duration | None = None,
        jobs: Duration | None = None,
        events: Duration | None = None,
        task: str | None = None,
    ) -> int:
        """Remove what was kept this long; how many rows."""
        keep = Retention(optional(results), optional(jobs), optional(events))
        return await (await self.engine()).purge(keep, task)


def _many(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def job_filter(
    *,
    state: str | Collection[str] | None = None,
    task: str | Collection[str] | None = None,
    queue: str | Collection[str] | None = None,
    owner: str | None = None,
    tag: str | None = None,
    args: dict[str, Any] | None = None,
) -> JobFilter:
    try:
        states = tuple(State(value) for value in _many(state))
    except ValueError as error:
        raise UsageError(f"{error}; a state is one of {', '.join(State)}") from None
    return JobFilter(
        states=states, tasks=_many(task), queues=_many(queue), owner=owner, tag=tag, args=args or {}
    )


def dead_letter_filter(
    *,
    ids: str | Collection[str] | None = None,
    task: str | Collection[str] | None = None,
    queue: str | Collection[str] | None = None,
    reason: str | Collection[str] | None = None,
    fingerprint: str | None = None,
    owner: str | None = None,
) -> DeadLetterFilter:
    return DeadLetterFilter(
        ids=_many(ids),
        tasks=_many(task),
        queues=_many(queue),
        reasons=_many(reason),
        fingerprint=fingerprint,
        owner=owner,
    )
