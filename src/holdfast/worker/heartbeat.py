"""The heartbeat: a thread of the worker process, so that a busy event loop does not starve it.

It also keeps the local fence: a worker that could not renew its session stops its work, by its own monotonic clock,
before the store may give the work away. A frozen process beats no more, and so loses its leases, as it should.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.domain.job import Session
from holdfast.engine.ports import Clock, HeartbeatConnection, Threads
from holdfast.errors import StoreError
from holdfast.logs import Log

log = Log("holdfast.worker")


class Heartbeat:
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
        self._join: Callable[[float | None], None] | None = None
        self._told = False
        ttl = session.ttl.total_seconds()
        # Stop a little before the store gives the jobs away: its clock started when our beat arrived, ours when it left.
        self._good_for = ttl - min(ttl * 0.1, 5.0)
        self.last_beat = clock.monotonic()  #: when the last beat that was answered was *sent*

    @property
    def left(self) -> float:
        """Seconds until the work has to be given up, unless a beat is answered before."""
        return self.last_beat + self._good_for - self._clock.monotonic()

    def start(self, threads: Threads) -> None:
        self._join = threads.start("holdfast-heart", self._run)

    def stop(self, wait: float) -> None:
        self._stop.set()
        if self._join is not None and wait:
            self._join(wait)

    def give_up(self) -> None:
        """No beat was answered in time."""
        self._tell("it could not be renewed in time")

    def _run(self) -> None:
        pause = self._every
        try:
            while not self._stop.wait(pause):
                sent = self._clock.monotonic()
                try:
                    if not self._heartbeat.beat(self._session):
                        return self._tell("the store had ended it")
                    self.last_beat, pause = sent, self._every
                except StoreError as error:
                    log.warning("heartbeat.missed", reason=str(error))
                    pause = min(self._every, 0.5)
                except (
                    Exception
                ):  # a bug of ours: without this thread the worker would claim nothing, for ever
                    log.exception("heartbeat.missed")
                    pause = min(self._every, 0.5)
                if self.left < 0:
                    return self.give_up()
        finally:
            self._heartbeat.close()

    def _tell(self, reason: str) -> None:
        if self._told or self._stop.is_set():
            return
        self._told = True
        log.warning("session.lost", worker=self._session.worker, reason=reason)
        self._lost()
