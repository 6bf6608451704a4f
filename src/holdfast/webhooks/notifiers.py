"""The duty that calls the notifiers of plug-ins, each from a bookmark of its own in the log of events.

A call happens after the event was committed, at least once: a process that dies before the bookmark moves leaves the event
to the next. A call that fails is made again after a pause, and after `TRIES` the event is passed over and logged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.domain.cloudevent import Subject
from holdfast.domain.job import Event
from holdfast.domain.notice import Notice
from holdfast.engine import plugins
from holdfast.engine.engine import Engine
from holdfast.engine.leader import Leader
from holdfast.logs import Log
from holdfast.redaction import redacted
from holdfast.webhooks.job_owners import JobOwners
from holdfast.webhooks.selection import is_ours

log = Log("holdfast.webhooks")

NOTIFY_EVERY = 0.5
PAGE = 200
#: How long one notifier may be called until the next has its turn, in seconds.
TURN = 2.0
#: Longer than a turn and the call that ends it.
LEADING, LEAD_FOR = "notifiers.leading", 2 * TURN + plugins.NOTIFY_WITHIN
#: How often a notifier is called for one event, and the first pause between two calls, doubled each time.
TRIES, FIRST_PAUSE = 6, 1.0


@dataclass(slots=True)
class NotifierProgress:
    """How one notifier fares in this process."""

    failures: int = 0  #: in a row, for the event behind its bookmark
    next_call: float = -math.inf


class NotifierFeed:
    """*notifiers* returns the kinds of events that each plug-in is called for."""

    def __init__(self, engine: Engine, notifiers: Callable[[], Mapping[str, frozenset[str]]]) -> None:
        self._store, self._clock, self._notifiers = engine.store, engine.clock, notifiers
        self._subjects = JobOwners(engine.store)
        self._lead = Leader(engine.store, engine.clock, LEADING, LEAD_FOR)
        self._readers: dict[str, NotifierProgress] = {}

    async def run(self) -> None:
        """Bring every notifier on by a page of events, one after another."""
        for name, kinds in self._notifiers().items():
            reader = self._readers.setdefault(name, NotifierProgress())
            if self._clock.monotonic() >= reader.next_call and await self._lead.is_ours():
                await self._follow(name, kinds, reader)

    async def _follow(self, name: str, kinds: frozenset[str], reader: NotifierProgress) -> None:
        bookmark = f"notifier.{name}"
        before = await self._store.bookmark(bookmark)
        if before is None:  # it is new: it hears of what happens from now on
            await self._store.move_bookmark(bookmark, before=None, to=await self._store.newest_event())
            return
        events = await self._store.events(after=before, limit=PAGE)
        known = await self._subjects.of([event for event in events if event.kind in kinds])
        until, read = self._clock.monotonic() + TURN, before
        for event in events:
            if event.kind in kinds and not is_ours(event.job_id, known[event.job_id]):
                if not await self._notify(name, reader, notice_of(event, known[event.job_id])):
                    break
                # At once: a process that ends now repeats no call.
                if not await self._store.move_bookmark(bookmark, before=before, to=event.id):
                    return
                before = event.id
                if self._clock.monotonic() >= until:
                    return
            read = event.id
        if read != before:
            await self._store.move_bookmark(bookmark, before=before, to=read)

    async def _notify(self, name: str, reader: NotifierProgress, notice: Notice) -> bool:
        """Whether the event is done with: the notifier took it, or has failed too often."""
        plugin = plugins.notifier(name)
        if await plugin.notify(notice):
            reader.failures = 0
            return True
        reader.failures += 1
        if plugin.is_broken:  # it cannot be loaded: a process that can will call it for all events since
            reader.next_call = math.inf
            return False
        if reader.failures < TRIES:
            reader.next_call = self._clock.monotonic() + FIRST_PAUSE * 2 ** (reader.failures - 1)
            return False
        log.warning("notifier.event_skipped", plugin=name, event_id=notice.id, kind=notice.kind, tries=TRIES)
        reader.failures = 0
        return True


def notice_of(event: Event, subject: Subject) -> Notice:
    """Return what a notifier is called with for *event*."""
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
