"""A worker's session with the store, its heartbeat and its local fence.

The heartbeat is sent by a thread, so that a busy event loop does not starve it. The local fence ends the
session by the worker's own monotonic clock: a worker that could not renew it stops its work before the store
may give that to another. A frozen process sends no heartbeat, so it loses its leases as it should.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection

from holdfast.engine.engine import Engine
from holdfast.engine.ports import HeartbeatConnection
from holdfast.errors import StoreError
from holdfast.jobs.job import Session
from holdfast.jobs.machine import Clock, Threads
from holdfast.logging import Log

log = Log("holdfast.worker")

#: The local fence checks when the session would expire, with at most and at least these seconds between two
#: checks.
FENCE_AT_MOST, FENCE_AT_LEAST = 0.5, 0.02


class WorkerSession:
    """The session of a worker. `session` is None while there is none, and nothing may be claimed then.

    Args:
        engine: The engine whose store keeps the session.
        threads: Starts the heartbeat thread.
        queues: The queues that the worker serves. `None` means all.
        begun: Called at the start of each session.
        lost: Called when a session ends before the worker closes it.
    """

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
        """Open a session under a new worker name, so that it cannot be mistaken for an old one."""
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
        """Open a new session in the place of the one that was lost."""
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=0)  # it may hang in a beat, and the loop must not hang with it
        await self.begin()

    async def end(self, seconds: float) -> None:
        """Stop the heartbeat and close the session within *seconds*. A failure is only logged."""
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=seconds / 2)
        if self.session is not None:
            try:
                async with asyncio.timeout(seconds / 2):
                    await self._engine.store.close_session(self.session)
            except (StoreError, TimeoutError) as error:
                log.warning("session.not_closed", reason=str(error))

    async def fence(self) -> None:
        """End the session by the local clock before it expires in the store, even while a heartbeat hangs."""
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


class Heartbeat:
    """Renews *session* every *every* seconds from a thread, and calls *lost* there if that fails."""

    def __init__(
        self,
        heartbeat: HeartbeatConnection,
        session: Session,
        every: float,
        clock: Clock,
        lost: Callable[[], object],
    ) -> None:
        self._heartbeat, self._session, self._every, self._clock, self._lost = (
            heartbeat,
            session,
            every,
            clock,
            lost,
        )
        self._stop = threading.Event()
        self._join_thread: Callable[[float | None], None] | None = None
        self._reported = False
        ttl = session.ttl.total_seconds()
        # Stop a little before the store reclaims the jobs. Its clock starts when the beat arrives, ours when
        # it is sent.
        self._valid_for = ttl - min(ttl * 0.1, 5.0)
        self.last_beat = clock.monotonic()  #: when the last beat that was answered was *sent*

    @property
    def left(self) -> float:
        """Seconds until the session counts as lost, unless a heartbeat is answered before."""
        return self.last_beat + self._valid_for - self._clock.monotonic()

    def start(self, threads: Threads) -> None:
        """Start the thread."""
        self._join_thread = threads.start("holdfast-heart", self._run)

    def stop(self, wait: float) -> None:
        """Stop the thread and wait up to *wait* seconds for its end."""
        self._stop.set()
        if self._join_thread is not None and wait:
            self._join_thread(wait)

    def give_up(self) -> None:
        """Report the session as lost because no heartbeat was answered in time."""
        self._report_lost("it could not be renewed in time")

    def _run(self) -> None:
        pause = self._every
        try:
            while not self._stop.wait(pause):
                sent = self._clock.monotonic()
                try:
                    if not self._heartbeat.beat(self._session):
                        return self._report_lost("the store had ended it")
                    self.last_beat, pause = sent, self._every
                except StoreError as error:
                    log.warning("heartbeat.missed", reason=str(error))
                    pause = min(self._every, 0.5)
                except Exception:  # a bug here: without this thread the worker would never claim again
                    log.exception("heartbeat.missed")
                    pause = min(self._every, 0.5)
                if self.left < 0:
                    return self.give_up()
        finally:
            self._heartbeat.close()

    def _report_lost(self, reason: str) -> None:
        if self._reported or self._stop.is_set():
            return
        self._reported = True
        log.warning("session.lost", worker=self._session.worker, reason=reason)
        self._lost()
