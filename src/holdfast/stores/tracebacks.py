"""Which tracebacks a store has already: most failures repeat one that this process has stored, and then write none.

A traceback says every hour that it is in use, and retention leaves those alone that said so within a day. So it cannot
remove one that another process still counts on, though the two never ask each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from holdfast.domain.job import Settlement
from holdfast.domain.tracebacks import Traceback
from holdfast.domain.verdict import Bury, RetryAfter
from holdfast.engine.ports import Clock

#: How long a traceback that no attempt refers to is kept.
KEPT_UNUSED = timedelta(days=1)
_SAY_AGAIN_SECONDS = 3600.0
#: How many are remembered; beyond that all are written again, once.
_MOST = 4096


class StoredTracebacks:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def missing(self, settlements: Sequence[Settlement]) -> list[Traceback]:
        """Return those that these settlements refer to and that must be written, in the order of their keys."""
        now, new = self._clock.monotonic(), dict[str, Traceback]()
        for settlement in settlements:
            verdict = settlement.verdict
            traceback = verdict.failure.traceback if isinstance(verdict, (RetryAfter, Bury)) else None
            if traceback is not None and self._until.get(traceback.key, 0.0) <= now:
                new[traceback.key] = traceback
        # One order for all: two writers must not wait for each other.
        return [new[key] for key in sorted(new)]

    def remember(self, written: Iterable[Traceback]) -> None:
        """These are stored now."""
        for traceback in written:
            if len(self._until) >= _MOST:
                self._until.clear()
            self._until[traceback.key] = self._clock.monotonic() + _SAY_AGAIN_SECONDS

    def forget(self) -> None:
        """Some may have been removed."""
        self._until.clear()
