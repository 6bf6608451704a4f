"""The heartbeat: a thread of the worker process, so that a busy event loop does not starve it.

It also keeps the local fence: a worker that could not renew its session stops its work, by its own monotonic clock,
before the store may give the work away. A frozen process beats no more, and so loses its leases, as it should.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.domain.job import Session
from holdfast.engine.log import Log
from holdfast.engine.ports import Clock, Heart, Threads
from holdfast.errors import StoreError

log = Log("holdfast.worker")


class Heartbeat:
    def __init__(
        self, heart: Heart, session: Session, every: float, clock: Clock, lost: Callable[[], object]
    ) -> None:
        self._heart, self._session, self._every, self._clock, self._lost = heart, session, every, clock, lost
        self._stop = threading.Event()
        self._join: Callable[[float | None], None] | None = None
        self.last_beat = clock.monotonic()  #: when the last beat that was answered was *sent*

    def start(self, threads: Threads) -> None:
        self._join = threads.start("holdfast-heart", self._run)

    def stop(self) -> None:
        self._stop.set()
        if self._join is not None:
            self._join(5.0)

    def _run(self) -> None:
        ttl = self._session.ttl.total_seconds()
        # Stop a little before the store gives the jobs away: its clock started when our beat arrived, ours when it left.
        margin = min(ttl * 0.1, 5.0)
        pause = self._every
        try:
            while not self._stop.wait(pause):
                sent = self._clock.monotonic()
                try:
                    if not self._heart.beat(self._session):
                        return self._tell("the store had ended it")
                    self.last_beat, pause = sent, self._every
                except StoreError as error:
                    log.warning("heart.missed", reason=str(error))
                    pause = min(self._every, 0.5)
                if self._clock.monotonic() > self.last_beat + ttl - margin:
                    return self._tell("it could not be renewed in time")
        finally:
            self._heart.close()

    def _tell(self, why: str) -> None:
        log.warning("session.lost", worker=self._session.worker, reason=why)
        self._lost()
