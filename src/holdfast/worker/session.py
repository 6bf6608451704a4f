"""The time during which the store takes this process for a living worker: its session, heartbeat and local fence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from holdfast.domain.job import Session
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Threads
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.heartbeat import Heartbeat

log = Log("holdfast.worker")

#: The local fence looks when the lease would end, but so often at the least, and not more often than that.
FENCE_AT_MOST, FENCE_AT_LEAST = 0.5, 0.02


class WorkerSession:
    """*session* is None while there is none: nothing may be claimed then. *begun* is called for each session, *lost* when
    one ends under us."""

    def __init__(
        self,
        engine: Engine,
        threads: Threads,
        queues: Collection[str] | None,
        *,
        begun: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._engine, self._threads, self._queues = engine, threads, queues
        self._begun, self._lost = begun, lost
        self._heartbeat: Heartbeat | None = None
        self.session: Session | None = None
        self.name = ""

    async def begin(self) -> None:
        """A new session, under a name the store has never seen: an old one cannot be mistaken for it."""
        settings, store = self._engine.settings, self._engine.store
        leases = [
            task.policy.lease or settings.lease
            for task in self._engine.tasks.values()
            if self._serves(task.policy.queue)
        ]
        ttl = min(leases, default=settings.lease)
        every = min(settings.beat_every, ttl / 3)
        self.name = self._engine.ids.worker_name()
        session = self.session = await store.open_session(self.name, ttl, self._queues)
        loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(
            store.heartbeat(),
            session,
            every.total_seconds(),
            self._engine.clock,
            lambda: loop.call_soon_threadsafe(self._end_of, session),
        )
        self._heartbeat.start(self._threads)
        self._begun()

    def _serves(self, queue: str) -> bool:
        return self._queues is None or queue in self._queues

    async def renew_session(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=0)  # it may hang in a beat: the loop must not hang with it
        await self.begin()

    async def end(self, seconds: float) -> None:
        """Close the session; the store has *seconds* to answer."""
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=seconds / 2)
        if self.session is not None:
            try:
                async with asyncio.timeout(seconds / 2):
                    await self._engine.store.close_session(self.session)
            except (StoreError, TimeoutError) as error:
                log.warning("session.not_closed", reason=str(error))

    async def fence(self) -> None:
        """Give the work up in time, by our own clock, even while a beat hangs in a network that does not answer."""
        while True:
            heartbeat, session = self._heartbeat, self.session
            left = heartbeat.left if heartbeat is not None and session is not None else FENCE_AT_MOST
            if left <= 0 and heartbeat is not None:
                heartbeat.give_up()
            await self._engine.clock.sleep(min(max(left, FENCE_AT_LEAST), FENCE_AT_MOST))

    def _end_of(self, session: Session) -> None:
        if session is self.session:
            self.session = None
            self._lost()
