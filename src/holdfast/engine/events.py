"""`app.events`: the event log, and notes on the record of a job."""

from __future__ import annotations

import builtins
from typing import Any

from holdfast.engine.namespace import Namespace
from holdfast.errors import UsageError
from holdfast.jobs.job import Event, named
from holdfast.jobs.moves import NOTES
from holdfast.tasks.payload import encode, size
from holdfast.values.validation import whole, word

#: No event has a larger number.
LARGEST_EVENT = 2**63 * 1000
#: How many events one call may return.
_MOST = 1_000_000
#: The bytes of a note at most, and the words that mean something in every event.
_LONGEST_NOTE = 4_000
_TAKEN = frozenset({"attempt", "epoch", "job", "kind", "name", "token"})


class Events(Namespace):
    """What happened to jobs, in order."""

    async def list(
        self, *, after: int = 0, limit: int = 1000, job_id: str | None = None
    ) -> builtins.list[Event]:
        """Return events, oldest first, from behind the number *after*; with *job_id*, those of one job.

        An event that commits later never appears before one that was returned already.
        """
        whole("after", after, 0, LARGEST_EVENT)
        whole("limit", limit, 1, _MOST)
        only = None if job_id is None else named(job_id)
        return await (await self._engine()).store.queries.events(after=after, limit=limit, job_id=only)

    async def newest(self) -> int:
        """Return the number behind which nothing has happened yet: where to begin to follow what happens from now on."""
        return await (await self._engine()).store.queries.newest_event()

    async def note(self, /, job_id: str, kind: str, *, name: str, **meta: Any) -> bool:
        """Record an event that is no move of the job. Streams, webhooks and hooks see it like every other.

        A job has one note of each *kind* and *name*, however often it is sent.

        Args:
            job_id: The job.
            kind: "breached" (a promise about the job was broken) or "compensated".
            name: Tells notes of one kind apart.
            meta: What belongs to it.

        Returns whether it is new. Raises `UnknownJob` when there is no such job.
        """
        kinds = {one.name: one for one in sorted(NOTES)}
        if kind not in kinds:
            raise UsageError(f"nothing is noted as {str(kind)[:40]!r}; it is one of {', '.join(kinds)}")
        if taken := sorted(_TAKEN & meta.keys()):
            raise UsageError(f"a note cannot say {taken[0]!r}: events use this word themselves")
        kept = {key: value for key, value in meta.items() if value is not None}
        if (length := size(encode(kept, what="a note"))) > _LONGEST_NOTE:
            raise UsageError(f"a note has at most {_LONGEST_NOTE:,} bytes, not {length:,}")
        known, store = named(job_id), (await self._engine()).store
        word("name", name)
        return await store.transact(lambda transaction: transaction.note(known, kinds[kind], name, kept))
