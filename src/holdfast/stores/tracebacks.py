"""Which tracebacks a store has already: most failures repeat one that this process has stored, and then write none.

Each process records once an hour that a traceback is in use, and retention keeps those that were recorded within a day. So
retention never removes one that another process still refers to, although the two never communicate.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from holdfast.jobs.machine import Clock
from holdfast.jobs.tracebacks import Traceback
from holdfast.jobs.verdict import Bury, RetryAfter

#: How long a traceback that no attempt refers to is kept.
KEPT_UNUSED = timedelta(days=1)
_RECORD_AGAIN_SECONDS = 3600.0
#: How many are remembered. When there are more, all are forgotten, and each is written once more.
_MOST = 4096


class StoredTracebacks:
    """The tracebacks that this process has stored within the last hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def missing(self, failed: Iterable[RetryAfter | Bury]) -> list[Traceback]:
        """Return the tracebacks of these verdicts that must be written, in the order of their keys."""
        now, new = self._clock.monotonic(), dict[str, Traceback]()
        for verdict in failed:
            traceback = verdict.failure.traceback
            if traceback is not None and self._until.get(traceback.key, 0.0) <= now:
                new[traceback.key] = traceback
        # One order for all: two writers must not wait for each other.
        return [new[key] for key in sorted(new)]

    def remember(self, written: Iterable[Traceback]) -> None:
        """Record that these are stored now."""
        for traceback in written:
            if len(self._until) >= _MOST:
                self._until.clear()
            self._until[traceback.key] = self._clock.monotonic() + _RECORD_AGAIN_SECONDS

    def forget(self) -> None:
        """Forget all of them, because some may have been removed."""
        self._until.clear()
