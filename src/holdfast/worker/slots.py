"""An adaptive number of slots for a worker.

The number grows while there is work and attempts take no longer than before, shrinks when they take longer,
and falls to the minimum after a while without work. The limiter is the one that guards dependencies
(`holdfast.resilience.limiter`). Tasks differ in how long they take, so the limiter receives the duration of
an attempt divided by the usual duration of its task.
"""

from __future__ import annotations

from holdfast.resilience.limiter import Limiter, LimiterPolicy
from holdfast.resilience.outcome import Outcome

#: How far the usual duration of a task moves toward that of an attempt: down fast, up slowly, or a long
#: overload would become the usual.
FALL_RATE, RISE_RATE = 0.1, 0.0005
#: After this many seconds without work the number falls to the minimum: the next work may be of another kind.
IDLE = 60.0


class Slots:
    """The number of slots of a worker, between *least* and *most*. If *least* is None it is always *most*."""

    def __init__(self, most: int, least: int | None, now: float) -> None:
        self.most = most
        self.count = most  #: the number of slots now
        self._usual_seconds: dict[str, float] = {}
        self._limiter = None
        self._idle_since: float | None = None
        if least is not None and least < most:
            policy = LimiterPolicy(start=least, ramp_from=least, least=least, most=most, max_latency=1.5)
            self._limiter = Limiter(policy, now)
            self.count = self._limiter.limit
        #: whether the number changes; if not, `started` and `ended` do nothing and need no call
        self.adapts = self._limiter is not None

    def started(self, now: float) -> None:
        """Record that an attempt started at *now*."""
        if self._limiter is not None:
            self._idle_since = None
            self._limiter.started(now)
            self.count = self._limiter.limit

    def ended(self, task: str, seconds: float, now: float) -> None:
        """Record that an attempt of *task* ended at *now* after *seconds*."""
        if self._limiter is None:
            return
        usual = self._usual_seconds.setdefault(task, seconds)
        self._limiter.ended(seconds / usual if usual > 0 else 1.0, Outcome.OK, now)
        self.count = self._limiter.limit
        self._usual_seconds[task] = usual + (seconds - usual) * (FALL_RATE if seconds < usual else RISE_RATE)

    def idle(self, now: float) -> None:
        """Record that nothing runs and nothing waits.

        After `IDLE` seconds of that the number falls to the minimum.
        """
        if self._limiter is None:
            return
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE and self._limiter.limit > self._limiter.policy.least:
            self._limiter.restart(1.0, now)
            self.count = self._limiter.limit
