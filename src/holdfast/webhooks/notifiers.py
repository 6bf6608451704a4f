"""The maintenance task that calls the notifiers of plug-ins, each from its own bookmark in the event log.

A notifier is called after the event was committed, at least once: if a process dies before it moves the
bookmark, the next one calls again. A failed call is repeated after a pause. After `TRIES` the event is
skipped and logged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.engine.cloudevent import Subject
from holdfast.engine.engine import Engine
from holdfast.engine.leader import Leader
from holdfast.engine.notice import Notice
from holdfast.engine.tables import bookmarks
from holdfast.jobs.job import Event
from holdfast.logging import Log
from holdfast.redaction import redacted
from holdfast.tasks import plugins
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.selection import is_webhook_job

log = Log("holdfast.webhooks")

NOTIFY_EVERY = 0.5
PAGE = 200
#: How long one notifier is called before the next gets its turn, in seconds.
TURN = 2.0
#: The name and duration of the leadership: longer than a turn and its last call.
LEADER, LEAD_SECONDS = "notifiers.leading", 2 * TURN + plugins.NOTIFY_WITHIN
#: How often a notifier is called for one event, and the first pause between two calls, doubled each time.
TRIES, FIRST_PAUSE = 6, 1.0


@dataclass(slots=True)
class NotifierProgress:
    """The failures of one notifier in this process."""

    failures: int = 0  #: failures in a row for the event after its bookmark
    next_call: float = -math.inf


class NotifierFeed:
    """Calls notifiers with new events. *notifiers* returns the event kinds for each plug-in."""

    def __init__(self, engine: Engine, notifiers: Callable[[], Mapping[str, frozenset[str]]]) -> None:
        self._store, self._clock, self._notifiers = engine.store, engine.clock, notifiers
        self._subjects = JobOwners(engine.store.queries.jobs)
        self._leader = Leader(engine.store, engine.clock, LEADER, LEAD_SECONDS)
        self._progress: dict[str, NotifierProgress] = {}

    async def run(self) -> None:
        """Call every notifier with its next page of events, one after another."""
        for name, kinds in self._notifiers().items():
            progress = self._progress.setdefault(name, NotifierProgress())
            if self._clock.monotonic() >= progress.next_call and await self._leader.is_ours():
                await self._follow(name, kinds, progress)

    async def _follow(self, name: str, kinds: frozenset[str], progress: NotifierProgress) -> None:
        bookmark = f"notifier.{name}"
        before = await bookmarks.get(self._store, bookmark)
        if before is None:  # a new notifier gets only the events from now on
            await bookmarks.move(
                self._store, bookmark, before=None, to=await self._store.queries.newest_event()
            )
            return
        events = await self._store.queries.events(after=before, limit=PAGE)
        known = await self._subjects.of([event for event in events if event.kind in kinds])
        until, read = self._clock.monotonic() + TURN, before
        for event in events:
            if event.kind in kinds and not is_webhook_job(event.job_id, known[event.job_id]):
                if not await self._notify(name, progress, notice_of(event, known[event.job_id])):
                    break
                # Moved after each call, so that a process that ends now repeats none.
                if not await bookmarks.move(self._store, bookmark, before=before, to=event.id):
                    return
                before = event.id
                if self._clock.monotonic() >= until:
                    return
            read = event.id
        if read != before:
            await bookmarks.move(self._store, bookmark, before=before, to=read)

    async def _notify(self, name: str, progress: NotifierProgress, notice: Notice) -> bool:
        """Call the notifier.

        Return whether to move on: it succeeded, or has failed too often for this event.
        """
        plugin = plugins.notifier(name)
        if await plugin.notify(notice):
            progress.failures = 0
            return True
        progress.failures += 1
        # It cannot be loaded here: a process that can load it will continue from the bookmark.
        if plugin.is_broken:
            progress.next_call = math.inf
            return False
        if progress.failures < TRIES:
            progress.next_call = self._clock.monotonic() + FIRST_PAUSE * 2 ** (progress.failures - 1)
            return False
        log.warning("notifier.event_skipped", plugin=name, event_id=notice.id, kind=notice.kind, tries=TRIES)
        progress.failures = 0
        return True


def notice_of(event: Event, subject: Subject) -> Notice:
    """Return the argument for notifiers about *event*, redacted."""
    return Notice(
        id=event.id,
        at=event.at,
        kind=event.kind,
        job_id=event.job_id or None,
        task=subject.task,
        queue=subject.queue,
        owner=subject.owner,
        attempt=event.attempt,
        meta=redacted(None, event.meta),
    )
