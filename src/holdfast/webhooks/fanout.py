"""The duty that makes a job of every message that is to be sent: one for each webhook and event, however many work on it.

```text
  bookmark ──▶ events behind it ──▶ who wants them ──▶ jobs (ids made of webhook and event) ──▶ bookmark moves
```

A process that dies in between leaves the bookmark where it was. The next one makes the same jobs, which exist already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.domain.job import Event, NewJob
from holdfast.domain.webhook import Webhook
from holdfast.engine.engine import Engine
from holdfast.engine.recovery import BATCH
from holdfast.logs import Log
from holdfast.webhooks.delivery import delivery
from holdfast.webhooks.envelope import enveloped
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.selection import delivery_id, message_id, open_ones, wants, was_there

log = Log("holdfast.webhooks")

BOOKMARK = "webhooks"
DISPATCH_EVERY = 0.5
#: How many batches are read at a time.
STEPS = 10
#: How many messages are made at once; more only of a single event that more webhooks want.
MOST_MESSAGES = 5_000
#: How often to look whether there are any webhooks, while there are none.
LOOK_EVERY = 2.0


class Fanout:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._subjects = engine, JobOwners(engine.store)
        self._look_at = -math.inf

    async def run(self) -> None:
        """Bring the bookmark on, to the end of the log where it is not far."""
        clock, store = self._engine.clock, self._engine.store
        if clock.monotonic() < self._look_at:
            return
        if not open_ones(await store.webhooks()):
            self._look_at = clock.monotonic() + LOOK_EVERY
            return
        for _ in range(STEPS):  # the other duties of this process have their turn too
            if not await self._step():
                break

    async def _step(self) -> bool:
        """One batch; whether there may be more."""
        store = self._engine.store
        before = await store.bookmark(BOOKMARK)
        if before is None:
            await store.move_bookmark(BOOKMARK, before=None, to=await store.newest_event())
            return False
        events = await store.events(after=before, limit=BATCH)
        if not events:
            return False
        # Asked after the events were read: a webhook that was there before one of them is among them.
        jobs = await self._enqueue(open_ones(await store.webhooks()), events)
        moved = await store.move_bookmark(BOOKMARK, before=before, to=events[-1].id)
        if jobs and moved:
            log.debug("webhook.deliveries_enqueued", jobs=jobs)
        return moved and len(events) == BATCH

    async def _enqueue(self, webhooks: Sequence[Webhook], events: Sequence[Event]) -> int:
        """Enqueue the messages of these *events*, some events at a time where there are many webhooks; how many they were."""
        count, some = 0, max(1, MOST_MESSAGES // max(1, len(webhooks)))
        for start in range(0, len(events), some):
            jobs = await deliveries(webhooks, events[start : start + some], self._subjects)
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
    """The jobs that tell these *webhooks* of those *events* that they want; as a *replay* of this name, also of what was before them."""
    if not webhooks:
        return []
    known = await subjects.of(events)
    jobs = []
    for event in events:
        subject = known[event.job_id]
        wanting = [webhook for webhook in webhooks if wants(webhook, event, subject)]
        body = enveloped(event, subject).decode() if wanting else ""
        for webhook in wanting:
            if replay is not None or was_there(webhook, event):
                message = message_id(webhook.id, event.id)
                job_id = delivery_id(message, event.at, replay or "")
                jobs.append(delivery(webhook.id, message, body, job_id))
    return jobs
