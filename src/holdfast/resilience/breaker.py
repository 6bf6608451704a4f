"""The circuit breaker of a dependency: workers vote by their own calls, and one shared value decides.

```text
            enough votes                 cooldown has passed
  closed ──────────────────▶ open ───────────────────────────▶ half-open
    ▲                          ▲                                   │
    │                          └──── more failed than allowed ─────┤
    └───────────────────────────────────── enough succeeded ───────┘
```

`Ring` is one worker's record of its own calls; it alone decides that worker's vote. `Breaker` is the shared
value. The store keeps it in one row and changes it by compare-and-set on its version; its moments are of the
store's clock. Only `judge`, `take_trial`, `renew_trial`, `end_trial` and `forced` make a new value. There is
no state for the time after recovery: closing restarts every worker's limiter at a low limit
(`holdfast.resilience.limiter`), which is the ramp.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Protocol

from holdfast.errors import UsageError
from holdfast.resilience.outcome import Outcome
from holdfast.resilience.policy import LONGEST_RETRY_AFTER
from holdfast.values.duration import Duration
from holdfast.values.validation import share, span, whole

Mode = Literal["hold", "fail_fast"]

#: After this long in the closed state, earlier openings do not count any more.
FORGIVEN_AFTER = timedelta(minutes=10)
#: How long a failed health check delays the trials. A health check costs no job a call, so it can run more
#: often than trials: a recovered service is noticed after this time instead of a cooldown.
PROBE_AGAIN = timedelta(seconds=5)
_INSTANT, _DAY = timedelta(milliseconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True, init=False)
class BreakerPolicy:
    """When a dependency's breaker opens, for how long, and what closes it.

    *window* is how far a worker looks back: a number of calls, or a duration ("120s"). If it contains at
    least *min_calls* (or is full, if it is smaller), a share of failures of *threshold* or more is a vote to
    open; with *strictly_above*, only a larger share. A call that takes longer than *slow_after* is slow, even
    while it is still running. A share of slow calls of *slow_threshold* is a vote too. The breaker opens at
    *votes* votes, or fewer if fewer workers call the dependency.

    It stays open for *cooldown*. With *max_cooldown*, that time doubles after each failed round of trials, up
    to this maximum. Then *trials* calls are allowed; *trials_to_close* successes close it. While it is open,
    *mode* "hold" leaves jobs queued and "fail_fast" fails them with *fail_code*.
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
        # A window smaller than *min_calls* would never vote.
        set_(self, "min_calls", min(least, back) if isinstance(back, int) else least)
        set_(self, "threshold", share("threshold", threshold, of="calls"))
        set_(self, "strictly_above", bool(strictly_above))
        if strictly_above and threshold >= 1:
            raise UsageError("threshold is 1 and strictly_above is set; more than all calls cannot fail")
        slow = None if slow_after is None else span("slow_after", slow_after, _INSTANT, _DAY)
        set_(self, "slow_after", slow)
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
        """Return whether a window with this many *calls*, *failed* and *slow* ones is a vote to open."""
        if calls < self.min_calls:
            return False
        # Divide instead of multiplying: 3 / 10 is exactly the float 0.3, a product may be off by rounding.
        part = failed / calls
        if part > self.threshold or (part == self.threshold and not self.strictly_above):
            return True
        return self.slow_after is not None and slow / calls >= self.slow_threshold

    def wait(self, reopens: int, chance: float) -> timedelta:
        """Return how long to stay open after *reopens* reopenings, ± 20 % so that fleets spread out."""
        scaled = self.cooldown * 2.0 ** min(reopens, 20)
        return min(scaled * (0.8 + 0.4 * chance), self.max_cooldown)


def window_of(value: int | Duration) -> int | timedelta:
    """Return *value* as a number of calls (20, "20") or a duration ("120s"); raise `UsageError` otherwise."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return whole("window", value, 1, 10_000)
    if isinstance(value, (str, timedelta)):
        return span("window", value, timedelta(seconds=1), _DAY)
    raise UsageError(f'window is {value!r}; it is a number of calls (20) or a duration ("120s")')


# -- one worker's own calls --------------------------------------------------------------------------------
class Ring:
    """The recent calls of one worker to a dependency. *now* is seconds of the worker's monotonic clock.

    `started` returns a number for a call, which `ended` takes. A call that runs longer than the policy's
    *slow_after* counts as slow before it ends: otherwise an outage of hanging calls would be noticed only at
    their timeouts.
    """

    def __init__(self, policy: BreakerPolicy) -> None:
        self._running: dict[int, float] = {}  #: start of each running call, oldest first
        self._number = 0
        self.is_all_ok = False  #: the window is full of successes, so another success changes nothing
        self.adopt(policy)

    def adopt(self, policy: BreakerPolicy) -> None:
        """Switch to another policy and forget all calls, also the running ones."""
        self.policy = policy
        window = policy.window
        self._past: _Window = _CountWindow(window) if isinstance(window, int) else _TimeWindow(window)
        slow_after = policy.slow_after
        self._slow_after = None if slow_after is None else slow_after.total_seconds()
        self.clear()

    def started(self, now: float) -> int:
        """Record the start of a call and return its number."""
        if self._slow_after is None:
            return self._number  # durations do not matter: all calls since the last `clear` share a number
        self._number += 1
        self._running[self._number] = now
        return self._number

    def ended(self, call: int, outcome: Outcome, now: float) -> None:
        """Record the end of the call with this number; ignore it if it began before the last `clear`."""
        began: float | None
        if self._slow_after is not None:
            began = self._running.pop(call, None)
        else:
            began = now if call == self._number else None
        if began is None or outcome in (Outcome.THROTTLED, Outcome.UNCOUNTED):
            return  # it began before the last `clear`, or says nothing about failures
        failed = outcome is Outcome.FAILED
        slow = outcome is Outcome.SLOW or (
            failed and self._slow_after is not None and now - began > self._slow_after
        )
        self._past.add(failed, slow, now)
        self.is_all_ok = self._slow_after is None and self._past.is_all_ok

    def vote(self, now: float) -> bool:
        """Return whether this worker considers the dependency broken."""
        calls, failed, slow = self._past.tally(now)
        overdue = self._overdue(now)
        return self.policy.trips(calls + overdue, failed, slow + overdue)

    def clear(self) -> None:
        """Forget all calls, also the running ones. It is called when the breaker changes its state."""
        self._past.clear()
        self.is_all_ok = False
        self._running.clear()
        self._number += 1

    def _overdue(self, now: float) -> int:
        if self._slow_after is None:
            return 0
        count = 0
        for began in self._running.values():
            if now - began <= self._slow_after:
                break
            count += 1
        return count


class _Window(Protocol):
    """The ended calls that count."""

    def add(self, failed: bool, slow: bool, now: float) -> None: ...
    def tally(self, now: float) -> tuple[int, int, int]:
        """Return how many calls there were, how many failed and how many were slow."""

    def clear(self) -> None: ...

    @property
    def is_all_ok(self) -> bool: ...


class _CountWindow:
    """A window of the last *most* calls."""

    def __init__(self, most: int) -> None:
        self._calls: deque[tuple[bool, bool]] = deque(maxlen=most)
        self._most = most
        self._failed = self._slow = 0

    @property
    def is_all_ok(self) -> bool:
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


class _TimeWindow:
    """A window of time, counted in buckets so that memory does not grow with the number of calls."""

    BUCKETS = 20

    def __init__(self, span: timedelta) -> None:
        self._width = span.total_seconds() / self.BUCKETS
        self._buckets: deque[list[int]] = deque()  #: [number, calls, failed, slow]
        self.is_all_ok = False  #: a window of time is never full

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


# -- the value all workers share ---------------------------------------------------------------------------
class BreakerState(StrEnum):
    """The three states of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Trial:
    """A slot for one call through a half-open breaker: free, taken by *holder* until a moment, or ended."""

    holder: str | None = None
    until: datetime | None = None
    succeeded: bool | None = None

    def is_free(self, now: datetime) -> bool:
        """Return whether a call may take the slot: it is unused, or its holder did not report in time."""
        return self.succeeded is None and (self.until is None or self.until <= now)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The shared breaker of a dependency. A new dependency has `Breaker()`, written by its first worker."""

    state: BreakerState = BreakerState.CLOSED
    version: int = 0  #: grows with every change, for the compare-and-set
    since: datetime | None = None  #: when this state began
    opened_at: datetime | None = None  #: when the current or last outage began
    retry_at: datetime | None = None  #: while open: when trials may begin
    reopens: int = 0  #: how often it opened again within `FORGIVEN_AFTER` of closing, or after trials
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
    """Return the next value of the breaker, or None when nothing changes.

    Args:
        breaker: The current value.
        policy: The policy of the dependency.
        votes: The number of votes to open from workers that have seen this version of the breaker.
        callers: The number of workers that call the dependency.
        now: The time of the store's clock.
        chance: A random number in [0, 1), for the cooldown.
        not_before: The Retry-After of an answer of the dependency, if any.
        healthy: The answer of a health check, if there is one and `heeds_health_check` is true. A good answer
            lets trials begin after one cooldown. A bad one delays them by `PROBE_AGAIN` and does not count as
            a failed trial. A health check never closes the breaker.
    """
    match breaker.state:
        case BreakerState.CLOSED:
            if votes >= max(1, min(policy.votes, callers)):
                return _open(breaker, policy, _reopens(breaker, now), now, chance, not_before)
        case BreakerState.OPEN:
            return _judge_open(breaker, policy, now, not_before, healthy)
        case BreakerState.HALF_OPEN:
            ends = [trial.succeeded for trial in breaker.trials]
            if ends.count(True) >= policy.trials_to_close:
                return _close(breaker, now)
            # Count the existing trials: the policy may have changed since they began.
            if ends.count(False) > max(0, len(ends) - policy.trials_to_close):
                return _open(breaker, policy, breaker.reopens + 1, now, chance, not_before)
    return None


def _judge_open(
    breaker: Breaker,
    policy: BreakerPolicy,
    now: datetime,
    not_before: datetime | None,
    healthy: bool | None,
) -> Breaker | None:
    retry_at = breaker.retry_at or now
    if not_before is not None and (asked := _bounded(not_before, now)) > retry_at:
        return replace(breaker, version=breaker.version + 1, retry_at=asked)
    if now < retry_at and not (healthy and heeds_health_check(breaker, policy, now)):
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


def heeds_health_check(breaker: Breaker, policy: BreakerPolicy, now: datetime) -> bool:
    """Return whether the answer of a health check would change the breaker now.

    It would when trials are due, and after one cooldown if failed trials have made the wait longer. It does
    not shorten a wait that a person or a Retry-After has set.
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


def _reopens(breaker: Breaker, now: datetime) -> int:
    """Return the number of reopenings if the closed *breaker* opens now."""
    if breaker.opened_at is None or breaker.since is None or now - breaker.since >= FORGIVEN_AFTER:
        return 0
    return breaker.reopens + 1


def _bounded(asked: datetime, now: datetime) -> datetime:
    """Limit the moment that a service *asked* for to the longest allowed Retry-After (E12)."""
    return min(asked, now + LONGEST_RETRY_AFTER)


def forced(breaker: Breaker, *, now: datetime, open_until: datetime | None) -> Breaker:
    """Return the breaker that a person forces open until *open_until* (when trials begin) or closed."""
    if open_until is not None:
        outage = now if breaker.state is BreakerState.CLOSED else breaker.opened_at
        return Breaker(BreakerState.OPEN, breaker.version + 1, now, outage, open_until, breaker.reopens)
    return _close(breaker, now)


def take_trial(breaker: Breaker, holder: str, *, now: datetime, until: datetime) -> Breaker | None:
    """Return the breaker with a slot given to *holder*, a name for this call only; None if none is free."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return None
    for place, trial in enumerate(breaker.trials):
        if trial.is_free(now):
            return _with(breaker, place, Trial(holder, until))
    return None


def renew_trial(breaker: Breaker, holder: str, *, until: datetime) -> Breaker | None:
    """Return the breaker with *holder*'s slot extended to *until*; None if it no longer has a slot."""
    for place, trial in enumerate(breaker.trials):
        if trial.holder == holder and trial.succeeded is None:
            return _with(breaker, place, Trial(holder, until))
    return None


def end_trial(breaker: Breaker, holder: str, outcome: Outcome) -> Breaker | None:
    """Return the breaker with the outcome of *holder*'s call; None if it no longer has a slot (a late
    answer).

    An outcome that says nothing about the dependency frees the slot. A slow answer is a failure:
    `Outcome.SLOW` occurs only under a policy that counts slow calls.
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
