"""How many jobs a worker runs at once, where that may vary: more while there is work and it is done as quickly as before,
fewer when it takes longer, and the least again after a while without work.

The same limiter that guards dependencies (`holdfast.domain.limiter`), told of every attempt. Tasks differ in how long they
take, so what it is told is not the time of an attempt but how many times its task's usual time that was.
"""

from __future__ import annotations

from holdfast.domain.limiter import Limiter, LimiterPolicy
from holdfast.domain.outcome import Outcome

#: How far the usual time of a task follows an attempt: down soon, up slowly, or a long overload would pass for the usual.
SINK, RISE = 0.1, 0.0005
#: After this many seconds without work the number begins again at the least: what comes then may be other work.
IDLE = 60.0


class Slots:
    """*least* None: always *most*."""

    def __init__(self, most: int, least: int | None, now: float) -> None:
        self.most = most
        self._usual: dict[str, float] = {}
        self._limiter = None
        self._idle_since: float | None = None
        if least is not None and least < most:
            policy = LimiterPolicy(start=least, ramp_from=least, least=least, most=most, max_latency=1.5)
            self._limiter = Limiter(policy, now)

    @property
    def count(self) -> int:
        return self.most if self._limiter is None else self._limiter.limit

    def started(self, now: float) -> None:
        if self._limiter is not None:
            self._idle_since = None
            self._limiter.started(now)

    def ended(self, task: str, seconds: float, now: float) -> None:
        if self._limiter is None:
            return
        usual = self._usual.setdefault(task, seconds)
        self._limiter.ended(seconds / usual if usual > 0 else 1.0, Outcome.OK, now)
        self._usual[task] = usual + (seconds - usual) * (SINK if seconds < usual else RISE)

    def idle(self, now: float) -> None:
        """Note that nothing runs and nothing waits. After `IDLE` seconds of that the number falls to the least."""
        if self._limiter is None:
            return
        if self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= IDLE and self._limiter.limit > self._limiter.policy.least:
            self._limiter.restart(1.0, now)
