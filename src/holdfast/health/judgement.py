"""Judge the health of a deployment (E65): inputs in, checks out.

Each check says what was seen, which threshold it was compared with, and what to do. Its level is one of:

pass   nothing to do
warn   look at it; it may resolve itself
fail   jobs are not done as they should be
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.errors import UsageError
from holdfast.jobs.lanes import Cause, Held, ScopeKind, holding
from holdfast.jobs.stats import RECENT, JobStats
from holdfast.outbox.model import Lag
from holdfast.resilience.breaker import BreakerState
from holdfast.values.duration import duration, format_duration


class Level(StrEnum):
    """How good a check or the whole deployment is."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The values from which a check warns or fails. `HOLDFAST_HEALTH_QUEUE_DEPTH=50000` sets one of them."""

    queue_depth: int = 10_000  #: jobs due in one queue: warn
    oldest_wait: timedelta = timedelta(minutes=5)  #: wait of the next job of a lane without a hold: warn
    oldest_wait_fail: timedelta = timedelta(minutes=30)  #: the same: fail
    stuck: int = 1  #: attempts that run for too long: warn
    lost: int = 100  #: expired leases that were not reclaimed: fail; one of them: warn
    retry_failures: float = 0.5  #: share of recent retries that failed: warn …
    retry_sample: int = 20  #: … if there were at least this many retries
    overdue: timedelta = timedelta(seconds=30)  #: how long a delayed job is due without being queued: fail
    late_tick: timedelta = timedelta(minutes=1)  #: how late the tick of a schedule is: warn
    outbox_lag: timedelta = timedelta(minutes=1)  #: wait of the oldest message in the outbox: warn
    parked: int = 1  #: messages that are not retried any more: warn
    dead_letters: int = 1_000  #: number of dead letters: warn

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Thresholds:
        """Return the thresholds set in *environment*; raise `UsageError` for a value that cannot be read."""
        values: dict[str, Any] = {}
        for name in (one.name for one in fields(cls)):
            source = f"HOLDFAST_HEALTH_{name.upper()}"
            if text := environment.get(source):
                values[name] = _read(source, text, getattr(cls(), name))
        return cls(**values)


def _read(source: str, text: str, default: Any) -> Any:
    try:
        value = duration(text) if isinstance(default, timedelta) else type(default)(text)
    except (UsageError, ValueError):
        example = "5m" if isinstance(default, timedelta) else default
        raise UsageError(f"{source} is {text[:40]!r}; write a value such as {example}") from None
    if value < type(value)():
        raise UsageError(f"{source} is {text[:40]!r}; it must not be negative")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """The facts that the checks judge. *now* is the time of the store's clock."""

    stats: JobStats
    now: datetime
    holds: Sequence[Held] = ()
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)  #: by the dependency's label
    workers: int = 0
    lost: int = 0  #: expired leases
    stuck: int = 0  #: attempts that run for too long
    ticks: Mapping[str, datetime] = field(default_factory=dict)  #: the next tick of each schedule
    lags: Sequence[Lag] = ()  #: of the topics with waiting or parked messages


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its level, what was seen, the threshold and a text for people."""

    name: str
    level: Level
    seen: Any
    threshold: Any
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """The result of all checks. Its level is that of the worst check."""

    checks: tuple[Check, ...]

    @property
    def level(self) -> Level:
        levels = {check.level for check in self.checks}
        return Level.FAIL if Level.FAIL in levels else Level.WARN if Level.WARN in levels else Level.PASS


def judge_health(inputs: HealthInputs, limits: Thresholds) -> Health:
    """Compare every input with its threshold (E65)."""
    return Health(
        (
            _workers(inputs),
            _queue_depth(inputs, limits),
            _oldest_wait(inputs, limits),
            _lost(inputs, limits),
            _stuck(inputs, limits),
            _retries(inputs, limits),
            _maintenance(inputs, limits),
            _schedules(inputs, limits),
            _relay(inputs, limits),
            _breakers(inputs),
            _pauses(inputs),
            _dead_letters(inputs, limits),
        )
    )


def _workers(inputs: HealthInputs) -> Check:
    waiting = sum(lane.waiting for lane in inputs.stats.lines.values())
    if inputs.workers or not waiting:
        workers = _count(inputs.workers, "worker is running", "workers are running")
        return Check("workers", Level.PASS, inputs.workers, 1, workers)
    jobs = _count(waiting, "job is waiting", "jobs are waiting")
    return Check("workers", Level.FAIL, 0, 1, f"{jobs} and no worker is running; start `holdfast worker`")


def _queue_depth(inputs: HealthInputs, limits: Thresholds) -> Check:
    depths: dict[str, int] = {}
    for lane, line in inputs.stats.lines.items():
        depths[lane.queue] = depths.get(lane.queue, 0) + line.waiting
    queue, most = max(depths.items(), key=lambda item: item[1], default=("", 0))
    if most < limits.queue_depth:
        text = f"at most {_count(most, 'job is', 'jobs are')} waiting in a queue"
        return Check("queue_depth", Level.PASS, most, limits.queue_depth, text)
    jobs = _count(most, "job is", "jobs are")
    text = f"{jobs} waiting in queue {queue!r}; see `holdfast lanes` for what holds them, or add workers"
    return Check("queue_depth", Level.WARN, most, limits.queue_depth, text)


def _oldest_wait(inputs: HealthInputs, limits: Thresholds) -> Check:
    """Judge the longest wait in lanes without a hold: held jobs are meant to wait."""
    stopped = {label for label, state in inputs.breakers.items() if state is not BreakerState.CLOSED}
    waits = [
        (line.oldest, lane.label)
        for lane, line in inputs.stats.lines.items()
        if line.oldest is not None
        and holding(inputs.holds, lane) is None
        and lane.label.partition("@")[2] not in stopped
    ]
    longest, label = max(waits, default=(timedelta(), ""))
    seconds, fail = round(longest.total_seconds(), 1), longest >= limits.oldest_wait_fail
    if longest < limits.oldest_wait and not fail:
        text = f"the next job of a lane has waited for at most {_rounded(longest)}"
        return Check("oldest_wait", Level.PASS, seconds, limits.oldest_wait.total_seconds(), text)
    text = f"the next job of {label} has waited for {_rounded(longest)}; `holdfast explain` says why"
    level, bound = (Level.FAIL, limits.oldest_wait_fail) if fail else (Level.WARN, limits.oldest_wait)
    return Check("oldest_wait", level, seconds, bound.total_seconds(), text)


def _lost(inputs: HealthInputs, limits: Thresholds) -> Check:
    if not inputs.lost:
        return Check("lost_leases", Level.PASS, 0, limits.lost, "no lease has expired")
    level = Level.FAIL if inputs.lost >= limits.lost else Level.WARN
    jobs = _count(inputs.lost, "job of a lost worker is", "jobs of lost workers are")
    text = f"{jobs} waiting to be reclaimed; run a worker without --no-maintenance"
    return Check("lost_leases", level, inputs.lost, limits.lost, text)


def _stuck(inputs: HealthInputs, limits: Thresholds) -> Check:
    if inputs.stuck < max(limits.stuck, 1):
        text = f"{_count(inputs.stuck, 'attempt runs', 'attempts run')} for too long"
        return Check("stuck", Level.PASS, inputs.stuck, limits.stuck, text)
    attempts = _count(inputs.stuck, "attempt runs", "attempts run")
    text = f"{attempts} longer than the stuck_after of its task; see `holdfast doctor`"
    return Check("stuck", Level.WARN, inputs.stuck, limits.stuck, text)


def _retries(inputs: HealthInputs, limits: Thresholds) -> Check:
    retried, failed = inputs.stats.retried, inputs.stats.failed_retries
    share = round(failed / retried, 3) if retried else 0.0
    text = f"{failed} of {retried} retries failed in the last {_rounded(RECENT)}"
    if retried < limits.retry_sample or share < limits.retry_failures:
        return Check("retry_failures", Level.PASS, share, limits.retry_failures, text)
    return Check(
        "retry_failures",
        Level.WARN,
        share,
        limits.retry_failures,
        f"{text}; `holdfast dead groups` shows the causes",
    )


def _maintenance(inputs: HealthInputs, limits: Thresholds) -> Check:
    """Judge maintenance by its effect: a delayed job that comes due is queued within a second."""
    late, bound = inputs.stats.overdue, limits.overdue.total_seconds()
    seen = round(late.total_seconds(), 1)
    stopped = sorted(held.scope.name for held in inputs.holds if held.scope.kind is ScopeKind.MAINTENANCE)
    if {"delayed", "retries"} & set(stopped):
        return Check("maintenance", Level.PASS, seen, bound, f"paused: {', '.join(stopped)}")
    if late < limits.overdue:
        return Check("maintenance", Level.PASS, seen, bound, "delayed jobs are queued when they come due")
    text = f"a delayed job came due {_rounded(late)} ago and is not queued; run a worker without --no-maintenance"
    return Check("maintenance", Level.FAIL, seen, bound, text)


def _schedules(inputs: HealthInputs, limits: Thresholds) -> Check:
    held = {one.scope.name for one in inputs.holds if one.scope.kind is ScopeKind.SCHEDULE}
    stopped = any(
        one.scope.kind is ScopeKind.MAINTENANCE and one.scope.name == "schedules" for one in inputs.holds
    )
    late = sorted(
        name
        for name, due in inputs.ticks.items()
        if name not in held and inputs.now - due >= limits.late_tick
    )
    bound = limits.late_tick.total_seconds()
    if not late or stopped:
        text = (
            "paused" if stopped else _count(len(inputs.ticks), "schedule is on time", "schedules are on time")
        )
        return Check("schedules", Level.PASS, 0, bound, text)
    text = (
        f"{', '.join(late[:3])} should have ticked; run a worker with this app, or see `holdfast schedules`"
    )
    return Check("schedules", Level.WARN, len(late), bound, text)


def _relay(inputs: HealthInputs, limits: Thresholds) -> Check:
    """Judge the relay by its effect: a message leaves the outbox within moments."""
    bound, parked = limits.outbox_lag.total_seconds(), sum(lag.parked for lag in inputs.lags)
    longest, topic = max(
        ((lag.oldest or timedelta(), lag.topic) for lag in inputs.lags), default=(timedelta(), "")
    )
    seen = round(longest.total_seconds(), 1)
    if any(one.scope.kind is ScopeKind.MAINTENANCE and one.scope.name == "relay" for one in inputs.holds):
        return Check("relay", Level.PASS, seen, bound, "paused: messages wait")
    if longest >= limits.outbox_lag:
        text = f"a message of topic {topic} has waited for {_rounded(longest)}; run `holdfast relay` or see its log"
        return Check("relay", Level.WARN, seen, bound, text)
    if parked >= max(limits.parked, 1):
        messages = _count(parked, "message is", "messages are")
        text = f"{messages} parked: retries cannot help; `holdfast outbox list --state parked` shows why"
        return Check("relay", Level.WARN, parked, limits.parked, text)
    return Check("relay", Level.PASS, seen, bound, f"messages wait for at most {_rounded(longest)}")


def _breakers(inputs: HealthInputs) -> Check:
    opened = sorted(label for label, state in inputs.breakers.items() if state is not BreakerState.CLOSED)
    if not opened:
        text = f"{_count(len(inputs.breakers), 'dependency', 'dependencies')}, no calls are stopped"
        return Check("breakers", Level.PASS, [], None, text)
    text = f"calls to {', '.join(opened[:5])} are stopped and will be tried again; see `holdfast breakers`"
    return Check("breakers", Level.WARN, opened, None, text)


def _pauses(inputs: HealthInputs) -> Check:
    paused = [str(held.scope) for held in inputs.holds if held.cause is Cause.PAUSE]
    text = f"paused: {', '.join(paused[:5])}" if paused else "nothing is paused"
    return Check("pauses", Level.PASS, paused, None, text)


def _dead_letters(inputs: HealthInputs, limits: Thresholds) -> Check:
    count = inputs.stats.dead_letters
    if count < limits.dead_letters:
        letters = _count(count, "dead letter", "dead letters")
        return Check("dead_letters", Level.PASS, count, limits.dead_letters, letters)
    text = f"{_count(count, 'dead letter', 'dead letters')}; `holdfast dead groups` shows the causes"
    return Check("dead_letters", Level.WARN, count, limits.dead_letters, text)


def _count(number: int, one: str, many: str) -> str:
    """Return *number* followed by its noun, e.g. "1 job is" or "1,234 jobs are"."""
    return f"{number:,} {one if number == 1 else many}"


def _rounded(span: timedelta) -> str:
    return format_duration(timedelta(seconds=round(span.total_seconds())))
