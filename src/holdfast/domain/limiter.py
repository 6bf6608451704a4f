"""How many calls one worker may have under way at a dependency at once: a limit that finds itself (E23).

It is what keeps a recovered service up. A service that is asked for more than it can do answers later; callers that give up
waiting and ask again make it do the same work twice, and so it stays slow after the cause is gone. A limit on what is
under way ends that, and it must stay when all is well again: the next time begins where nobody looks.

Every worker has a limit of its own, from its own calls alone; their sum is the limit of the fleet. In rounds of a second or
more it grows by a tenth when it was reached and all was well, and shrinks when too many calls failed or answers took much longer
than they do at rest.

Latencies are compared by their logarithms, and a difference counts only as far as it is certain: where one answer takes a second
and the next a minute, a few slow ones prove nothing, and a limit that believed them would starve a healthy service.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

from holdfast.domain.outcome import Outcome
from holdfast.domain.validation import number, share, whole
from holdfast.errors import UsageError

#: A round is at least this long, and has at least this share of the limit in calls that ended.
ROUND_SECONDS = 1.0
ROUND_CALLS = 0.3
#: How many calls weigh as much as all that was known before: one odd answer is not a trend.
MEMORY = 10.0
#: How many standard errors count as certain.
CERTAIN = 2.0
#: How many responses a worker without history observes to learn the usual latency before it judges any.
LESSONS = 50
#: After this many rounds at a limit that may not grow, the limiter tries a lower one: a latency that was measured under load is
#: not that of a single call.
LOOK_DOWN = 15
#: How far the latency at rest follows in a round: down soon, up slowly and only at rest.
SINK, RISE = 0.5, 0.05
#: How long a smaller limit is left alone until its effect can be seen, in usual answers.
SETTLE = 5.0
_SHORTEST = 1e-4  #: seconds; below it nobody waits, and zero has no logarithm
_LOG_SHORTEST = log(_SHORTEST)


@dataclass(frozen=True, slots=True, init=False)
class LimiterPolicy:
    """*start* calls at once for a worker that knows nothing, *ramp_from* for the whole fleet after an outage.

    The limit shrinks when more than *max_failures* of the calls failed, or when answers took more than *max_latency* times
    as long as at rest. It stays within *least* and *most*.
    """

    start: int
    ramp_from: int
    least: int
    most: int
    max_failures: float
    max_latency: float

    def __init__(
        self,
        *,
        start: int = 20,
        ramp_from: int = 5,
        least: int = 1,
        most: int = 1000,
        max_failures: float = 0.1,
        max_latency: float = 2.0,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "least", whole("least", least, 1, 100_000))
        set_(self, "most", whole("most", most, 1, 100_000))
        if most < least:
            raise UsageError(f"most is {most}; it must not be below least ({least})")
        set_(self, "start", whole("start", start, 1, 100_000))
        set_(self, "ramp_from", whole("ramp_from", ramp_from, 1, 100_000))
        set_(self, "max_failures", share("max_failures", max_failures, of="calls"))
        set_(self, "max_latency", number("max_latency", max_latency, 1.1, 100))


class Limiter:
    """One worker's limit for one dependency. *now* is seconds of a monotonic clock; every `started` has its `ended`."""

    def __init__(
        self, policy: LimiterPolicy, now: float, start: float | None = None, at_rest: float | None = None
    ) -> None:
        """Where there are other workers, *start* is the mean of their limits and *at_rest* the least of theirs."""
        self.policy = policy
        self.in_flight = 0
        self._limit = self._within(policy.start if start is None else start)
        self._rest = None if at_rest is None else log(max(at_rest, _SHORTEST))
        self._lessons = LESSONS if at_rest is None else 0
        self._crowded = 0  #: rounds at a limit that may not grow
        self._usual: float | None = (
            None  #: of late: mean and variance of the logarithms, and from how many calls
        )
        self._spread = 0.25
        self._known = 0.0
        self._failures = 0.0
        self._since = self._settled = now  #: calls that began before, or ended before, tell of another limit
        self._began, self._peak = now, 0
        self._answers = self._failed = self._throttled = self._timed = 0
        self._sum = self._squares = 0.0

    @property
    def at_rest(self) -> float | None:
        """Seconds of a usual answer when little is under way."""
        return None if self._rest is None else exp(self._rest)

    @property
    def limit(self) -> int:
        return int(self._limit)

    @property
    def room(self) -> int:
        """How many more calls may begin now."""
        return max(0, int(self._limit) - self.in_flight)

    def adopt(self, policy: LimiterPolicy) -> None:
        """Go by another policy. What was found out stays, within its bounds: *start* is for those who know nothing."""
        self.policy = policy
        self._limit = self._within(self._limit)

    def started(self, now: float, calls: int = 1) -> None:
        self.in_flight += calls
        if self.in_flight > self._peak:
            self._peak = self.in_flight

    def answered(self, latency_seconds: float, now: float) -> None:
        if self.in_flight:
            self.in_flight -= 1
        self._answers += 1
        if now >= self._settled and now - latency_seconds >= self._since:
            spent = log(latency_seconds) if latency_seconds > _SHORTEST else _LOG_SHORTEST
            self._timed += 1
            self._sum += spent
            self._squares += spent * spent
        if now - self._began >= ROUND_SECONDS:
            self._end_round(now)

    def ended(self, latency_seconds: float, outcome: Outcome, now: float) -> None:
        if outcome is Outcome.OK or outcome is Outcome.SLOW:
            self.answered(latency_seconds, now)
            return
        if self.in_flight:
            self.in_flight -= 1
        # The latency of these tells nothing: refused at once, or given up at the timeout.
        if outcome is Outcome.FAILED:
            self._failed += 1
        elif outcome is Outcome.THROTTLED:
            self._throttled += 1
        else:
            return
        if now - self._began >= ROUND_SECONDS:
            self._end_round(now)

    def _end_round(self, now: float) -> None:
        """Unless too few calls have ended in it yet."""
        seen = self._answers + self._failed + self._throttled
        if seen >= ROUND_CALLS * self._limit:
            self._judge(now)
            self._begin(now)

    def restart(self, share: float, now: float) -> None:
        """Begin the ramp after an outage: this worker's *share* (1 / workers) of what the fleet begins with.

        What an answer takes at rest is kept: the ramp is checked against the good days.
        """
        self._limit = self._within(self.policy.ramp_from * share)
        self._usual, self._known, self._failures = None, 0.0, 0.0
        self._since = self._settled = now
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        self._peak = self.in_flight
        self._answers = self._failed = self._throttled = self._timed = 0
        self._sum = self._squares = 0.0

    def _judge(self, now: float) -> None:
        """One round has ended: learn from it, then move the limit."""
        policy = self.policy
        slower = self._learn()
        if self._failures > policy.max_failures:
            self._shrink(0.5, now)
        elif self._throttled:
            self._shrink(0.7, now)
        elif now < self._settled or not self._timed:
            return
        elif slower > policy.max_latency and self._peak > 1:  # one call alone is not slow because of us
            self._shrink(0.7, now)
        elif self._peak < self.limit:
            return
        elif self._went_well() and slower <= (1 + policy.max_latency) / 2:
            # Well below where it shrinks: a fleet that is too many at one call each would find its own crowd usual, and
            # without a gap between the two grow on from there.
            self._limit = self._within(self._limit * max(1.1, 1 + 1 / self._limit))
        else:
            self._crowded += 1
            if self._crowded >= LOOK_DOWN:
                self._shrink(0.5, now)

    def _shrink(self, factor: float, now: float) -> None:
        """What is still under way was begun under the old limit, and the slowest of it ends last: it is not looked at."""
        self._limit = self._within(self._limit * factor)
        self._crowded = 0
        self._known = 0.0
        self._since = now
        self._settled = now if self._usual is None else now + SETTLE * exp(self._usual)

    def _went_well(self) -> bool:
        return not self._lessons and self._failed <= self.policy.max_failures * (self._answers + self._failed)

    def _learn(self) -> float:
        """Take in the round; how many times slower than at rest answers are, as far as that is certain."""
        judged = self._answers + self._failed
        if judged:
            self._failures += (self._failed / judged - self._failures) * judged / (judged + MEMORY)
        count = self._timed
        if not count:
            return 1.0
        mean = self._sum / count
        before = mean if self._usual is None else self._usual
        kept = min(self._known, MEMORY)
        usual = self._usual = before + (mean - before) * count / (count + kept)
        variance = max(0.0, self._squares / count - mean * mean) + (mean - usual) ** 2
        self._spread += (variance - self._spread) * count / (count + MEMORY)
        self._known = kept + count
        if self._rest is None or self._lessons:
            # In a burst the quickest answers come first, and would teach too much of themselves.
            eager = 1 if self._peak >= self.limit else 5
            self._lessons = max(0, self._lessons - count * eager)
            self._rest = usual
        off = usual - self._rest
        doubt = CERTAIN * sqrt(self._spread / self._known)
        if off < -doubt:
            self._rest += off * SINK
        elif off > doubt and self._peak <= self.policy.least:
            # Under load it must not rise: a long overload would pass for the usual. With next to nothing of ours
            # under way, what an answer takes is what it takes.
            self._rest += off * RISE
        return exp(max(0.0, off - doubt))

    def _within(self, limit: float) -> float:
        return min(max(limit, float(self.policy.least)), float(self.policy.most))
