"""The broker of this process, as far as it can be reached: a caller gets an answer, or None while it is unavailable.

Said once when it goes and once when it is back; nobody gets an error. What is offered and taken back on the way of a verb
leaves behind it: bounded, and never waited for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.domain.job import Enqueued, JobId, Lane, NewJob
from holdfast.engine.admission import Admission
from holdfast.engine.dispatch import BrokerUnavailable, Dispatch, DispatchEntry
from holdfast.engine.ports import Clock, Ids, Store
from holdfast.engine.tasks import Task
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.dispatch")

T = TypeVar("T")

#: How often a broker that is away is looked for.
TRY_EVERY = 1.0
#: How many offers may be in flight; maintenance makes the others.
MOST_ON_THE_WAY = 10_000
#: The store's own name at a broker, kept where bookmarks are.
NAME = "dispatch.name"


async def name_of(store: Store, ids: Ids) -> str:
    """By which stores that share a broker are kept apart; made once."""
    found = await store.bookmark(NAME)
    if found is None:
        await store.move_bookmark(NAME, before=None, to=int.from_bytes(ids.secret()[:6]))
        found = await store.bookmark(NAME)
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
        """*where* is what people may see of its address."""
        self.delays, self.repeats = dispatch.delays, dispatch.repeats
        self._dispatch, self._where, self._store, self._clock = dispatch, where, store, clock
        self._tasks, self._admission = tasks, admission
        self.there = True
        self._try_at = self._back_at = -math.inf
        self._entries: dict[JobId, DispatchEntry] = {}
        self._looks: dict[JobId, None] = {}
        self._sending: asyncio.Task[None] | None = None

    def hands_out(self, lane: Lane) -> bool:
        """Whether jobs of this lane go through the broker. Where more than priority and time decides, the store does it."""
        task = self._tasks.get(lane.task)
        if task is None:
            return True  # some other worker has it
        limits = task.policy.limits
        keyed = limits is not None and (limits.per_key.concurrency or limits.per_owner.concurrency)
        return not (keyed or task.policy.execute == "external" or self._admission.caps(lane, limits))

    # -- asking -----------------------------------------------------------------------------------------------------
    async def ask(self, question: Callable[[Dispatch], Awaitable[T]]) -> T | None:
        """Its answer; None while it is away. One that is away is asked again after a while."""
        began = self._clock.monotonic()
        if not self.there and began < self._try_at:
            return None
        try:
            answer = await question(self._dispatch)
            _heed_cancellation()
        except BrokerUnavailable as error:
            _heed_cancellation()
            if self.there and began < self._back_at:
                return None  # asked of the broker as it was before
            self._try_at = self._clock.monotonic() + TRY_EVERY
            if self.there:
                self.there = False
                hint = "jobs are claimed from the store until it is back"
                log.warning("broker.unavailable", broker=self._where, reason=str(error), hint=hint)
            return None
        if not self.there:
            self.there, self._back_at = True, self._clock.monotonic()
            log.info("broker.recovered", broker=self._where)
        return answer

    async def tend(self) -> None:
        """Look for it while it is away, for ever."""
        while True:
            await self._clock.sleep(TRY_EVERY)
            if not self.there:
                await self.ask(lambda dispatch: dispatch.ping())

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        await self._dispatch.close()

    # -- on the way of a verb ---------------------------------------------------------------------------------------
    def enqueued(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """These were stored just now. A broker that cannot tell repeats apart hears of them from the duty alone."""
        if not (self.there and self.repeats):
            return
        handed: dict[Lane, bool] = {}
        for job, answer in zip(jobs, answers, strict=True):
            if len(self._entries) >= MOST_ON_THE_WAY:
                break
            spec = job.spec
            # A moment that the caller named is the store's to compare with its clock.
            if answer.duplicate or spec.key is not None or spec.run_at is not None:
                continue
            if spec.lane not in handed:
                handed[spec.lane] = self.hands_out(spec.lane)
            if handed[spec.lane]:
                delay = spec.delay or timedelta()
                self._entries[job.id] = DispatchEntry(job.id, 1, spec.lane, spec.priority, delay)
        self._send()

    def moved(self, job_id: JobId) -> None:
        """A person has cancelled it, or had it run again: as it stands now, it is offered or taken back."""
        if self.there and self.repeats and len(self._looks) < MOST_ON_THE_WAY:
            self._looks[job_id] = None
            self._send()

    def _send(self) -> None:
        if self._sending is None and (self._entries or self._looks):
            self._sending = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            while self._entries or self._looks:
                entries, self._entries = self._entries, {}
                looks, self._looks = list(self._looks), {}
                with suppress(StoreError):  # the duty follows
                    await self._pass_on(list(entries.values()), looks)
        finally:
            self._sending = None

    async def _pass_on(self, entries: list[DispatchEntry], looks: list[JobId]) -> None:
        if entries:
            await self.ask(lambda dispatch: dispatch.offer(entries))
        if looks:
            await self.bring_up_to_date(looks)

    async def bring_up_to_date(self, ids: Sequence[JobId]) -> list[DispatchEntry] | None:
        """Offer those of these that wait, and take the others back; those that wait, None when the broker is away."""
        waiting = await self._store.waiting(ids)
        offered = [entry for entry in waiting if self.hands_out(entry.lane)]
        gone = set(ids) - {entry.job_id for entry in offered}

        async def tell(dispatch: Dispatch) -> list[DispatchEntry]:
            if gone:
                await dispatch.cancel(gone)
            if offered:
                await dispatch.offer(offered)
            return offered

        return await self.ask(tell)


def _heed_cancellation() -> None:
    """Up to Python 3.11 `asyncio.wait_for` may swallow a cancellation that comes together with the answer, and drivers use
    it: a task that was cancelled would go on for ever."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
