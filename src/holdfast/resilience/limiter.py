"""An adaptive limit on the calls that one worker has in progress at a dependency (E23).

It keeps a recovered service up. An overloaded service answers late. Callers that time out and call again make
it do the same work twice, so it stays slow after the cause is gone. A limit on concurrent calls ends that. It
stays active in good times, because the next overload comes without notice.

Every worker has a limit of its own, derived from its own calls; their sum is the limit of the fleet. In
rounds of a second or more the limit grows by a tenth if it was reached and all went well. It shrinks if too
many calls failed or answers took much longer than they do at rest.

Latencies are compared by their logarithms, and a difference counts only as far as it is statistically
certain: if one answer takes a second and the next a minute, a few slow ones prove nothing, and a limit that
reacted to them would starve a healthy service.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

from holdfast.errors import UsageError
from holdfast.resilience.outcome import Outcome
from holdfast.values.validation import number, share, whole

#: A round lasts at least this long and until calls for at least this share of the limit have ended.
ROUND_SECONDS = 1.0
ROUND_CALLS = 0.3
#: The weight of all earlier calls, in calls: one odd answer is not a trend.
MEMORY = 10.0
#: A difference of this many standard errors counts as certain.
CERTAIN = 2.0
#: A worker without history learns the usual latency from this many responses before it judges any.
WARMUP_CALLS = 50
#: After this many rounds at a limit that may not grow, the limiter tries a lower one, because a latency that
#: was measured under load is not that of a single call.
STALLED_ROUNDS = 15
#: How fast the latency at rest follows per round: quickly down, slowly up and only at rest.
REST_FALL, REST_RISE = 0.5, 0.05
#: How long to wait for the effect of a smaller limit, in usual latencies.
SETTLE = 5.0
_SHORTEST = 1e-4  #: seconds; shorter latencies count as this, because zero has no logarithm
_LOG_SHORTEST = log(_SHORTEST)


@dataclass(frozen=True, slots=True, init=False)
class LimiterPolicy:
    """How the limit begins, and when it shrinks.

    It begins at *start* calls for a worker without history, and at *ramp_from* for the fleet after an outage.
    It shrinks when more than the share *max_failures* of the calls failed, or when answers took more than
    *max_latency* times as long as at rest. It stays between *least* and *most*.
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
    """One worker's limit for one dependency.

    *now* is seconds of a monotonic clock. Every `started` is followed by one `ended` or `answered`.
    """

    def __init__(
        self, policy: LimiterPolicy, now: float, start: float | None = None, at_rest: float | None = None
    ) -> None:
        """Begin with what other workers know, if there are any: their mean limit and their least latency."""
        self.policy = policy
        self.in_flight = 0
        self._limit = self._within(policy.start if start is None else start)
        self._rest = None if at_rest is None else log(max(at_rest, _SHORTEST))
        self._warmup = WARMUP_CALLS if at_rest is None else 0
        self._stalled = 0  #: rounds at a limit that may not grow
        #: mean and variance of the logarithms of recent latencies, and the number of calls behind them
        self._usual: float | None = None
        self._spread = 0.25
        self._known = 0.0
        self._failures = 0.0
        self._since = self._settled = now  #: calls that began or ended earlier belong to another limit
        self._began, self._peak = now, 0
        self._answers = self._failed = self._throttled = self._timed = 0
        self._sum = self._squares = 0.0

    @property
    def at_rest(self) -> float | None:
        """The usual latency in seconds when few calls are in progress, or None if it is unknown."""
        return None if self._rest is None else exp(self._rest)

    @property
    def limit(self) -> int:
        return int(self._limit)

    @property
    def room(self) -> int:
        """The number of calls that may begin now."""
        return max(0, int(self._limit) - self.in_flight)

    def adopt(self, policy: LimiterPolicy) -> None:
        """Switch to another policy and keep the learned limit, within the new bounds."""
        self.policy = policy
        self._limit = self._within(self._limit)

    def started(self, now: float, calls: int = 1) -> None:
        """Record that *calls* calls have begun."""
        self.in_flight += calls
        if self.in_flight > self._peak:
            self._peak = self.in_flight

    def answered(self, latency_seconds: float, now: float) -> None:
        """Record the end of a call that was answered."""
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
        """Record the end of a call with any outcome."""
        if outcome is Outcome.OK or outcome is Outcome.SLOW:
            self.answered(latency_seconds, now)
            return
        if self.in_flight:
            self.in_flight -= 1
        # Ignore the latency: these calls were refused at once or given up at the timeout.
        if outcome is Outcome.FAILED:
            self._failed += 1
        elif outcome is Outcome.THROTTLED:
            self._throttled += 1
        else:
            return
        if now - self._began >= ROUND_SECONDS:
            self._end_round(now)

    def _end_round(self, now: float) -> None:
        """Judge the round and begin the next one, if enough calls have ended."""
        seen = self._answers + self._failed + self._throttled
        if seen >= ROUND_CALLS * self._limit:
            self._judge(now)
            self._begin(now)

    def restart(self, share: float, now: float) -> None:
        """Begin the ramp after an outage, with this worker's *share* (1 / workers) of `ramp_from`.

        The latency at rest is kept, so that the ramp is compared with normal times.
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
        """Learn from the round that has ended, then change the limit."""
        policy = self.policy
        slower = self._learn()
        if self._failures > policy.max_failures:
            self._shrink(0.5, now)
        elif self._throttled:
            self._shrink(0.7, now)
        elif now < self._settled or not self._timed:
            return
        elif slower > policy.max_latency and self._peak > 1:  # a single call at a time cannot be the cause
            self._shrink(0.7, now)
        elif self._peak < self.limit:
            return
        elif self._went_well() and slower <= (1 + policy.max_latency) / 2:
            # Grow only well below the point of shrinking. A fleet that overloads the service with one call
            # per worker would take that load for usual and, without a gap between the two points, grow on
            # from there.
            self._limit = self._within(self._limit * max(1.1, 1 + 1 / self._limit))
        else:
            self._stalled += 1
            if self._stalled >= STALLED_ROUNDS:
                self._shrink(0.5, now)

    def _shrink(self, factor: float, now: float) -> None:
        """Shrink the limit and ignore calls that began under the old one, because their slowest end last."""
        self._limit = self._within(self._limit * factor)
        self._stalled = 0
        self._known = 0.0
        self._since = now
        self._settled = now if self._usual is None else now + SETTLE * exp(self._usual)

    def _went_well(self) -> bool:
        return not self._warmup and self._failed <= self.policy.max_failures * (self._answers + self._failed)

    def _learn(self) -> float:
        """Learn from the round and return how many times slower than at rest the answers certainly are."""
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
        if self._rest is None or self._warmup:
            # In a burst the quickest answers come first and would distort the mean, so they count less for
            # the warm-up.
            weight = 1 if self._peak >= self.limit else 5
            self._warmup = max(0, self._warmup - count * weight)
            self._rest = usual
        off = usual - self._rest
        doubt = CERTAIN * sqrt(self._spread / self._known)
        if off < -doubt:
            self._rest += off * REST_FALL
        elif off > doubt and self._peak <= self.policy.least:
            # Under load it must not rise, or a long overload would count as usual. With hardly any of our
            # calls in progress, the latency is that of the service itself.
            self._rest += off * REST_RISE
        return exp(max(0.0, off - doubt))

    def _within(self, limit: float) -> float:
        return min(max(limit, float(self.policy.least)), float(self.policy.most))
