"""The circuit breaker of a dependency: each worker votes by its own calls, one value shared by all decides.

```text
            enough votes                 its time has come
  closed ──────────────────▶ open ───────────────────────────▶ half-open
    ▲                          ▲                                   │
    │                          └──── more failed than allowed ─────┤
    └───────────────────────────────────── enough succeeded ───────┘
```

`Ring` is one worker's memory of its own calls; it alone decides that worker's vote. `Breaker` is the shared value, kept
by the store in one row and changed by compare-and-set on its version; its moments are of the store's clock.
`judge`, `take_trial`, `renew_trial`, `end_trial` and `forced` are the only ways from one value to the next. There is no state for the time after
recovery: closing restarts every worker's limiter near the bottom (`holdfast.domain.limiter`), and that is the ramp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from holdfast.domain.duration import Duration
from holdfast.domain.outcome import Outcome
from holdfast.domain.policy import LONGEST_RETRY_AFTER
from holdfast.domain.validation import share, span, whole
from holdfast.errors import UsageError

Mode = Literal["hold", "fail_fast"]

#: A breaker that has been closed for this long is judged as if it had never been open.
FORGIVEN_AFTER = timedelta(minutes=10)
#: How long a bad answer of a health check puts the trials off. It costs no job a call, so it can be asked more often than
#: trials can be made: a service that is back is noticed this soon, not a cooldown later.
PROBE_AGAIN = timedelta(seconds=5)
_INSTANT, _DAY = timedelta(milliseconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, init=False)
class BreakerPolicy:
    """When a dependency's breaker opens, for how long, and what closes it.

    *window* is how far a worker looks back: a number of calls, or a duration ("120s"). With at least *min_calls* in it (or a
    full window, if that is smaller), a share of failures of *threshold* or more is a vote to open; with *strictly_above*
    only more than that. A call that took longer than *slow_after*, or is still running after that, is slow;
    *slow_threshold* is the share of slow calls that is a vote too. The breaker opens at *votes* votes, or at fewer if
    fewer workers call the dependency.

    It stays open for *cooldown*; with a *max_cooldown* twice as long after each vain trial, up to that. Then *trials* calls are let
    through; *trials_to_close* successes close it. *mode* says what becomes of jobs meanwhile: "hold" leaves them in line,
    "fail_fast" ends them with *fail_code*.
    """

    window: int | timedelta
    min_calls: int
    threshold: float
    strictly_above: bool
    slow_after: timedelta | None
    slow_threshold: float
    cooldown: timedelta
    max_cooldown: timedelta
    trials: int
    trials_to_close: int
    mode: Mode
    fail_code: str
    votes: int

    def __init__(
        self,
        *,
        window: int | Duration = 20,
        min_calls: int = 10,
        threshold: float = 0.5,
        strictly_above: bool = False,
        slow_after: Duration | None = None,
        slow_threshold: float = 1.0,
        cooldown: Duration = "30s",
        max_cooldown: Duration | None = None,
        trials: int = 3,
        trials_to_close: int = 2,
        mode: Mode = "hold",
        fail_code: str = "CIRCUIT_OPEN",
        votes: int = 2,
    ) -> None:
        set_ = object.__setattr__
        back = window_of(window)
        least = whole("min_calls", min_calls, 1, 10_000)
        set_(self, "window", back)
        # A window that cannot hold *min_calls* would never vote.
        set_(self, "min_calls", min(least, back) if isinstance(back, int) else least)
        set_(self, "threshold", share("threshold", threshold, of="calls"))
        set_(self, "strictly_above", bool(strictly_above))
        if strictly_above and threshold >= 1:
            raise UsageError("threshold is 1 and strictly_above is set; more than all calls cannot fail")
        late = None if slow_after is None else span("slow_after", slow_after, _INSTANT, _DAY)
        set_(self, "slow_after", late)
        set_(self, "slow_threshold", share("slow_threshold", slow_threshold, of="calls"))
        wait = span("cooldown", cooldown, _INSTANT, _DAY)
        longest = wait if max_cooldown is None else span("max_cooldown", max_cooldown, _INSTANT, _DAY)
        if longest < wait:
            raise UsageError(
                f"max_cooldown is {max_cooldown!r}; it must not be below cooldown ({cooldown!r})"
            )
        set_(self, "cooldown", wait)
        set_(self, "max_cooldown", longest)
        set_(self, "trials", whole("trials", trials, 1, 1000))
        set_(self, "trials_to_close", whole("trials_to_close", trials_to_close, 1, trials))
        if mode not in ("hold", "fail_fast"):
            raise UsageError(f'mode is {mode!r}; it is "hold" or "fail_fast"')
        set_(self, "mode", mode)
        if not isinstance(fail_code, str) or not fail_code:
            raise UsageError(f"fail_code is {fail_code!r}; it is the error code of jobs that fail fast")
        set_(self, "fail_code", fail_code)
        set_(self, "votes", whole("votes", votes, 1, 10_000))

    def trips(self, calls: int, failed: int, slow: int) -> bool:
        """Return whether *calls*, of which *failed* failed and *slow* were slow, are a vote to open."""
        if calls < self.min_calls:
            return False
        # Divided, not multiplied: 3 / 10 is the very number that 0.3 is written for.
        part = failed / calls
        if part > self.threshold or (part == self.threshold and not self.strictly_above):
            return True
        return self.slow_after is not None and slow / calls >= self.slow_threshold

    def wait(self, reopens: int, chance: float) -> timedelta:
        """How long to stay open, the *reopens*-th time in a row: 20 % more or less, so that fleets drift apart."""
        scaled = self.cooldown * 2.0 ** min(reopens, 20)
        return min(scaled * (0.8 + 0.4 * chance), self.max_cooldown)


def window_of(value: int | Duration) -> int | timedelta:
    """A number of calls (20, "20") or a stretch of time ("120s", a timedelta)."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return whole("window", value, 1, 10_000)
    if isinstance(value, (str, timedelta)):
        return span("window", value, timedelta(seconds=1), _DAY)
    raise UsageError(f'window is {value!r}; it is a number of calls (20) or a duration ("120s")')


# -- one worker's own calls -------------------------------------------------------------------------------------------
class Ring:
    """The last calls of one worker to a dependency. *now* is seconds of the worker's monotonic clock.

    A call is known by the number that `started` gives it, until `ended`. What runs for longer than the policy's
    *slow_after* counts as a slow call before it ends: else an outage of hanging calls would be seen only at their timeouts.
    """

    def __init__(self, policy: BreakerPolicy) -> None:
        self._running: dict[int, float] = {}  #: in the order they began
        self._number = 0
        self.is_calm = False  #: full of nothing but successes: one more of them changes nothing
        self.adopt(policy)

    def adopt(self, policy: BreakerPolicy) -> None:
        """Look back by another policy from now on. What was seen by the old one is forgotten, what still runs too."""
        self.policy = policy
        self._past: _Past = _Calls(policy.window) if isinstance(policy.window, int) else _Span(policy.window)
        late = policy.slow_after
        self._late = None if late is None else late.total_seconds()
        self.clear()

    def started(self, now: float) -> int:
        if self._late is None:  # nobody will ask how long it has been running: the era is all that matters
            return self._number
        self._number += 1
        self._running[self._number] = now
        return self._number

    def ended(self, call: int, outcome: Outcome, now: float) -> None:
        began = (
            self._running.pop(call, None) if self._late is not None else now if call == self._number else None
        )
        if began is None or outcome in (Outcome.THROTTLED, Outcome.UNCOUNTED):
            return  # begun before the last `clear`: it tells of a time that was judged already
        failed = outcome is Outcome.FAILED
        late = outcome is Outcome.SLOW or (failed and self._late is not None and now - began > self._late)
        self._past.add(failed, late, now)
        self.is_calm = self._late is None and self._past.is_calm

    def vote(self, now: float) -> bool:
        """Whether this worker holds the dependency for broken."""
        calls, failed, slow = self._past.tally(now)
        overdue = self._overdue(now)
        return self.policy.trips(calls + overdue, failed, slow + overdue)

    def clear(self) -> None:
        """Forget everything, what still runs too: the breaker has changed, and a new time begins."""
        self._past.clear()
        self.is_calm = False
        self._running.clear()
        self._number += 1

    def _overdue(self, now: float) -> int:
        if self._late is None:
            return 0
        count = 0
        for began in self._running.values():
            if now - began <= self._late:
                break
            count += 1
        return count


class _Past(Protocol):
    def add(self, failed: bool, slow: bool, now: float) -> None: ...
    def tally(self, now: float) -> tuple[int, int, int]:
        """(calls, failed, slow)."""

    def clear(self) -> None: ...

    @property
    def is_calm(self) -> bool: ...


class _Calls:
    """A window of the last calls."""

    def __init__(self, most: int) -> None:
        self._calls: deque[tuple[bool, bool]] = deque(maxlen=most)
        self._most = most
        self._failed = self._slow = 0

    @property
    def is_calm(self) -> bool:
        return not self._failed and not self._slow and len(self._calls) == self._most

    def add(self, failed: bool, slow: bool, now: float) -> None:
        calls = self._calls
        if len(calls) == calls.maxlen:
            old_failed, old_slow = calls[0]
            self._failed -= old_failed
            self._slow -= old_slow
        calls.append((failed, slow))
        self._failed += failed
        self._slow += slow

    def tally(self, now: float) -> tuple[int, int, int]:
        return len(self._calls), self._failed, self._slow

    def clear(self) -> None:
        self._calls.clear()
        self._failed = self._slow = 0


class _Span:
    """A window of time, counted in buckets so that a busy worker needs no more memory than an idle one."""

    BUCKETS = 20

    def __init__(self, span: timedelta) -> None:
        self._width = span.total_seconds() / self.BUCKETS
        self._buckets: deque[list[int]] = deque()  #: [number, calls, failed, slow]
        self.is_calm = False  #: a stretch of time is never full

    def add(self, failed: bool, slow: bool, now: float) -> None:
        number = self._expire(now)
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append([number, 0, 0, 0])
        last = self._buckets[-1]
        last[1] += 1
        last[2] += failed
        last[3] += slow

    def tally(self, now: float) -> tuple[int, int, int]:
        self._expire(now)
        calls, failed, slow = (sum(bucket[place] for bucket in self._buckets) for place in (1, 2, 3))
        return calls, failed, slow

    def clear(self) -> None:
        self._buckets.clear()

    def _expire(self, now: float) -> int:
        number = int(now // self._width)
        while self._buckets and self._buckets[0][0] <= number - self.BUCKETS:
            self._buckets.popleft()
        return number


# -- the value all workers share --------------------------------------------------------------------------------------
class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Trial:
    """A slot for one call through a half-open breaker: free, lent to *holder* until a moment, or ended."""

    holder: str | None = None
    until: datetime | None = None
    succeeded: bool | None = None

    def is_free(self, now: datetime) -> bool:
        """A slot whose holder did not come back in time decides nothing: the next may have it."""
        return self.succeeded is None and (self.until is None or self.until <= now)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The shared state of a dependency. A new dependency has `Breaker()`: the first worker writes it, none resets it."""

    state: BreakerState = BreakerState.CLOSED
    version: int = 0  #: grows with every change: the compare-and-set
    since: datetime | None = None  #: when it came into this state
    opened_at: datetime | None = None  #: when this outage, or else the last one, began
    retry_at: datetime | None = None  #: while open: when trials may begin
    reopens: int = 0  #: how often it opened again before it was forgiven
    trials: tuple[Trial, ...] = ()  #: while half-open

    def free_trials(self, now: datetime) -> int:
        return sum(trial.is_free(now) for trial in self.trials)


def judge(
    breaker: Breaker,
    policy: BreakerPolicy,
    *,
    votes: int,
    callers: int,
    now: datetime,
    chance: float,
    not_before: datetime | None = None,
    healthy: bool | None = None,
) -> Breaker | None:
    """The next value, or None when nothing changes.

    *votes* are of workers that have seen this version of the breaker, *callers* the workers that call the dependency.
    *not_before* is the Retry-After of one of its answers. *healthy* is what a health check said, where there is one and
    `minds_health`: a good answer lets trials begin after one cooldown already, a bad one puts them off by `PROBE_AGAIN`. It
    never closes by itself, and does not count as a vain trial.
    """
    match breaker.state:
        case BreakerState.CLOSED:
            if votes >= max(1, min(policy.votes, callers)):
                return _open(breaker, policy, _again(breaker, now), now, chance, not_before)
        case BreakerState.OPEN:
            return _wait(breaker, policy, now, not_before, healthy)
        case BreakerState.HALF_OPEN:
            ends = [trial.succeeded for trial in breaker.trials]
            if ends.count(True) >= policy.trials_to_close:
                return _close(breaker, now)
            # By the trials that there are: the policy may have been changed since they began.
            if ends.count(False) > max(0, len(ends) - policy.trials_to_close):
                return _open(breaker, policy, breaker.reopens + 1, now, chance, not_before)
    return None


def _wait(
    breaker: Breaker,
    policy: BreakerPolicy,
    now: datetime,
    not_before: datetime | None,
    healthy: bool | None,
) -> Breaker | None:
    retry_at = breaker.retry_at or now
    if not_before is not None and (asked := _bounded(not_before, now)) > retry_at:
        return replace(breaker, version=breaker.version + 1, retry_at=asked)
    if now < retry_at and not (healthy and minds_health(breaker, policy, now)):
        return None
    if healthy is False:
        return replace(breaker, version=breaker.version + 1, retry_at=now + PROBE_AGAIN)
    return replace(
        breaker,
        state=BreakerState.HALF_OPEN,
        version=breaker.version + 1,
        since=now,
        trials=(Trial(),) * policy.trials,
    )


def minds_health(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> bool:
    """Whether the answer of a health check would change anything now.

    It does when trials are due, and after one cooldown where vain trials have made the wait a longer one. What somebody opened
    for longer than that, or a service asked for, it does not shorten.
    """
    if breaker.state is not BreakerState.OPEN:
        return False
    retry_at, since = breaker.retry_at or now, breaker.since or now
    if now >= retry_at:
        return True
    return (
        bool(breaker.reopens) and since + policy.cooldown <= now and retry_at <= since + policy.max_cooldown
    )


def _open(
    breaker: Breaker,
    policy: BreakerPolicy,
    reopens: int,
    now: datetime,
    chance: float,
    not_before: datetime | None,
) -> Breaker:
    retry_at = now + policy.wait(reopens, chance)
    if not_before is not None:
        retry_at = max(retry_at, _bounded(not_before, now))
    outage = now if breaker.state is BreakerState.CLOSED else breaker.opened_at
    return Breaker(BreakerState.OPEN, breaker.version + 1, now, outage, retry_at, reopens)


def _close(breaker: Breaker, now: datetime) -> Breaker:
    version = breaker.version + 1
    return replace(breaker, state=BreakerState.CLOSED, version=version, since=now, retry_at=None, trials=())


def _again(breaker: Breaker, now: datetime) -> int:
    """How often it has opened again, if a closed breaker opens now."""
    if breaker.opened_at is None or breaker.since is None or now - breaker.since >= FORGIVEN_AFTER:
        return 0
    return breaker.reopens + 1


def _bounded(asked: datetime, now: datetime) -> datetime:
    """A service cannot close itself for longer than a Retry-After may ask (E12)."""
    return min(asked, now + LONGEST_RETRY_AFTER)


def forced(breaker: Breaker, *, now: datetime, open_until: datetime | None) -> Breaker:
    """What somebody decided, whatever the votes say: open until a moment, when trials begin, or closed (None)."""
    if open_until is not None:
        outage = now if breaker.state is BreakerState.CLOSED else breaker.opened_at
        return Breaker(BreakerState.OPEN, breaker.version + 1, now, outage, open_until, breaker.reopens)
    return _close(breaker, now)


def take_trial(breaker: Breaker, holder: str, *, now: datetime, until: datetime) -> Breaker | None:
    """Lend a free slot to *holder*, a name that is used for this one call only; None when there is none."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return None
    for place, trial in enumerate(breaker.trials):
        if trial.is_free(now):
            return _with(breaker, place, Trial(holder, until))
    return None


def renew_trial(breaker: Breaker, holder: str, *, until: datetime) -> Breaker | None:
    """*holder* lives and its call still runs: its slot stays its own until then. None when it is not its own any more."""
    for place, trial in enumerate(breaker.trials):
        if trial.holder == holder and trial.succeeded is None:
            return _with(breaker, place, Trial(holder, until))
    return None


def end_trial(breaker: Breaker, holder: str, outcome: Outcome) -> Breaker | None:
    """Record what *holder*'s call came to; None when its slot is not its own any more: a late answer changes nothing.

    An outcome that tells nothing about the dependency gives the slot back. A slow answer is a failure: `Outcome.SLOW` comes
    up only where slow calls are a reason to open.
    """
    for place, trial in enumerate(breaker.trials):
        if trial.holder == holder and trial.succeeded is None:
            match outcome:
                case Outcome.OK:
                    return _with(breaker, place, replace(trial, succeeded=True))
                case Outcome.FAILED | Outcome.SLOW:
                    return _with(breaker, place, replace(trial, succeeded=False))
                case _:
                    return _with(breaker, place, Trial())
    return None


def _with(breaker: Breaker, place: int, trial: Trial) -> Breaker:
    trials: Sequence[Trial] = breaker.trials
    changed = (*trials[:place], trial, *trials[place + 1 :])
    return replace(breaker, version=breaker.version + 1, trials=changed)
