"""The verbs as an app offers them: the same words in Python, on the command line, in SQL files and in events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

from holdfast.desk import Desk
from holdfast.domain.breaker import Breaker
from holdfast.domain.duration import Duration, optional
from holdfast.domain.explain import Explanation
from holdfast.domain.external import Outcome, ReportResult
from holdfast.domain.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterGroup,
    Event,
    JobRow,
    LateResult,
    WorkerRow,
    named,
)
from holdfast.domain.lanes import Held
from holdfast.domain.moves import State
from holdfast.domain.validation import optional_span
from holdfast.engine.engine import Engine
from holdfast.engine.explanations import LaneRow, QueueRow
from holdfast.engine.filters import dead_letter_filter, job_filter
from holdfast.engine.lane_store import DependencyState
from holdfast.engine.ports import Page, Retention
from holdfast.errors import JobFailed
from holdfast.outbox import OutboxVerbs
from holdfast.webhooks.verbs import WebhookVerbs


class Verbs(WebhookVerbs, Desk, OutboxVerbs, ABC):
    """What can be done with jobs, through whatever engine is at hand."""

    @abstractmethod
    async def engine(self) -> Engine:
        """The engine of the running event loop."""

    async def wait(self, job_id: str, timeout: Duration | None) -> JobRow:
        """The row of the job once it is complete; `JobFailed` when it ended otherwise."""
        row = await (await self.engine()).wait(job_id, timeout)
        if row.state is not State.COMPLETE:
            raise JobFailed(job_id, row.state, row.error_code, row.error_message)
        return row

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the end and return the result as the type that its task's function names, or as JSON data where this app
        does not know the task. Raise `JobFailed` when there is none, `ResultExpired` when it was removed, `TimeoutError`
        when time is up."""
        row = await self.wait(job_id, timeout)
        engine = await self.engine()
        result, task = await engine.result_of(row), engine.tasks.get(row.task)
        return result if task is None else task.returns.read(result)

    async def artifact(self, reference: str) -> bytes:
        """What a handler has kept by `job.artifact(…)`, or a large result as JSON. `ResultExpired` when it was removed."""
        return await (await self.engine()).artifact_store.read(reference)

    async def artifacts(self, job_id: str) -> list[Artifact]:
        """What the job's attempts have put outside of the database."""
        return await (await self.engine()).artifacts(job_id)

    async def job(self, job_id: str) -> JobRow:
        """The job as it is now. `UnknownJob` when there is none."""
        return await (await self.engine()).job(job_id)

    async def jobs(self, *, after: str | None = None, limit: int = 50, **where: Any) -> Page:
        """Newest first: `app.jobs(state="failed", task="convert", owner=…, tag=…, args={…}, ids=…, key=…, error_code=…,
        created_after=…, created_before=…)`. A page may hold fewer than *limit*, or none, and have a `next` all the same. The
        engine's own jobs (`holdfast.webhook`, …) are left out, unless they are named, by id or task, or with `internal=True`."""
        return await (await self.engine()).jobs(job_filter(**where), after=after, limit=limit)

    async def counts(self, *, internal: bool = False) -> dict[str, int]:
        """How many jobs are in each state; with *internal*, the engine's own too."""
        return await (await self.engine()).counts(internal=internal)

    async def pause(
        self,
        name: str,
        *,
        kind: str = "queue",
        duration: Duration | None = None,
        reason: str = "",
        by: str = "api",
    ) -> None:
        """Start nothing more of a queue, task, lane, dependency or duty, until `resume` or for a *duration*. What runs
        goes on. No job is touched, so it costs the same however many wait."""
        await (await self.engine()).pause(
            kind, name, span=optional_span("duration", duration), reason=reason, by=by
        )

    async def resume(self, name: str, *, kind: str = "queue", by: str = "api") -> bool:
        """End a pause; whether there was one."""
        return await (await self.engine()).resume(kind, name, by=by)

    async def forget_schedule(self, name: str) -> None:
        """Delete a schedule that no code declares any more. One that is still declared starts anew with its next tick."""
        await (await self.engine()).forget_schedule(name)

    async def holds(self) -> list[Held]:
        """What is held now: by people, and by services that asked for it."""
        return await (await self.engine()).holds()

    async def breakers(self) -> list[DependencyState]:
        """The dependencies, as all workers together see them."""
        return await (await self.engine()).breakers()

    async def open_breaker(
        self, name: str, *, duration: Duration | None = None, reason: str = "", by: str = "api"
    ) -> Breaker:
        """Hold back all calls to a dependency for *duration* (its cooldown), whatever its workers saw; then trials begin."""
        return await (await self.engine()).open_breaker(
            name, span=optional_span("duration", duration), reason=reason, by=by
        )

    async def close_breaker(self, name: str, *, reason: str = "", by: str = "api") -> Breaker:
        """Let calls to a dependency begin again, without trials."""
        return await (await self.engine()).close_breaker(name, reason=reason, by=by)

    async def try_breaker(self, name: str, *, reason: str = "", by: str = "api") -> Breaker:
        """Let the trials of a dependency begin now: a few calls decide whether the others follow."""
        return await (await self.engine()).try_breaker(name, reason=reason, by=by)

    async def explain(self, job_id: str) -> Explanation:
        """Why the job is not running, and when it is expected to: one sentence, a code, and facts."""
        return await (await self.engine()).explain(job_id)

    async def lanes(self, *, after: str | None = None, limit: int | None = None) -> list[LaneRow]:
        """Lanes by their labels: what waits in each, what holds it, what limits it. *after* a label, up to *limit*."""
        return await (await self.engine()).lanes(after=after, limit=limit)

    async def queues(self, *, after: str | None = None, limit: int | None = None) -> list[QueueRow]:
        """Queues by their names: what waits in each, who serves it, whether it is paused. *after* a name, up to *limit*."""
        return await (await self.engine()).queues(after=after, limit=limit)

    async def workers(self) -> list[WorkerRow]:
        """The worker processes that live, oldest first, with the queues they serve and how many jobs they hold."""
        return await (await self.engine()).workers()

    async def events(self, *, after: int = 0, limit: int = 1000, job_id: str | None = None) -> list[Event]:
        return await (await self.engine()).events(after=after, limit=limit, job_id=job_id)

    async def attempts(self, job_id: str) -> list[Attempt]:
        return await (await self.engine()).attempts(job_id)

    async def late_results(self, job_id: str) -> list[LateResult]:
        return await (await self.engine()).late_results(job_id)

    async def retry(
        self,
        job_id: str,
        *,
        by: str = "api",
        owner: str | None = None,
        from_step: str | None = None,
        args: Mapping[str, Any] | None = None,
        priority: int | str | None = None,
    ) -> int:
        """Run a failed, cancelled, waiting or stuck job now; its place in line. Else `Conflict`. With *args* it is called with
        these instead, all of them by name; its steps are forgotten then, unless *from_step* says which. *priority* is the
        job's from now on, as in `options(priority=…)`; None keeps the one it has."""
        engine = await self.engine()
        return await engine.retry(
            job_id, by=by, owner=owner, from_step=from_step, args=args, priority=priority
        )

    async def cancel(self, job_id: str, *, by: str = "api", reason: str = "") -> None:
        """Queued or processing → cancelled. A running attempt is told to stop."""
        await (await self.engine()).cancel(job_id, by=by, reason=reason)

    async def note(self, job_id: str, kind: str, *, name: str, **meta: Any) -> bool:
        """Put something that is no move on a job's record: an event, told like all others (webhooks, streams, hooks). *kind* is
        "breached" (a promise about it was broken) or "compensated"; *meta* is what belongs to it. However often it is sent, a job
        has one of each kind and *name*; whether this is it."""
        return await (await self.engine()).note(job_id, kind, name, meta)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection of the store in a transaction that commits on leaving: for what is to be stored together, e.g.
        `enqueue(connection=…)`, `publish(connection=…)` and rows of your own."""
        async with (await self.engine()).store.transaction() as connection:
            yield connection

    async def begin(
        self, job_id: str, *, generation: int, worker: str, lease: Duration | None = None
    ) -> ReportResult:
        """Somebody outside has taken up a job of a task with `execute="external"`; it is reclaimed when *lease* is over."""
        engine = await self.engine()
        return await engine.begin(named(job_id), generation=generation, worker=worker, lease=optional(lease))

    async def end(self, job_id: str, outcome: Outcome, *, generation: int, worker: str) -> ReportResult:
        """What came of it outside: `Done(result)`, `Failed(code, detail)` or `Requeue(delay, reason, retry=…)`. May be sent twice."""
        return await (await self.engine()).end(named(job_id), outcome, generation=generation, worker=worker)

    async def refuse(self, job_id: str, name: str, *, reason: str = "", by: str = "") -> bool:
        """A report about a job that is executed outside is not believed: it is not signed, say. Nothing is changed, and the job has
        an event `stale_write` that says so: one for each *name*, however often it comes, so that nobody can fill the record.
        Whether this is it."""
        return await (await self.engine()).refuse(named(job_id), name, reason=reason, by=by)

    async def dead_letters(
        self, *, after: str | None = None, limit: int = 50, **where: Any
    ) -> list[DeadLetter]:
        """By id: `app.dead_letters(task=…, queue=…, code=…, fingerprint=…, owner=…, ids=…, died_after=…, died_before=…)`.
        *after* is the id of the last one before; a page that is not full is the last."""
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
        """Redrive dead letters (one, many, or all that match) and return how many were queued."""
        chosen = dead_letter_filter(ids=ids, **where)
        return await (await self.engine()).redrive(
            chosen, by=by, queue=to_queue, rate=rate, limit=limit, progress=progress
        )

    async def discard(
        self, ids: str | Collection[str] | None = None, *, reason: str, by: str = "api", **where: Any
    ) -> int:
        """Delete dead letters and return how many; their jobs stay failed."""
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
