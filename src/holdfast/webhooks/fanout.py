"""The maintenance task that enqueues the messages of webhooks: one job per webhook and event.

Any number of processes may run it.

```text
  bookmark ──▶ events after it ──▶ subscribed webhooks ──▶ jobs (ids from webhook and event) ──▶ move the bookmark
```

A process that dies in between leaves the bookmark where it was. The next one enqueues the same ids, which
creates no second job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.engine.tables import bookmarks
from holdfast.jobs.job import Event, NewJob
from holdfast.logging import Log
from holdfast.webhooks import table as webhook_table
from holdfast.webhooks.delivery import delivery
from holdfast.webhooks.envelope import event_body
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.selection import active_outbound, delivery_id, existed_at, message_id, wants

log = Log("holdfast.webhooks")

BOOKMARK = "webhooks"
DISPATCH_EVERY = 0.5
#: How many batches one run reads.
STEPS = 10
#: How many messages are enqueued at once. A single event may make more, if more webhooks want it.
MOST_MESSAGES = 5_000
#: How often to check for webhooks while there are none, in seconds.
CHECK_EVERY = 2.0


class Fanout:
    """Enqueues the messages of all webhooks about the events in the log."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._subjects = engine, JobOwners(engine.store.queries.jobs)
        self._check_at = -math.inf

    async def run(self) -> None:
        """Enqueue the messages of the next events, up to `STEPS` batches."""
        clock, store = self._engine.clock, self._engine.store
        if clock.monotonic() < self._check_at:
            return
        if not active_outbound(await webhook_table.every(store)):
            self._check_at = clock.monotonic() + CHECK_EVERY
            return
        for _ in range(STEPS):  # then the other maintenance tasks of this process get their turn
            if not await self._step():
                break

    async def _step(self) -> bool:
        """Process one batch of events. Return whether there may be more."""
        store = self._engine.store
        before = await bookmarks.get(store, BOOKMARK)
        if before is None:
            await bookmarks.move(store, BOOKMARK, before=None, to=await store.queries.newest_event())
            return False
        events = await store.queries.events(after=before, limit=BATCH)
        if not events:
            return False
        # Read after the events: so every webhook that existed before one of them is included.
        jobs = await self._enqueue(active_outbound(await webhook_table.every(store)), events)
        moved = await bookmarks.move(store, BOOKMARK, before=before, to=events[-1].id)
        if jobs and moved:
            log.debug("webhook.deliveries_enqueued", jobs=jobs)
        return moved and len(events) == BATCH

    async def _enqueue(self, webhooks: Sequence[Webhook], events: Sequence[Event]) -> int:
        """Enqueue the messages about *events*, in parts if there are many webhooks.

        Return the number of messages.
        """
        count, step = 0, max(1, MOST_MESSAGES // max(1, len(webhooks)))
        for start in range(0, len(events), step):
            jobs = await deliveries(webhooks, events[start : start + step], self._subjects)
            if jobs:
                await self._engine.enqueue(jobs)
            count += len(jobs)
        return count


async def deliveries(
    webhooks: Sequence[Webhook],
    events: Sequence[Event],
    subjects: JobOwners,
    replay: str | None = None,
) -> list[NewJob]:
    """Return the jobs that send *events* to the *webhooks* that want them.

    Events from before a webhook existed are left out, except in a *replay*, which is named by its id.
    """
    if not webhooks:
        return []
    known = await subjects.of(events)
    jobs = []
    for event in events:
        subject = known[event.job_id]
        subscribers = [webhook for webhook in webhooks if wants(webhook, event, subject)]
        body = event_body(event, subject).decode() if subscribers else ""
        for webhook in subscribers:
            if replay is not None or existed_at(webhook, event):
                message = message_id(webhook.id, event.id)
                job_id = delivery_id(message, event.at, replay or "")
                jobs.append(delivery(webhook.id, message, body, job_id))
    return jobs
