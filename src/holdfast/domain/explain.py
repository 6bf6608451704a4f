"""Why a job is not running, and when it is expected to: one sentence for people, a code and facts for programs (E28).

What keeps a job are its waits (`holdfast.domain.wait_reasons`). What ends last decides the sentence: a wait that only somebody can
end (a pause without an end, no worker) before one that ends at a moment, and that before one that passes by itself,
nobody knows when (its turn, a free slot). All of them are in the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from holdfast.domain.moves import State
from holdfast.domain.wait_reasons import Facts, Wait, WaitReason, waits_of, weight
from holdfast.domain.wording import aside, moment_of, one_line, sentence, when


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """*expected_at*: when the job can start at the earliest, as far as that is a moment; None: nobody knows, or it does
    not wait."""

    sentence: str
    reason: WaitReason
    facts: Mapping[str, Any]
    expected_at: datetime | None = None


def explain(facts: Facts) -> Explanation:
    match facts.row.state:
        case State.QUEUED:
            return _waiting(facts)
        case State.PROCESSING:
            return _running(facts)
        case _:
            return _ended(facts)


# -- a job that does not wait -----------------------------------------------------------------------------------------
def _running(facts: Facts) -> Explanation:
    row, now = facts.row, facts.queue_position.now
    tries = f"attempt {row.attempt} of {row.max_attempts}"
    if row.lease_expires_at is not None and row.lease_expires_at <= now:
        text = f"worker {row.leased_by} was lost in {tries}; the next sweep of any worker takes it back"
        return _plain(facts, WaitReason.WORKER_LOST, text)
    since = "" if row.last_attempt_at is None else f" since {moment_of(row.last_attempt_at, now)}"
    return _plain(facts, WaitReason.RUNNING, f"it is running{since}: {tries}, at worker {row.leased_by}")


def _ended(facts: Facts) -> Explanation:
    row, last, now = facts.row, facts.queue_position.last, facts.queue_position.now
    at = "" if row.finished_at is None else f" at {moment_of(row.finished_at, now)}"
    tries = f"attempt {row.attempt} of {row.max_attempts}"
    if row.state is State.COMPLETE:
        return _plain(facts, WaitReason.COMPLETE, f"it was completed{at}, in {tries}")
    if row.state is State.CANCELLED:
        said = last.meta if last is not None and last.kind == "cancelled" else {}
        by = f" by {said['by']}" if said.get("by") else ""
        return _plain(facts, WaitReason.CANCELLED, f"it was cancelled{by}{at}{aside(said.get('reason'))}")
    place = f" in {tries}" if row.attempt else ""
    text = f"it failed{at}{place} with {row.error_code}: {one_line(row.error_message)}"
    return _plain(facts, WaitReason.FAILED, f"{text}; retry it when the cause is gone")


def _plain(facts: Facts, reason: WaitReason, text: str) -> Explanation:
    return Explanation(sentence=sentence(text), reason=reason, facts=_known(facts))


# -- a job that waits -------------------------------------------------------------------------------------------------
def _waiting(facts: Facts) -> Explanation:
    waits, now = list(waits_of(facts)), facts.queue_position.now
    decisive = max(waits, key=lambda wait: weight(wait, now))
    return Explanation(
        sentence=sentence(decisive.text + _too_late(facts, decisive)),
        reason=decisive.reason,
        facts=_known(facts, waits) | ({"too_late": True} if _is_too_late(facts, decisive) else {}),
        expected_at=decisive.until,
    )


def _is_too_late(facts: Facts, decisive: Wait) -> bool:
    """Whether its deadline passes before it can start."""
    deadline = facts.row.deadline_at
    return deadline is not None and deadline < (decisive.until or facts.queue_position.now)


def _too_late(facts: Facts, decisive: Wait) -> str:
    """What its deadline adds."""
    deadline, now = facts.row.deadline_at, facts.queue_position.now
    if deadline is None:
        return ""
    if deadline < now:
        return f"; its deadline passed at {moment_of(deadline, now)}, and it will fail with TIMEOUT"
    if _is_too_late(facts, decisive):
        return f"; its deadline passes before that, at {when(deadline, now)}, and it will fail with TIMEOUT"
    if decisive.until is None:
        return f"; it fails with TIMEOUT unless it is done by {when(deadline, now)}"
    return ""


# -- facts ------------------------------------------------------------------------------------------------------------
def _known(facts: Facts, waits: Sequence[Wait] = ()) -> dict[str, Any]:
    """What is known, by name; what does not apply is left out."""
    row, queue_position, guarded = facts.row, facts.queue_position, facts.dependency
    last = queue_position.last
    found: dict[str, Any] = {
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
        found["workers"] = sum(worker.serves(row.queue) for worker in facts.workers)
        found["waits"] = [
            {"reason": wait.reason, "text": sentence(wait.text), "until": wait.until} for wait in waits
        ]
        if guarded is not None:
            found["dependency"] = {
                "name": guarded.label,
                "breaker": guarded.breaker.state,
                "limit": guarded.limit,
                "in_flight": guarded.in_flight,
                "callers": guarded.callers,
            }
    return {name: value for name, value in found.items() if value is not None}
