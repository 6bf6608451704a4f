"""Find what keeps a queued job from running: one wait for each reason (E28)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.jobs.job import JobRow, WorkerRow
from holdfast.jobs.lanes import Cause, Held, Scope, ScopeKind
from holdfast.jobs.queue_position import MOST_AHEAD, Place, QueuePosition, Use
from holdfast.resilience.breaker import Breaker, BreakerState
from holdfast.resilience.gates import GateRefusal, Hold, Reject
from holdfast.resilience.limits import Rate
from holdfast.resilience.windows import Windows
from holdfast.values.suggest import suggest
from holdfast.values.wording import aside, moment_of, one_line, when


class WaitReason(StrEnum):
    """Stable codes for programs: why a job waits, or that it does not."""

    PAUSED = "paused"
    RETRY_AFTER = "retry_after"
    GATE = "gate"
    EXTERNAL = "external"
    UNKNOWN_TASK = "unknown_task"
    NO_WORKER = "no_worker"
    NO_SLOT = "no_slot"
    BREAKER_OPEN = "breaker_open"
    BREAKER_HALF_OPEN = "breaker_half_open"
    TRIAL_FAILED = "trial_failed"
    RETRY_WINDOW = "retry_window"
    RETRY = "retry"
    RETRY_BUDGET = "retry_budget"
    OWNER_RATE = "owner_rate"
    QUOTA = "quota"
    SNOOZED = "snoozed"
    RELEASED = "released"
    DUE_LATER = "due_later"
    RATE = "rate"
    CONCURRENCY = "concurrency"
    LANE_LIMIT = "lane_limit"
    KEY_BUSY = "key_busy"
    QUEUED = "queued"  # nothing else keeps it: it waits for its turn
    # The job does not wait:
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The state of the dependency of the job's lane, over all workers."""

    label: str
    breaker: Breaker
    holds: bool  #: whether its open breaker keeps jobs queued instead of failing them
    limit: int = 0  #: most calls at a time; 0: no limit
    in_flight: int = 0
    callers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit of the job's queue or task, and how much of it is in use."""

    scope: str  #: "queue:mail", "task:send"
    use: Use
    concurrency: int | None = None
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts behind an explanation. Without the app, its tasks (*tasks* None) and limits are unknown."""

    row: JobRow
    queue_position: QueuePosition
    holds: Sequence[Held] = ()
    workers: Sequence[WorkerRow] = ()
    tasks: Collection[str] | None = None
    external: bool = False  #: an external executor runs it
    dependency: Guarded | None = None
    bounds: Sequence[Bound] = ()
    windows: Windows | None = None
    refusal: GateRefusal | None = None  #: the answer of a plug-in's gate that does not admit the job


class Wait(NamedTuple):
    """One reason why a job waits, with a text for people."""

    reason: WaitReason
    text: str
    until: datetime | None = None
    endless: bool = False  #: only a person can end it


def weight(wait: Wait, now: datetime) -> tuple[bool, datetime]:
    """Return a sort key that is greatest for the wait that ends last."""
    return wait.endless, now if wait.until is None else wait.until


def waits_of(facts: Facts) -> Iterator[Wait]:
    """Yield the waits of a queued job in the order of the claim, which decides between equal weights.

    A job that is due yields at least the wait for its turn.
    """
    yield from _hold_waits(facts)
    yield from _gate_waits(facts)
    yield from _worker_waits(facts)
    yield from _slot_waits(facts)
    yield from _breaker_waits(facts)
    yield from _delay_waits(facts)
    yield from _limit_waits(facts)
    yield from _dependency_limit_waits(facts)
    yield from _key_waits(facts)
    if facts.queue_position.place is Place.LINE or facts.row.run_at <= facts.queue_position.now:
        yield from _turn_waits(facts)


def _hold_waits(facts: Facts) -> Iterator[Wait]:
    now = facts.queue_position.now
    for held in facts.holds:
        if not _covers(held.scope, facts):
            continue
        until = "until it is resumed" if held.until is None else f"until {when(held.until, now)}"
        if held.cause is Cause.RETRY_AFTER:
            text = f"{held.scope} asked not to be called {until}{aside(held.reason)}"
            yield Wait(WaitReason.RETRY_AFTER, text, held.until)
        else:
            by = f" by {held.by}" if held.by else ""
            text = f"{held.scope} is paused{by} {until}{aside(held.reason)}"
            yield Wait(WaitReason.PAUSED, text, held.until, endless=held.until is None)


def _covers(scope: Scope, facts: Facts) -> bool:
    if scope.kind is not ScopeKind.MAINTENANCE or facts.queue_position.place is not Place.LATER:
        return scope.covers(facts.queue_position.lane)
    return scope.name == "delayed" or (scope.name == "retries" and facts.row.attempt > 0)


def _gate_waits(facts: Facts) -> Iterator[Wait]:
    match facts.refusal:
        case (gate, Hold(until, reason)) if until is None or until > facts.queue_position.now:
            ends = "" if until is None else f" until {when(until, facts.queue_position.now)}"
            yield Wait(WaitReason.GATE, f"gate {gate} holds it{ends}: {one_line(reason)}", until)
        case (gate, Reject(reason)):
            yield Wait(WaitReason.GATE, f"gate {gate} will reject it: {one_line(reason)}")


def _worker_waits(facts: Facts) -> Iterator[Wait]:
    row = facts.row
    if facts.external:
        text = f"{row.task} runs on external executors, and none of them has taken this job yet"
        yield Wait(WaitReason.EXTERNAL, text, endless=True)
        return
    if facts.tasks is not None and row.task not in facts.tasks:
        text = (
            f"this app has no task {row.task!r} ({suggest(row.task, facts.tasks)}); run a worker that has it"
        )
        yield Wait(WaitReason.UNKNOWN_TASK, text, endless=True)
    if not any(worker.serves(row.queue) for worker in facts.workers):
        text = f"no live worker serves queue {row.queue!r}; start `holdfast worker`, or add it to a worker's --queues"
        yield Wait(WaitReason.NO_WORKER, text, endless=True)


def _slot_waits(facts: Facts) -> Iterator[Wait]:
    """Yield a wait when handlers that wait for queued jobs hold every slot, so that no slot is left."""
    serving = [worker for worker in facts.workers if worker.serves(facts.row.queue)]
    if serving and all(worker.waiting for worker in serving):
        slots = sum(worker.waiting for worker in serving)
        text = (
            f"every slot of its workers ({slots}) is held by a handler that waits for a queued job;"
            " raise the concurrency, or give the jobs that the handlers wait for a queue and a worker of their own"
        )
        yield Wait(WaitReason.NO_SLOT, text, endless=True)


def _breaker_waits(facts: Facts) -> Iterator[Wait]:
    guarded, now = facts.dependency, facts.queue_position.now
    if guarded is None or not guarded.holds:
        return
    breaker = guarded.breaker
    since = None if breaker.since is None else moment_of(breaker.since, now)
    if breaker.state is BreakerState.OPEN:
        trial = breaker.retry_at if breaker.retry_at is not None and breaker.retry_at > now else None
        is_open = "is open" if since is None else f"has been open since {since}"
        trials = "trials begin now" if trial is None else f"the next trial is at {when(trial, now)}"
        yield Wait(WaitReason.BREAKER_OPEN, f"the breaker of {guarded.label} {is_open}; {trials}", trial)
    elif breaker.state is BreakerState.HALF_OPEN:
        good = sum(trial.succeeded is True for trial in breaker.trials)
        is_half_open = "is half-open" if since is None else f"has been half-open since {since}"
        text = (
            f"the breaker of {guarded.label} {is_half_open}: {good} of {len(breaker.trials)} trial calls"
            " have succeeded, the others decide"
        )
        yield Wait(WaitReason.BREAKER_HALF_OPEN, text)


_RETRIES = ("retry", "reclaimed")


def _delay_waits(facts: Facts) -> Iterator[Wait]:
    """Yield why the job is due later: its caller asked for it, it is retried, or a worker put it off."""
    row, last, now = facts.row, facts.queue_position.last, facts.queue_position.now
    if row.run_at <= now:
        return
    at, kind = when(row.run_at, now), _last_kind(facts)
    if kind in _RETRIES:
        code = (last.meta.get("error_code") if last else None) or (row.last_failure or {}).get("code")
        failed = f"attempt {row.attempt} of {row.max_attempts} failed with {code}"
        opening = facts.windows and facts.windows.next_opening(now)
        if opening and now < opening <= row.run_at:
            text = (
                f"the retry window is closed and opens at {when(opening, now)}; {failed}, the next is at {at}"
            )
            yield Wait(WaitReason.RETRY_WINDOW, text, row.run_at)
        yield Wait(WaitReason.RETRY, f"{failed}; the next is at {at}", row.run_at)
    elif kind == "snoozed":
        yield Wait(WaitReason.SNOOZED, f"its handler put it off; it is due again at {at}", row.run_at)
    elif kind == "released":
        text = f"it was put off: {_release_reason(facts)}; it is due again at {at}"
        yield Wait(_wait_reason(facts), text, row.run_at)
    else:
        yield Wait(WaitReason.DUE_LATER, f"it is not due before {at}", row.run_at)


def _last_kind(facts: Facts) -> str:
    """Return the kind of the last move, inferred from the row when its event was purged."""
    last, row = facts.queue_position.last, facts.row
    if last is not None:
        return last.kind
    return "retry" if row.attempt and row.last_failure else "queued"


def _release_reason(facts: Facts) -> str:
    last = facts.queue_position.last
    return one_line(last.meta.get("reason") if last else None) or "no reason was given"


def _wait_reason(facts: Facts) -> WaitReason:
    """Return the reason that the worker recorded when it gave the job back, or RELEASED.

    A newer worker may record names that are unknown here.
    """
    last = facts.queue_position.last
    recorded = last.meta.get("wait_reason") if last else None
    return WaitReason(recorded) if recorded in tuple(WaitReason) else WaitReason.RELEASED


def _limit_waits(facts: Facts) -> Iterator[Wait]:
    now = facts.queue_position.now
    for bound in facts.bounds:
        scope, use, rate = bound.scope.replace(":", " ", 1), bound.use, bound.rate
        if rate is not None and (wait := use.ahead + rate.per / rate.count - rate.per) > timedelta():
            text = (
                f"{scope} has used up its rate of {rate}; the next job may start at {when(now + wait, now)}"
            )
            yield Wait(WaitReason.RATE, text, now + wait)
        if bound.concurrency is not None and use.running >= bound.concurrency:
            jobs = "job" if use.running == 1 else "jobs"
            text = f"{scope} has {use.running} running {jobs}, and its limit is {bound.concurrency} at a time"
            yield Wait(WaitReason.CONCURRENCY, text)


def _dependency_limit_waits(facts: Facts) -> Iterator[Wait]:
    guarded = facts.dependency
    if guarded is None or guarded.breaker.state is not BreakerState.CLOSED:
        return
    if 0 < guarded.limit <= guarded.in_flight and guarded.callers:
        calls = "1 call" if guarded.in_flight == 1 else f"{guarded.in_flight} calls"
        are = "is" if guarded.in_flight == 1 else "are"
        text = f"{calls} to {guarded.label} {are} in progress, and its current limit is {guarded.limit}"
        yield Wait(WaitReason.LANE_LIMIT, text)


def _key_waits(facts: Facts) -> Iterator[Wait]:
    if facts.queue_position.place is Place.KEY:
        holder = facts.queue_position.holder
        who = "another job" if holder is None else f"job {holder}"
        slots, key = facts.queue_position.key_slots, facts.row.key
        most = "only one job" if slots == 1 else f"at most {slots} jobs"
        if key is not None:
            text = f"{who} holds its key {key!r}, and {most} with this key may run at a time"
        else:  # a limit of its task
            text = f"{who} has the same owner ({facts.row.owner}), and {most} of an owner may run at a time"
        yield Wait(WaitReason.KEY_BUSY, text)


def _turn_waits(facts: Facts) -> Iterator[Wait]:
    queue_position = facts.queue_position
    if queue_position.place is Place.KEY:
        return
    reason, before = WaitReason.QUEUED, ""
    if _last_kind(facts) in ("released", "snoozed"):
        before = f"it was given back ({_release_reason(facts)}) and is due again; "
        # Any other cause for giving it back is over: it waits for its turn.
        reason = (
            WaitReason.TRIAL_FAILED if _wait_reason(facts) is WaitReason.TRIAL_FAILED else WaitReason.RELEASED
        )
    if queue_position.place is Place.LATER or queue_position.ahead is None:
        yield Wait(reason, f"{before}it is due and about to be queued in its lane")
        return
    if queue_position.ahead == 0:
        text = "it is the next job in its lane and starts when a worker has a free slot"
    else:
        many = (
            f"more than {MOST_AHEAD:,}" if queue_position.ahead >= MOST_AHEAD else f"{queue_position.ahead:,}"
        )
        jobs = "job is" if queue_position.ahead == 1 else "jobs are"
        text = f"{many} {jobs} ahead of it in its lane {queue_position.lane.label}"
        if queue_position.lane.fair:
            text += ", where owners take turns"
    yield Wait(reason, before + text)
