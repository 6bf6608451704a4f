"""`app.queues`: queues, lanes, workers and owners; pause and resume what starts jobs."""

from __future__ import annotations

import builtins
from datetime import timedelta

from holdfast.engine.explanations import LaneRow, QueueRow, lane_rows, queue_rows
from holdfast.engine.namespace import Namespace
from holdfast.engine.owners import OwnerRow, owner_row
from holdfast.engine.scopes import find_scope
from holdfast.engine.tables.holds import end_pause, holds_in_force
from holdfast.errors import UsageError
from holdfast.jobs.forecast import Forecast
from holdfast.jobs.job import WorkerRow
from holdfast.jobs.lanes import Cause, Held, Scope
from holdfast.values.duration import Duration
from holdfast.values.validation import optional_span, span, word

#: How many jobs a forecast reads, and how many pieces of time it may have.
MOST_FORECAST, MOST_BUCKETS = 10_000, 1000


class Queues(Namespace):
    """Queues, their lanes, the workers that serve them, the pauses that hold them, and the limits of owners."""

    async def list(self, *, after: str | None = None, limit: int | None = None) -> builtins.list[QueueRow]:
        """Return queues by name, from behind the name *after*: what waits in each, who serves it, whether it is paused."""
        return await queue_rows(await self._engine(), after, limit)

    async def lanes(self, *, after: str | None = None, limit: int | None = None) -> builtins.list[LaneRow]:
        """Return lanes by label, from behind the label *after*: what waits in each, what holds it, what limits it."""
        return await lane_rows(await self._engine(), after, limit)

    async def workers(self) -> builtins.list[WorkerRow]:
        """Return the live worker processes, oldest first, with the queues they serve and how many jobs they run."""
        return await (await self._engine()).store.queries.workers()

    async def forecast(self, *, within: Duration = "1h", bucket: Duration = "1m") -> Forecast:
        """Return how many jobs that are queued for later will be due in each *bucket* of time from now on, by dependency.

        These are the retries that are scheduled already, and jobs with a delay. It reads a bounded number of jobs, those that are
        due first; `until` says how far that was.
        """
        shortest, month = timedelta(seconds=1), timedelta(days=30)
        longest, size = span("within", within, shortest, month), span("bucket", bucket, shortest, month)
        if longest > size * MOST_BUCKETS:
            raise UsageError(
                f"these are more than {MOST_BUCKETS} buckets; make them longer, or look less far ahead"
            )
        return await (await self._engine()).store.queries.forecast(longest, size, MOST_FORECAST)

    async def holds(self) -> builtins.list[Held]:
        """Return what is held now: by people, and by services that asked for it."""
        return await holds_in_force((await self._engine()).store)

    async def owners(self) -> builtins.list[OwnerRow]:
        """Return the owners that the policy file names, by name: their limits, and what they have used of their quotas."""
        engine = await self._engine()
        return [await owner_row(engine, name) for name in sorted(engine.admission.policies.owners)]

    async def owner(self, name: str) -> OwnerRow:
        """Return the limits of one owner, and what it has used of its quotas."""
        return await owner_row(await self._engine(), word("name", name))

    async def pause(
        self,
        name: str,
        *,
        kind: str = "queue",
        duration: Duration | None = None,
        reason: str = "",
        by: str = "api",
    ) -> Scope:
        """Start no more jobs of *name*, until `resume` or for *duration*. Running jobs continue.

        No job is touched, so a pause costs the same however many wait.

        Args:
            name: What to pause.
            kind: "queue", "task", "lane", "dependency", "schedule" or "maintenance".
            duration: How long; without it until `resume`.
            reason: Shown wherever the pause is shown.
            by: Who pauses it.

        Raises `UsageError`, with similar names, when there is no such *name*.
        """
        span, engine = optional_span("duration", duration), await self._engine()
        scope = await find_scope(engine, kind, name)
        await engine.store.lanes.hold(scope, Cause.PAUSE, span=span, reason=reason, by=by)
        return scope

    async def resume(self, name: str, *, kind: str = "queue", by: str = "api") -> bool:
        """End a pause, and return whether there was one."""
        engine = await self._engine()
        return await end_pause(engine.store, await find_scope(engine, kind, name), by=by)
