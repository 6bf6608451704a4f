"""The shapes that every store gives to the same things: JSON, the words of events, rows as the values everyone sees.

The databases differ in how they keep a moment (SQLite: whole microseconds, PostgreSQL: timestamps), so whatever makes a
value of a row is given the function that makes moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from holdfast.domain.breaker import Breaker
from holdfast.domain.codes import ErrorClass
from holdfast.domain.concurrency_keys import own_key
from holdfast.domain.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterGroup,
    Edit,
    JobId,
    JobRow,
    LateResult,
    Lease,
    Settlement,
    WorkerRow,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.tracebacks import Traceback
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.artifacts import MARK, split_result
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import Conflict, UsageError

#: How many jobs one event row may speak of: the place in the row is part of an event's id.
MOST_PER_EVENT = 1000
#: An event's id is the number of its row times this, plus its place in the row.
EVENTS_PER_ROW = 10_000
#: How long a live worker may be late in stopping an attempt that overran, before the attempt is taken from it.
OVERRUN_MARGIN = timedelta(seconds=5)

#: In the meta of a person's move, for our own eyes: the name of the call, by which it is known when it is sent again.
TOKEN = "token"
#: What the durations in events are counted in.
MILLISECOND = timedelta(milliseconds=1)

_encode = msgspec.json.Encoder().encode
from_json = msgspec.json.Decoder().decode


# -- JSON ---------------------------------------------------------------------------------------------------------------
def to_json(value: Any) -> str:
    return _encode(value).decode()


def read_json(text: str | None) -> Any:
    """What is in a column; a damaged one is shown as it is, not hidden."""
    if text is None:
        return None
    try:
        return from_json(text)
    except msgspec.DecodeError:
        return text


def failure_json(failure: Failure) -> str:
    told = {
        "code": failure.code,
        "message": failure.message,
        "class": failure.error_class.value,
        "detail": failure.detail,
        "fingerprint": failure.fingerprint,
        "gateway_status": failure.gateway_status,
    }
    if failure.traceback is not None:
        told["traceback"] = failure.traceback.key
    return to_json(told)


def read_failure(text: str | None, traceback: str | None = None) -> Failure | None:
    """The failure in a column; *traceback* is the text of the one it refers to."""
    told = read_json(text)
    if told is None:
        return None
    return Failure(
        code=told["code"],
        message=told["message"],
        error_class=ErrorClass(told["class"]),
        detail=told["detail"],
        fingerprint=told["fingerprint"],
        gateway_status=told["gateway_status"],
        traceback=None if traceback is None else Traceback(told["traceback"], traceback),
    )


def breaker_json(breaker: Breaker) -> str:
    return to_json(breaker)


#: The other way round. A field that an older version did not write has its default.
breaker_of = msgspec.json.Decoder(Breaker).decode


# -- words of events ----------------------------------------------------------------------------------------------------
def some(meta: dict[str, Any]) -> dict[str, Any]:
    """What an event says: only what there is something to say of."""
    return {name: value for name, value in meta.items() if value is not None}


def said(
    by: str,
    reason: str = "",
    token: str | None = None,
    edit: Edit | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """Who decided a person's move, why if they said so, what it changed, and the name of the call if it has one."""
    edited = None if edit is None else list(edit.names)
    return some(
        {"by": by or None, "reason": reason or None, "edited": edited, "priority": priority, TOKEN: token}
    )


def shown(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What others are told of a move."""
    return {name: value for name, value in meta.items() if name != TOKEN}


def kind_of(verdict: Verdict) -> Kind:
    """What the event of this settlement is called."""
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
    """What the event of this settlement says."""
    meta: dict[str, Any] = {"duration_ms": settlement.duration // MILLISECOND}
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
    """Return what `meta_of` does for a completion; there are many of them."""
    meta: dict[str, Any] = {"duration_ms": settlement.duration // MILLISECOND}
    if verdict.gateway_status is not None:
        meta["gateway_http_status"] = verdict.gateway_status
    return meta


def by_kind(settlements: Iterable[Settlement]) -> dict[Kind, list[Settlement]]:
    """One list for each event row to be written."""
    groups: dict[Kind, list[Settlement]] = {}
    for settlement in settlements:
        groups.setdefault(kind_of(settlement.verdict), []).append(settlement)
    return groups


# -- refusals that every store words the same way -------------------------------------------------------------------------
def bad_cursor(after: str | None) -> UsageError:
    return UsageError(f"{after!r} is not a cursor; pass the `next` of the page before")


def read_cursor(after: str) -> int:
    """A cursor that is a number; made by us, but passed through anybody's hands."""
    if not after.isascii() or not after.isdigit() or len(after) > 18:
        raise bad_cursor(after)
    return int(after)


def not_cancellable(job_id: JobId, state: State) -> Conflict:
    return Conflict(f"job {job_id} is {state} already; only a queued or processing job can be cancelled")


def repeated(
    settlements: Sequence[Settlement], answers: dict[Lease, SettlementStatus]
) -> list[SettlementStatus]:
    """The answers where a lease is settled more than once in one call: the first counts, the others repeat it."""
    rest = dict(answers)
    return [rest.pop(s.lease, SettlementStatus.REPEATED) for s in settlements]


def lost_failure(*, overran: bool) -> Failure:
    """Why the lease of a job that a person retries had run out."""
    return Failure.of("EXECUTION_TIMEOUT" if overran else "WORKER_LOST")


def key_is_taken(job_id: JobId, twin: str) -> Conflict:
    return Conflict(f"job {twin} holds the dedupe key of {job_id}; nothing was changed", twin=twin)


def no_dead_letter(job_id: JobId) -> Conflict:
    return Conflict(f"job {job_id} has no dead letter; look at its state")


# -- rows ---------------------------------------------------------------------------------------------------------------
#: The columns that `job_row` reads, but for arguments and result: of a result only where it is kept.
_LIGHT = (
    "id, task, queue, owner, priority, state, generation, epoch, attempt, max_attempts, crashes, run_at, created_at, queued_at,"
    " started_at, finished_at, last_attempt_at, updated_at, deadline_at, expired_at, leased_by, error_code, error_message,"
    " last_failure, retry_type, manual_retry_count, tags, progress, key, NULL AS payload,"
    f" CASE WHEN substr(result, 1, {len(MARK)}) = '{MARK}' THEN result END AS result"
)


def job_columns(contents: bool, *others: str) -> str:
    """What to select from the view `jobs`; *others* are columns of one store only."""
    return "*" if contents else ", ".join([_LIGHT, *others])


class Row(Protocol):
    """A row of either driver: its columns by name."""

    def __getitem__(self, name: str, /) -> Any: ...


Moment = Callable[[Any], datetime]


def maybe(value: Any, moment: Moment) -> datetime | None:
    return None if value is None else moment(value)


def job_row(row: Row, moment: Moment, *, tags: Iterable[str], lease_expires_at: datetime | None) -> JobRow:
    """A row of the view `jobs`."""
    result, artifact = split_result(row["result"])
    failure = read_json(row["last_failure"])
    if failure:
        failure["at"] = moment(failure["at"])
    return JobRow(
        id=JobId(str(row["id"])),
        task=row["task"],
        queue=row["queue"],
        owner=row["owner"],
        priority=row["priority"],
        state=State(row["state"]),
        generation=row["generation"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        crashes=row["crashes"],
        run_at=moment(row["run_at"]),
        created_at=moment(row["created_at"]),
        queued_at=moment(row["queued_at"]),
        started_at=maybe(row["started_at"], moment),
        finished_at=maybe(row["finished_at"], moment),
        last_attempt_at=maybe(row["last_attempt_at"], moment),
        updated_at=moment(row["updated_at"]),
        deadline_at=maybe(row["deadline_at"], moment),
        expired_at=maybe(row["expired_at"], moment),
        leased_by=row["leased_by"],
        lease_expires_at=lease_expires_at,
        error_code=row["error_code"],
        error_message=row["error_message"],
        last_failure=failure,
        retry_type=row["retry_type"],
        manual_retry_count=row["manual_retry_count"],
        result=read_json(result),
        artifact=artifact,
        tags=tuple(tags),
        payload=read_json(row["payload"]),
        progress=read_json(row["progress"]),
        key=own_key(row["key"]),
    )


def worker_row(
    row: Row, moment: Moment, queues: Sequence[str] | None, expires_at: datetime | None = None
) -> WorkerRow:
    return WorkerRow(
        name=row["name"],
        started_at=moment(row["started_at"]),
        expires_at=expires_at or moment(row["expires_at"]),
        queues=None if queues is None else tuple(queues),
        leases=row["leases"],
        waiting=row["waiting"],
    )


def attempt(row: Row, moment: Moment, job_id: JobId) -> Attempt:
    return Attempt(
        job_id=job_id,
        epoch=row["epoch"],
        generation=row["generation"],
        attempt=row["attempt"],
        worker=row["worker"],
        started_at=moment(row["started_at"]),
        ended_at=maybe(row["ended_at"], moment),
        outcome=row["outcome"],
        failure=read_failure(row["failure"], row["traceback"]),
        logs=tuple(read_json(row["logs"]) or ()),
    )


def artifact(row: Row, moment: Moment) -> Artifact:
    return Artifact(
        job_id=JobId(str(row["job_id"])),
        epoch=row["epoch"],
        reference=row["reference"],
        name=row["name"],
        bytes=row["bytes"],
        at=moment(row["at"]),
    )


def dead_letter(row: Row, moment: Moment) -> DeadLetter:
    return DeadLetter(
        id=JobId(str(row["id"])),
        task=row["task"],
        queue=row["queue"],
        owner=row["owner"],
        code=row["code"],
        message=row["message"],
        detail=row["detail"],
        fingerprint=row["fingerprint"],
        attempts=row["attempts"],
        at=moment(row["at"]),
        payload=read_json(row["payload"]),
    )


def dead_letter_group(row: Row, moment: Moment) -> DeadLetterGroup:
    return DeadLetterGroup(
        fingerprint=row["fingerprint"],
        task=row["task"],
        code=row["code"],
        message=row["message"],
        count=row["count"],
        first_at=moment(row["first_at"]),
        last_at=moment(row["last_at"]),
        sample=JobId(str(row["sample"])),
    )


def late_result(row: Row, moment: Moment, job_id: JobId) -> LateResult:
    result, artifact = split_result(row["result"])
    return LateResult(
        job_id=job_id,
        epoch=row["epoch"],
        at=moment(row["at"]),
        reason=row["reason"],
        outcome=row["outcome"],
        result=read_json(result),
        artifact=artifact,
    )
