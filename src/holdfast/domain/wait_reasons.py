"""What can keep a queued job: each of the reasons as one wait, found from facts (E28)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from holdfast.domain.breaker import Breaker, BreakerState
from holdfast.domain.gates import GateRefusal, Hold, Reject
from holdfast.domain.job import JobRow, WorkerRow
from holdfast.domain.lanes import Cause, Held, Scope, ScopeKind
from holdfast.domain.limits import Rate
from holdfast.domain.queue_position import MOST_AHEAD, Place, QueuePosition, Use
from holdfast.domain.suggest import suggest
from holdfast.domain.windows import Windows
from holdfast.domain.wording import aside, moment_of, one_line, when


class WaitReason(StrEnum):
    """The codes that programs may rely on."""

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
    IN_LINE = "in_line"
    # It does not wait:
    RUNNING = "running"
    WORKER_LOST = "worker_lost"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """The dependency of the job's lane, as all workers together see it."""

    label: str
    breaker: Breaker
    holds: bool  #: its open breaker keeps jobs in line, as against failing them
    limit: int = 0  #: of calls at a time; 0: none
    in_flight: int = 0
    callers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit of the job's queue or task as a whole, and how much of it is in use."""

    scope: str  #: "queue:mail", "task:send"
    use: Use
    concurrency: int | None = None
    rate: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the explanation is made from. Without an app at hand its tasks and limits are not known (*tasks* None)."""

    row: JobRow
    queue_position: QueuePosition
    holds: Sequence[Held] = ()
    workers: Sequence[WorkerRow] = ()
    tasks: Collection[str] | None = None
    external: bool = False  #: others execute it
    dependency: Guarded | None = None
    bounds: Sequence[Bound] = ()
    windows: Windows | None = None
    refusal: GateRefusal | None = None  #: what a gate of a plug-in says now


class Wait(NamedTuple):
    reason: WaitReason
    text: str
    until: datetime | None = None
    endless: bool = False  #: only somebody can end it


def weight(wait: Wait, now: datetime) -> tuple[bool, datetime]:
    """Who ends last; of equals `max` takes the first."""
    return wait.endless, now if wait.until is None else wait.until


def waits_of(facts: Facts) -> Iterator[Wait]:
    """In the order of the pipeline, which decides between equals; what stands in line at least waits for its turn."""
    yield from _held(facts)
    yield from _refused(facts)
    yield from _unserved(facts)
    yield from _waited_for(facts)
    yield from _broken(facts)
    yield from _later(facts)
    yield from _bounded(facts)
    yield from _limited(facts)
    yield from _keyed(facts)
    if facts.queue_position.place is Place.LINE or facts.row.run_at <= facts.queue_position.now:
        yield from _in_turn(facts)


def _held(facts: Facts) -> Iterator[Wait]:
    now = facts.queue_position.now
    for held in facts.holds:
        if not _covers(held.scope, facts):
            continue
        until = "until it is resumed" if held.until is None else f"until {when(held.until, now)}"
        if held.cause is Cause.RETRY_AFTER:
            text = f"{held.scope} asked to be left alone {until}{aside(held.reason)}"
            yield Wait(WaitReason.RETRY_AFTER, text, held.until)
        else:
            text = f"{held.scope} is paused by {held.by or 'somebody'} {until}{aside(held.reason)}"
            yield Wait(WaitReason.PAUSED, text, held.until, endless=held.until is None)


def _covers(scope: Scope, facts: Facts) -> bool:
    if scope.kind is not ScopeKind.MAINTENANCE or facts.queue_position.place is not Place.LATER:
        return scope.covers(facts.queue_position.lane)
    return scope.name == "delayed" or (scope.name == "retries" and facts.row.attempt > 0)


def _refused(facts: Facts) -> Iterator[Wait]:
    match facts.refusal:
        case (gate, Hold(until, reason)) if until is None or until > facts.queue_position.now:
            ends = "" if until is None else f" until {when(until, facts.queue_position.now)}"
            yield Wait(WaitReason.GATE, f"gate {gate} holds it{ends}: {one_line(reason)}", until)
        case (gate, Reject(reason)):
            yield Wait(WaitReason.GATE, f"gate {gate} will reject it: {one_line(reason)}")


def _unserved(facts: Facts) -> Iterator[Wait]:
    row = facts.row
    if facts.external:
        text = f"{row.task} is executed outside, and nobody there has taken this one up"
        yield Wait(WaitReason.EXTERNAL, text, endless=True)
        return
    if facts.tasks is not None and row.task not in facts.tasks:
        text = (
            f"this app has no task {row.task!r} ({suggest(row.task, facts.tasks)}); run a worker that has it"
        )
        yield Wait(WaitReason.UNKNOWN_TASK, text, endless=True)
    if not any(worker.serves(row.queue) for worker in facts.workers):
        text = (
            f"no live worker serves queue {row.queue!r}; start `holdfast worker`, or one with it in --queues"
        )
        yield Wait(WaitReason.NO_WORKER, text, endless=True)


def _waited_for(facts: Facts) -> Iterator[Wait]:
    """Handlers that wait for queued jobs hold every slot, so none is left to run this one in."""
    serving = [worker for worker in facts.workers if worker.serves(facts.row.queue)]
    if serving and all(worker.waiting for worker in serving):
        slots = sum(worker.waiting for worker in serving)
        text = (
            f"every slot of its workers ({slots}) is held by a handler that waits for a queued job; raise the concurrency,"
            " or give the jobs that are waited for a queue and a worker of their own"
        )
        yield Wait(WaitReason.NO_SLOT, text, endless=True)


def _broken(facts: Facts) -> Iterator[Wait]:
    guarded, now = facts.dependency, facts.queue_position.now
    if guarded is None or not guarded.holds:
        return
    breaker = guarded.breaker
    since = "" if breaker.since is None else f" since {moment_of(breaker.since, now)}"
    if breaker.state is BreakerState.OPEN:
        trial = breaker.retry_at if breaker.retry_at is not None and breaker.retry_at > now else None
        told = "trials begin now" if trial is None else f"the next trial is at {when(trial, now)}"
        yield Wait(WaitReason.BREAKER_OPEN, f"the breaker of {guarded.label} is open{since}; {told}", trial)
    elif breaker.state is BreakerState.HALF_OPEN:
        good = sum(trial.succeeded is True for trial in breaker.trials)
        text = (
            f"the breaker of {guarded.label} is half-open{since}: {good} of {len(breaker.trials)} trial calls"
            " have succeeded, the others decide"
        )
        yield Wait(WaitReason.BREAKER_HALF_OPEN, text)


_RETRIES = ("retry", "reclaimed")


def _later(facts: Facts) -> Iterator[Wait]:
    """It is due later: by its caller's word, by its policy, or because a worker has put it off."""
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
    """The last move; by the row where its event was purged."""
    last, row = facts.queue_position.last, facts.row
    if last is not None:
        return last.kind
    return "retry" if row.attempt and row.last_failure else "queued"


def _release_reason(facts: Facts) -> str:
    last = facts.queue_position.last
    return one_line(last.meta.get("reason") if last else None) or "no reason was given"


def _wait_reason(facts: Facts) -> WaitReason:
    """Return what the worker that gave it back noted for programs; a newer worker may use names that are unknown here."""
    last = facts.queue_position.last
    said = last.meta.get("wait_reason") if last else None
    return WaitReason(said) if said in tuple(WaitReason) else WaitReason.RELEASED


def _bounded(facts: Facts) -> Iterator[Wait]:
    now = facts.queue_position.now
    for bound in facts.bounds:
        scope, use, rate = bound.scope.replace(":", " ", 1), bound.use, bound.rate
        if rate is not None and (wait := use.ahead + rate.per / rate.count - rate.per) > timedelta():
            text = f"{scope} has used up its rate of {rate}; the next may start at {when(now + wait, now)}"
            yield Wait(WaitReason.RATE, text, now + wait)
        if bound.concurrency is not None and use.running >= bound.concurrency:
            text = f"{scope} has {use.running} running, and its limit is {bound.concurrency} at a time"
            yield Wait(WaitReason.CONCURRENCY, text)


def _limited(facts: Facts) -> Iterator[Wait]:
    guarded = facts.dependency
    if guarded is None or guarded.breaker.state is not BreakerState.CLOSED:
        return
    if 0 < guarded.limit <= guarded.in_flight and guarded.callers:
        text = (
            f"{guarded.in_flight} calls of {guarded.label} are under way, and the limit that it bears"
            f" is {guarded.limit} at present"
        )
        yield Wait(WaitReason.LANE_LIMIT, text)


def _keyed(facts: Facts) -> Iterator[Wait]:
    if facts.queue_position.place is Place.KEY:
        holder = facts.queue_position.holder
        who = "another job" if holder is None else f"job {holder}"
        slots, key = facts.queue_position.key_slots, facts.row.key
        most = "one runs" if slots == 1 else f"{slots} run"
        if key is not None:
            yield Wait(WaitReason.KEY_BUSY, f"{who} has its key {key!r}, and of one key {most} at a time")
        else:  # a limit of its task
            text = f"{who} is of the same owner ({facts.row.owner}), and of one owner {most} at a time"
            yield Wait(WaitReason.KEY_BUSY, text)


def _in_turn(facts: Facts) -> Iterator[Wait]:
    queue_position = facts.queue_position
    if queue_position.place is Place.KEY:
        return
    reason, before = WaitReason.IN_LINE, ""
    if _last_kind(facts) in ("released", "snoozed"):
        before = f"it was given back ({_release_reason(facts)}) and is due again; "
        # What else it was given back for is over: it waits for its turn.
        reason = (
            WaitReason.TRIAL_FAILED if _wait_reason(facts) is WaitReason.TRIAL_FAILED else WaitReason.RELEASED
        )
    if queue_position.place is Place.LATER or queue_position.ahead is None:
        yield Wait(reason, f"{before}it is due and on its way into the line")
        return
    if queue_position.ahead == 0:
        text = "it is the first in its line and starts when a worker has room"
    else:
        many = (
            f"more than {MOST_AHEAD:,}" if queue_position.ahead >= MOST_AHEAD else f"{queue_position.ahead:,}"
        )
        jobs = "job is" if queue_position.ahead == 1 else "jobs are"
        text = f"{many} {jobs} ahead of it in its line {queue_position.lane.label}"
        if queue_position.lane.fair:
            text += ", where owners are served in turn"
    yield Wait(reason, before + text)
