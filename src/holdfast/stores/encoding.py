"""What the stores encode and decode alike: JSON, the meta of events, and rows as values.

A moment is a number of microseconds on SQLite and a timestamp on PostgreSQL; `engine.tables.sql.moment` decodes both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from holdfast.engine.artifacts import MARK, split_result
from holdfast.engine.ports import Row, SettlementStatus
from holdfast.engine.tables.sql import maybe_moment, moment
from holdfast.errors import Conflict, UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.job import (
    ORDINARY_COST,
    Attempt,
    Edit,
    Expired,
    JobId,
    JobRow,
    Lane,
    LateResult,
    Lease,
    Settlement,
)
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.tracebacks import Traceback
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict

#: The most moves that one row of events records. The place in the row is part of an event's id.
MOST_PER_EVENT = 1000
#: An event's id is the number of its row times this, plus its place in the row.
EVENTS_PER_ROW = 10_000
#: How late a live worker may stop an attempt that overran before the attempt is reclaimed.
OVERRUN_MARGIN = timedelta(seconds=5)

#: The key of a call's name in the meta of a manual move. It identifies the call when it is sent again, and is not shown.
TOKEN = "token"
#: The unit of durations in events.
MILLISECOND = timedelta(milliseconds=1)


class DeadlineGuard(IntEnum):
    """Which jobs a statement may end. The statements have these numbers."""

    ANY = 0
    PASSED = 1
    NOT_PASSED = 2


_encode = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode


# -- JSON ---------------------------------------------------------------------------------------------------------------
def to_json(value: Any) -> str:
    return _encode(value).decode()


def read_json(text: str | None) -> Any:
    """Decode a column. A damaged one is returned as it is, so that people can see it."""
    if text is None:
        return None
    try:
        return from_json(text)
    except msgspec.DecodeError:
        return text


def failure_json(failure: Failure) -> str:
    encoded = {
        "code": failure.code,
        "message": failure.message,
        "class": failure.error_class.value,
        "detail": failure.detail,
        "fingerprint": failure.fingerprint,
        "gateway_status": failure.gateway_status,
    }
    if failure.traceback is not None:
        encoded["traceback"] = failure.traceback.key
    return to_json(encoded)


def read_failure(text: str | None, traceback: str | None = None) -> Failure | None:
    """Decode a failure. *traceback* is the text of the traceback that it refers to."""
    found = read_json(text)
    if found is None:
        return None
    return Failure(
        code=found["code"],
        message=found["message"],
        error_class=ErrorClass(found["class"]),
        detail=found["detail"],
        fingerprint=found["fingerprint"],
        gateway_status=found["gateway_status"],
        traceback=None if traceback is None else Traceback(found["traceback"], traceback),
    )


# -- meta of events -----------------------------------------------------------------------------------------------------
def some(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return *meta* without the names whose value is None."""
    return {name: value for name, value in meta.items() if value is not None}


def manual_meta(
    by: str,
    reason: str = "",
    token: str | None = None,
    edit: Edit | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Return the meta of a manual move: who, why, the edited arguments, the new priority, and the call's token."""
    edited = None if edit is None else list(edit.names)
    return some(
        {"by": by or None, "reason": reason or None, "edited": edited, "priority": priority, TOKEN: token}
    )


def shown(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return *meta* without the token, as users see it."""
    return {name: value for name, value in meta.items() if name != TOKEN}


def verb_of(verdict: Verdict) -> str:
    """Return the move that settles an attempt with this verdict."""
    match verdict:
        case Complete():
            return "complete"
        case Release():
            return "release"
        case RetryAfter() | Bury():
            return "fail"


def kind_of(verdict: Verdict) -> Kind:
    """Return the kind of event that settles an attempt with this verdict."""
    match verdict:
        case RetryAfter():
            return Kind.retry
        case Release():
            return Kind.snoozed if verdict.snoozed else Kind.released
        case Complete():
            return Kind.complete
        case Bury():
            return Kind.failed


def meta_of(settlement: Settlement) -> dict[str, Any]:
    """Return the meta of the event of a settlement."""
    meta: dict[str, Any] = {"duration_ms": settlement.duration // MILLISECOND, **cost_meta(settlement)}
    match settlement.verdict:
        case RetryAfter(delay, failure):
            meta |= {
                "error_code": failure.code,
                "gateway_http_status": failure.gateway_status,
                "delay_ms": delay // MILLISECOND,
            }
        case Bury(failure):
            meta |= {"error_code": failure.code, "gateway_http_status": failure.gateway_status}
        case Complete(gateway_status=status):
            meta["gateway_http_status"] = status
        case Release(_, reason, wait_reason=wait_reason):
            meta |= {"reason": reason, "wait_reason": wait_reason}
    return some(meta)


def completion_meta(settlement: Settlement, verdict: Complete) -> dict[str, Any]:
    """Return the same as `meta_of`, faster, for a completion."""
    meta: dict[str, Any] = {"duration_ms": settlement.duration // MILLISECOND}
    if verdict.gateway_status is not None:
        meta["gateway_http_status"] = verdict.gateway_status
    if settlement.cost != ORDINARY_COST:
        meta["cost"] = settlement.cost
    return meta


def cost_meta(settlement: Settlement) -> dict[str, Any]:
    """Return the part of the meta that tells what the attempt cost, which is nothing if that is ordinary."""
    return {} if settlement.cost == ORDINARY_COST else {"cost": settlement.cost}


def stored_cost(cost: float) -> float | None:
    """Return what is stored for *cost*: None for an ordinary one."""
    return None if cost == ORDINARY_COST else cost


def by_kind(settlements: Iterable[Settlement]) -> dict[Kind, list[Settlement]]:
    """Group settlements by the kind of their event: each group is one row."""
    groups: dict[Kind, list[Settlement]] = {}
    for settlement in settlements:
        groups.setdefault(kind_of(settlement.verdict), []).append(settlement)
    return groups


# -- errors and answers ----------------------------------------------------------------------------------------------------
def bad_cursor(after: str | None) -> UsageError:
    return UsageError(f"{after!r} is not a cursor; pass the `next` of the page before")


def read_cursor(after: str) -> int:
    """Decode a cursor that is a number. Raises `UsageError` for one that no store has made."""
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise bad_cursor(after)
    return int(after)


def not_cancellable(job_id: JobId, state: State) -> Conflict:
    return Conflict(f"job {job_id} is {state} already; only a queued or processing job can be cancelled")


def repeated(
    settlements: Sequence[Settlement], answers: dict[Lease, SettlementStatus]
) -> list[SettlementStatus]:
    """Return an answer for each settlement. If one call settles a lease twice, the second repeats the first."""
    rest = dict(answers)
    return [rest.pop(s.lease, SettlementStatus.REPEATED) for s in settlements]


def lost_failure(*, overran: bool) -> Failure:
    """Return why the lease of a job had expired that is retried manually."""
    return Failure.of("EXECUTION_TIMEOUT" if overran else "WORKER_LOST")


def key_is_taken(job_id: JobId, twin: str) -> Conflict:
    return Conflict(f"job {twin} holds the dedupe key of {job_id}; nothing was changed", twin=twin)


def no_dead_letter(job_id: JobId) -> Conflict:
    return Conflict(f"job {job_id} has no dead letter; look at its state")


# -- rows ---------------------------------------------------------------------------------------------------------------
#: The columns that `job_row` reads, without arguments and result. Of a result only the reference to its artifact is read.
_LIGHT = (
    "id, task, queue, owner, priority, state, generation, epoch, attempt, max_attempts, crashes, run_at, created_at, queued_at,"
    " started_at, finished_at, last_attempt_at, updated_at, deadline_at, expired_at, leased_by, error_code, error_message,"
    " last_failure, retry_type, manual_retry_count, tags, progress, key, NULL AS payload,"
    f" CASE WHEN substr(result, 1, {len(MARK)}) = '{MARK}' THEN result END AS result"
)


def job_columns(contents: bool, *others: str) -> str:
    """Return what to select from the view `jobs`. *others* are columns that one store has alone."""
    return "*" if contents else ", ".join([_LIGHT, *others])


V = TypeVar("V")


def value_of(kind: type[V], row: Row, **given: Any) -> V:
    """Return a row as a value of the dataclass *kind*: each field that is not *given* is the column of its name."""
    annotations: Mapping[str, str] = _annotations(cast(Any, kind))
    for name in annotations.keys() - given.keys():
        column = row[name]
        if annotations[name].startswith("datetime"):
            column = maybe_moment(column)
        given[name] = str(column) if annotations[name] == "JobId" else column
    return kind(**given)


@cache
def _annotations(kind: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in fields(kind)}


def job_row(row: Row, *, tags: Iterable[str], lease_expires_at: datetime | None) -> JobRow:
    """Return a row of the view `jobs` as a value."""
    result, artifact = split_result(row["result"])
    failure = read_json(row["last_failure"])
    if failure:
        at = failure["at"]  # in JSON a moment of PostgreSQL is text
        failure["at"] = datetime.fromisoformat(at) if isinstance(at, str) else moment(at)
    return value_of(
        JobRow,
        row,
        state=State(row["state"]),
        lease_expires_at=lease_expires_at,
        last_failure=failure,
        result=read_json(result),
        artifact=artifact,
        tags=tuple(tags),
        payload=read_json(row["payload"]),
        progress=read_json(row["progress"]),
        key=own_key(row["key"]),
    )


def expired_lease(row: Row, lane: Lane) -> Expired:
    facts = {name: row[name] for name in ("attempt", "max_attempts", "crashes", "max_crashes", "worker")}
    lease = Lease(JobId(str(row["job_id"])), row["epoch"])
    return Expired(lease=lease, lane=lane, overran=bool(row["overran"]), **facts)


def attempt(row: Row, job_id: JobId) -> Attempt:
    failure = read_failure(row["failure"], row["traceback"])
    logs = tuple(read_json(row["logs"]) or ())
    return value_of(Attempt, row, job_id=job_id, failure=failure, logs=logs)


def late_result(row: Row, job_id: JobId) -> LateResult:
    result, artifact = split_result(row["result"])
    return value_of(LateResult, row, job_id=job_id, result=read_json(result), artifact=artifact)
