"""Small decisions and texts that all stores share."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.jobs.job import JobRow
from holdfast.jobs.moves import State
from holdfast.jobs.verdict import Bury, Complete, Release, RetryAfter, Verdict


def outcome_of(verdict: Verdict) -> str:
    """Return the outcome that the record of an attempt stores for *verdict*."""
    match verdict:
        case Complete():
            return "complete"
        case RetryAfter():
            return "retry"
        case Bury():
            return "failed"
        case Release():
            return "snoozed" if verdict.snoozed else "released"


def retry_refusal(job_id: str, state: State) -> str:
    """Return why a manual retry of a job in *state* is refused."""
    why = {
        State.COMPLETE: "is complete; enqueue a new job to do the work again",
        State.PROCESSING: "is being processed; wait for its end or cancel it first",
        State.QUEUED: "is already queued to run",
    }
    return f"job {job_id} {why.get(state, f'is {state}')}"


def broken_invariants(row: JobRow) -> Iterator[str]:
    """Yield a description of each invariant of E3 that *row* breaks."""
    if row.result is not None and row.state is not State.COMPLETE:
        yield "has a result but is not complete"
    if (row.error_code is not None) != (row.state is State.FAILED):
        yield f"is {row.state} with error_code {row.error_code}"
    if row.error_message is not None and row.state is not State.FAILED:
        yield f"is {row.state} with an error_message"
    if row.lease_expires_at is not None and row.state is not State.PROCESSING:
        yield f"is {row.state} with lease_expires_at {row.lease_expires_at}"
    if (row.leased_by is not None) != (row.state is State.PROCESSING):
        yield f"is {row.state} with leased_by {row.leased_by}"
    if (row.finished_at is not None) != (row.state in (State.COMPLETE, State.FAILED, State.CANCELLED)):
        yield f"is {row.state} with finished_at {row.finished_at}"
    if row.state is State.COMPLETE and row.last_failure is not None:
        yield "is complete but keeps a last_failure"
    if not 0 <= row.attempt <= row.max_attempts:
        yield f"has attempt {row.attempt} of {row.max_attempts}"
    if row.started_at is not None and row.started_at < row.queued_at:
        yield "was started before it was queued"
    if row.finished_at is not None and row.finished_at < (row.started_at or row.queued_at):
        yield "was finished before it was started"
