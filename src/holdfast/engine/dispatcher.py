"""The connection of this process to the broker that hands out due jobs.

A caller gets an answer, or None while the broker is unavailable, and never an error. The log has one line when the broker goes and
one when it is back. Offers that follow an enqueue or a retry are sent in the background: bounded, and never waited for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.engine.admission import Admission
from holdfast.engine.dispatch import BrokerUnavailable, Dispatch, DispatchEntry
from holdfast.engine.ports import Store
from holdfast.engine.tables import bookmarks
from holdfast.errors import StoreError
from holdfast.jobs.job import Enqueued, JobId, Lane, NewJob
from holdfast.jobs.machine import Clock, Ids
from holdfast.logging import Log
from holdfast.tasks.task import Task

log = Log("holdfast.dispatch")

T = TypeVar("T")

#: Seconds between two tries to reach a broker that is unavailable.
TRY_EVERY = 1.0
#: How many offers may be in flight; maintenance makes the rest.
MOST_ON_THE_WAY = 10_000
#: The bookmark that holds the name of this store at a broker.
NAME = "dispatch.name"


async def name_of(store: Store, ids: Ids) -> str:
    """Return the name that keeps stores apart that share a broker. It is made once."""
    found = await bookmarks.get(store, NAME)
    if found is None:
        await bookmarks.move(store, NAME, before=None, to=int.from_bytes(ids.secret()[:6]))
        found = await bookmarks.get(store, NAME)
    return f"{found:x}"


class Dispatcher:
    def __init__(
        self,
        dispatch: Dispatch,
        where: str,
        store: Store,
        clock: Clock,
        tasks: dict[str, Task[Any, Any]],
        admission: Admission,
    ) -> None:
        """Make a dispatcher; *where* is the broker's address as logs may show it."""
        self.delays, self.repeats = dispatch.delays, dispatch.repeats
        self._dispatch, self._where, self._store, self._clock = dispatch, where, store, clock
        self._tasks, self._admission = tasks, admission
        self.is_available = True
        self._try_at = self._back_at = -math.inf
        self._entries: dict[JobId, DispatchEntry] = {}
        self._moved: dict[JobId, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def hands_out(self, lane: Lane) -> bool:
        """Return whether jobs of this lane go through the broker. Lanes with keys or limits are left to the store."""
        task = self._tasks.get(lane.task)
        if task is None:
            return True  # another worker may know it
        limits = task.policy.limits
        keyed = limits is not None and (limits.per_key.concurrency or limits.per_owner.concurrency)
        return not (keyed or task.policy.execute == "external" or self._admission.caps(lane, limits))

    # -- asking -----------------------------------------------------------------------------------------------------
    async def ask(self, question: Callable[[Dispatch], Awaitable[T]]) -> T | None:
        """Return the broker's answer; None while it is unavailable. It is tried again once a second."""
        began = self._clock.monotonic()
        if not self.is_available and began < self._try_at:
            return None
        try:
            answer = await question(self._dispatch)
            _raise_if_cancelled()
        except BrokerUnavailable as error:
            _raise_if_cancelled()
            if self.is_available and began < self._back_at:
                return None  # this call began before the broker was back
            self._try_at = self._clock.monotonic() + TRY_EVERY
            if self.is_available:
                self.is_available = False
                hint = "jobs are claimed from the store until it is back"
                log.warning("broker.unavailable", broker=self._where, reason=str(error), hint=hint)
            return None
        if not self.is_available:
            self.is_available, self._back_at = True, self._clock.monotonic()
            log.info("broker.recovered", broker=self._where)
        return answer

    async def tend(self) -> None:
        """Try to reach an unavailable broker, for ever."""
        while True:
            await self._clock.sleep(TRY_EVERY)
            if not self.is_available:
                await self.ask(lambda dispatch: dispatch.ping())

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._dispatch.close()

    # -- after an enqueue or a move ---------------------------------------------------------------------------------------
    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Offer jobs that were just stored. A broker that would keep repeated offers gets them from maintenance only."""
        if not (self.is_available and self.repeats):
            return
        handed: dict[Lane, bool] = {}
        for job, answer in zip(jobs, answers, strict=True):
            if len(self._entries) >= MOST_ON_THE_WAY:
                break
            spec = job.spec
            # Only the store can compare a time that the caller named with its clock.
            if answer.duplicate or spec.key is not None or spec.run_at is not None:
                continue
            if spec.lane not in handed:
                handed[spec.lane] = self.hands_out(spec.lane)
            if handed[spec.lane]:
                delay = spec.delay or timedelta()
                self._entries[job.id] = DispatchEntry(job.id, 1, spec.lane, spec.priority, delay)
        self._send()

    def moved(self, job_id: JobId) -> None:
        """Offer a job that a person has retried, or take back one that was cancelled."""
        if self.is_available and self.repeats and len(self._moved) < MOST_ON_THE_WAY:
            self._moved[job_id] = None
            self._send()

    def _send(self) -> None:
        if self._sending is None and (self._entries or self._moved):
            self._sending = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._entries or self._moved:
                entries, self._entries = self._entries, {}
                moved, self._moved = list(self._moved), {}
                with suppress(StoreError):  # maintenance offers them
                    await self._pass_on(list(entries.values()), moved)
        finally:
            self._sending = None

    async def _pass_on(self, entries: list[DispatchEntry], moved: list[JobId]) -> None:
        if entries:
            await self.ask(lambda dispatch: dispatch.offer(entries))
        if moved:
            await self.refresh(moved)

    async def refresh(self, ids: Sequence[JobId]) -> list[DispatchEntry] | None:
        """Offer those of these jobs that wait, and take the others back. Return those offered; None when the broker is unavailable."""
        waiting = await self._store.dispatch.waiting(ids)
        offered = [entry for entry in waiting if self.hands_out(entry.lane)]
        gone = set(ids) - {entry.job_id for entry in offered}

        async def offer(dispatch: Dispatch) -> list[DispatchEntry]:
            if gone:
                await dispatch.cancel(gone)
            if offered:
                await dispatch.offer(offered)
            return offered

        return await self.ask(offer)


def _raise_if_cancelled() -> None:
    """Raise `CancelledError` in a task that was cancelled.

    Drivers use `asyncio.wait_for`, which up to Python 3.11 may swallow a cancellation that comes together with the answer.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
