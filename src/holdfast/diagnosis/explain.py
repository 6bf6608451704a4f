"""Explain why a job is not running and when it can start (E28).

The answer is a sentence for people, and a code and facts for programs.

A queued job is kept by its waits (`holdfast.diagnosis.wait_reasons`). The wait that ends last decides the
sentence. A wait that only a person can end (a pause without an end, no worker) ranks above one that ends at a
known moment, and that above one that ends by itself at an unknown time (its turn, a free slot). All waits are
in the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.diagnosis.wait_reasons import Facts, Wait, WaitReason, waits_of, weight
from holdfast.jobs.moves import State
from holdfast.values.wording import aside, moment_of, one_line, sentence, when


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer to why a job is not running.

    *expected_at* is the earliest moment at which the job can start; None when it is unknown or the job does
    not wait.
    """

    sentence: str
    reason: WaitReason
    facts: Mapping[str, Any]
    expected_at: datetime | None = None


def explain(facts: Facts) -> Explanation:
    """Return why the job is in its state and, if it is queued, what keeps it from running."""
    match facts.row.state:
        case State.QUEUED:
            return _explain_waiting(facts)
        case State.PROCESSING:
            return _explain_running(facts)
        case _:
            return _explain_finished(facts)


# -- a job that does not wait ------------------------------------------------------------------------------
def _explain_running(facts: Facts) -> Explanation:
    row, now = facts.row, facts.queue_position.now
    attempts = f"attempt {row.attempt} of {row.max_attempts}"
    if row.lease_expires_at is not None and row.lease_expires_at <= now:
        text = f"worker {row.leased_by} was lost during {attempts}; the next sweep of any worker reclaims it"
        return _explanation(facts, WaitReason.WORKER_LOST, text)
    started = row.last_attempt_at
    is_running = (
        "it is running" if started is None else f"it has been running since {moment_of(started, now)}"
    )
    return _explanation(facts, WaitReason.RUNNING, f"{is_running}: {attempts}, on worker {row.leased_by}")


def _explain_finished(facts: Facts) -> Explanation:
    row, last, now = facts.row, facts.queue_position.last, facts.queue_position.now
    at = "" if row.finished_at is None else f" at {moment_of(row.finished_at, now)}"
    attempts = f"attempt {row.attempt} of {row.max_attempts}"
    if row.state is State.COMPLETE:
        return _explanation(facts, WaitReason.COMPLETE, f"it was completed{at}, in {attempts}")
    if row.state is State.CANCELLED:
        meta = last.meta if last is not None and last.kind == "cancelled" else {}
        by = f" by {meta['by']}" if meta.get("by") else ""
        return _explanation(
            facts, WaitReason.CANCELLED, f"it was cancelled{by}{at}{aside(meta.get('reason'))}"
        )
    place = f" in {attempts}" if row.attempt else ""
    text = f"it failed{at}{place} with {row.error_code}: {one_line(row.error_message)}"
    return _explanation(facts, WaitReason.FAILED, f"{text}; retry it when the cause is gone")


def _explanation(facts: Facts, reason: WaitReason, text: str) -> Explanation:
    return Explanation(sentence=sentence(text), reason=reason, facts=_facts_by_name(facts))


# -- a job that waits --------------------------------------------------------------------------------------
def _explain_waiting(facts: Facts) -> Explanation:
    waits, now = list(waits_of(facts)), facts.queue_position.now
    decisive = max(waits, key=lambda wait: weight(wait, now))
    return Explanation(
        sentence=sentence(decisive.text + _deadline_clause(facts, decisive)),
        reason=decisive.reason,
        facts=_facts_by_name(facts, waits)
        | ({"too_late": True} if _misses_deadline(facts, decisive) else {}),
        expected_at=decisive.until,
    )


def _misses_deadline(facts: Facts, decisive: Wait) -> bool:
    """Return whether the deadline of the job passes before it can start."""
    deadline = facts.row.deadline_at
    return deadline is not None and deadline < (decisive.until or facts.queue_position.now)


def _deadline_clause(facts: Facts, decisive: Wait) -> str:
    """Return what the deadline of the job adds to the sentence."""
    deadline, now = facts.row.deadline_at, facts.queue_position.now
    if deadline is None:
        return ""
    if deadline < now:
        return f"; its deadline passed at {moment_of(deadline, now)}, and it will fail with TIMEOUT"
    if _misses_deadline(facts, decisive):
        return f"; its deadline passes before that, at {when(deadline, now)}, and it will fail with TIMEOUT"
    if decisive.until is None:
        return f"; the job fails with TIMEOUT unless it is done by {when(deadline, now)}"
    return ""


# -- facts -------------------------------------------------------------------------------------------------
def _facts_by_name(facts: Facts, waits: Sequence[Wait] = ()) -> dict[str, Any]:
    """Return all known facts by name, without those that do not apply."""
    row, queue_position, guarded = facts.row, facts.queue_position, facts.dependency
    last = queue_position.last
    known: dict[str, Any] = {
        "id": row.id,
        "state": row.state,
        "lane": queue_position.lane.label,
        "queue": row.queue,
        "task": row.task,
        "owner": row.owner,
        "attempt": row.attempt,
        "max_attempts": row.max_attempts,
        "now": queue_position.now,
        "run_at": row.run_at if row.state is State.QUEUED else None,
        "ahead": queue_position.ahead,
        "key": row.key,
        "key_holder": queue_position.holder,
        "worker": row.leased_by,
        "error_code": row.error_code,
        "deadline_at": row.deadline_at,
        "last_event": last and {"event": last.kind, "at": last.at, **last.meta},
    }
    if waits:
        known["workers"] = sum(worker.serves(row.queue) for worker in facts.workers)
        known["waits"] = [
            {"reason": wait.reason, "text": sentence(wait.text), "until": wait.until} for wait in waits
        ]
        if guarded is not None:
            known["dependency"] = {
                "name": guarded.label,
                "breaker": guarded.breaker.state,
                "limit": guarded.limit,
                "in_flight": guarded.in_flight,
                "callers": guarded.callers,
            }
    return {name: value for name, value in known.items() if value is not None}
