"""Whether all is well (E65): facts in, a judgement out. Each check says what was seen, what it was held against, what to do.

pass   nothing to do
warn   somebody should look: it may come right by itself
fail   jobs do not get done as they should
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from holdfast.domain.breaker import BreakerState
from holdfast.domain.duration import duration, format_duration
from holdfast.domain.lanes import Cause, Held, ScopeKind, holding
from holdfast.domain.outbox import Lag
from holdfast.domain.stats import OF_LATE, JobStats
from holdfast.errors import UsageError


class Level(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where on a fact is worth a word. `HOLDFAST_HEALTH_QUEUE_DEPTH=50000` sets one by environment."""

    queue_depth: int = 10_000  #: jobs due in one queue: warn
    oldest_wait: timedelta = timedelta(minutes=5)  #: of the next job of a lane that nothing holds: warn
    oldest_wait_fail: timedelta = timedelta(minutes=30)  #: likewise: fail
    stuck: int = 1  #: attempts that run on for too long: warn
    lost: int = 100  #: leases that ran out and were not reclaimed: fail; one is worth a warning
    retry_failures: float = 0.5  #: share of retries that failed of late: warn …
    retry_sample: int = 20  #: … if there were at least this many
    overdue: timedelta = timedelta(seconds=30)  #: a delayed job that came due and was not let into line: fail
    late_tick: timedelta = timedelta(minutes=1)  #: a schedule that should have ticked: warn
    outbox_lag: timedelta = timedelta(minutes=1)  #: of the message that has waited longest: warn
    parked: int = 1  #: messages that no further try can help: warn
    dead_letters: int = 1_000  #: warn

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Thresholds:
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
        raise UsageError(f"{source} is {text[:40]!r}; it is like {example}") from None
    if value < type(value)():
        raise UsageError(f"{source} is {text[:40]!r}; it must not be negative")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What is known. *now* is the store's clock."""

    stats: JobStats
    now: datetime
    holds: Sequence[Held] = ()
    breakers: Mapping[str, BreakerState] = field(default_factory=dict)  #: by the dependency's label
    workers: int = 0
    lost: int = 0  #: leases that ran out
    stuck: int = 0
    ticks: Mapping[str, datetime] = field(default_factory=dict)  #: when each schedule is due
    lags: Sequence[Lag] = ()  #: of the topics in which messages wait or are parked


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    seen: Any
    threshold: Any
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    checks: tuple[Check, ...]

    @property
    def level(self) -> Level:
        levels = {check.level for check in self.checks}
        return Level.FAIL if Level.FAIL in levels else Level.WARN if Level.WARN in levels else Level.PASS


def judge_health(inputs: HealthInputs, limits: Thresholds) -> Health:
    """Every fact of E65, held against its threshold."""
    return Health(
        (
            _workers(inputs),
            _queue_depth(inputs, limits),
            _oldest_wait(inputs, limits),
            _lost(inputs, limits),
            _stuck(inputs, limits),
            _retries(inputs, limits),
            _promotion(inputs, limits),
            _schedules(inputs, limits),
            _relay(inputs, limits),
            _breakers(inputs),
            _pauses(inputs),
            _dead_letters(inputs, limits),
        )
    )


def _workers(inputs: HealthInputs) -> Check:
    waiting = sum(line.waiting for line in inputs.stats.lines.values())
    if inputs.workers or not waiting:
        return Check("workers", Level.PASS, inputs.workers, 1, f"{inputs.workers} live")
    return Check(
        "workers", Level.FAIL, 0, 1, f"{waiting:,} jobs wait and no worker lives; start `holdfast worker`"
    )


def _queue_depth(inputs: HealthInputs, limits: Thresholds) -> Check:
    depths: dict[str, int] = {}
    for lane, line in inputs.stats.lines.items():
        depths[lane.queue] = depths.get(lane.queue, 0) + line.waiting
    queue, most = max(depths.items(), key=lambda item: item[1], default=("", 0))
    if most < limits.queue_depth:
        return Check(
            "queue_depth", Level.PASS, most, limits.queue_depth, f"at most {most:,} jobs wait in a queue"
        )
    text = f"{most:,} jobs wait in queue {queue!r}; see `holdfast lanes` for what holds them, or add workers"
    return Check("queue_depth", Level.WARN, most, limits.queue_depth, text)


def _oldest_wait(inputs: HealthInputs, limits: Thresholds) -> Check:
    """Of lanes that nothing holds: behind a pause or an open breaker jobs are meant to wait."""
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
        text = f"the next jobs have waited for at most {_words(longest)}"
        return Check("oldest_wait", Level.PASS, seconds, limits.oldest_wait.total_seconds(), text)
    text = f"the next job of {label} has waited for {_words(longest)}; `holdfast explain` says why"
    level, bound = (Level.FAIL, limits.oldest_wait_fail) if fail else (Level.WARN, limits.oldest_wait)
    return Check("oldest_wait", level, seconds, bound.total_seconds(), text)


def _lost(inputs: HealthInputs, limits: Thresholds) -> Check:
    if not inputs.lost:
        return Check("lost_leases", Level.PASS, 0, limits.lost, "no lease has run out")
    level = Level.FAIL if inputs.lost >= limits.lost else Level.WARN
    text = f"{inputs.lost} jobs of lost workers wait to be reclaimed; run a worker without --no-maintenance"
    return Check("lost_leases", level, inputs.lost, limits.lost, text)


def _stuck(inputs: HealthInputs, limits: Thresholds) -> Check:
    if inputs.stuck < max(limits.stuck, 1):
        return Check(
            "stuck", Level.PASS, inputs.stuck, limits.stuck, f"{inputs.stuck} attempts run for too long"
        )
    text = f"{inputs.stuck} attempts run longer than their task's stuck_after; see `holdfast doctor`"
    return Check("stuck", Level.WARN, inputs.stuck, limits.stuck, text)


def _retries(inputs: HealthInputs, limits: Thresholds) -> Check:
    retried, vain = inputs.stats.retried, inputs.stats.retried_in_vain
    share = round(vain / retried, 3) if retried else 0.0
    text = f"{vain} of {retried} retries failed in the last {_words(OF_LATE)}"
    if retried < limits.retry_sample or share < limits.retry_failures:
        return Check("retry_failures", Level.PASS, share, limits.retry_failures, text)
    return Check(
        "retry_failures",
        Level.WARN,
        share,
        limits.retry_failures,
        f"{text}; `holdfast dead groups` shows the causes",
    )


def _promotion(inputs: HealthInputs, limits: Thresholds) -> Check:
    """The duties are known by what they do: a job that has come due is let into line within a second."""
    late, bound = inputs.stats.overdue, limits.overdue.total_seconds()
    seen = round(late.total_seconds(), 1)
    stopped = sorted(held.scope.name for held in inputs.holds if held.scope.kind is ScopeKind.MAINTENANCE)
    if {"delayed", "retries"} & set(stopped):
        return Check("maintenance", Level.PASS, seen, bound, f"paused: {', '.join(stopped)}")
    if late < limits.overdue:
        return Check("maintenance", Level.PASS, seen, bound, "jobs that come due are let into line")
    text = (
        f"a delayed job came due {_words(late)} ago and is not in line; run a worker without --no-maintenance"
    )
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
        text = "paused" if stopped else f"{len(inputs.ticks)} tick in time"
        return Check("schedules", Level.PASS, 0, bound, text)
    text = f"{', '.join(late[:3])} should have ticked; run a worker with their app, or `holdfast schedules` to look"
    return Check("schedules", Level.WARN, len(late), bound, text)


def _relay(inputs: HealthInputs, limits: Thresholds) -> Check:
    """A relay is known by what it does: a message leaves within moments."""
    bound, parked = limits.outbox_lag.total_seconds(), sum(lag.parked for lag in inputs.lags)
    longest, topic = max(
        ((lag.oldest or timedelta(), lag.topic) for lag in inputs.lags), default=(timedelta(), "")
    )
    seen = round(longest.total_seconds(), 1)
    if any(one.scope.kind is ScopeKind.MAINTENANCE and one.scope.name == "relay" for one in inputs.holds):
        return Check("relay", Level.PASS, seen, bound, "paused: its messages wait")
    if longest >= limits.outbox_lag:
        text = f"a message of topic {topic} has waited for {_words(longest)}; run `holdfast relay`, or see its log for why not"
        return Check("relay", Level.WARN, seen, bound, text)
    if parked >= max(limits.parked, 1):
        text = f"{parked:,} messages are parked: no further try can help; `holdfast outbox list --state parked` shows why"
        return Check("relay", Level.WARN, parked, limits.parked, text)
    return Check("relay", Level.PASS, seen, bound, f"messages wait for at most {_words(longest)}")


def _breakers(inputs: HealthInputs) -> Check:
    opened = sorted(label for label, state in inputs.breakers.items() if state is not BreakerState.CLOSED)
    if not opened:
        return Check(
            "breakers", Level.PASS, [], None, f"{len(inputs.breakers)} dependencies, none is stopped"
        )
    text = f"calls to {', '.join(opened[:5])} are stopped and will be tried again; see `holdfast breakers`"
    return Check("breakers", Level.WARN, opened, None, text)


def _pauses(inputs: HealthInputs) -> Check:
    paused = [str(held.scope) for held in inputs.holds if held.cause is Cause.PAUSE]
    text = f"paused: {', '.join(paused[:5])}" if paused else "nothing is paused"
    return Check("pauses", Level.PASS, paused, None, text)


def _dead_letters(inputs: HealthInputs, limits: Thresholds) -> Check:
    count = inputs.stats.dead_letters
    if count < limits.dead_letters:
        return Check("dead_letters", Level.PASS, count, limits.dead_letters, f"{count:,} dead letters")
    text = f"{count:,} dead letters; `holdfast dead groups` shows their causes"
    return Check("dead_letters", Level.WARN, count, limits.dead_letters, text)


def _words(span: timedelta) -> str:
    return format_duration(timedelta(seconds=round(span.total_seconds())))
