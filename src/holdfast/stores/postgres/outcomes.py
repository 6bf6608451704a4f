"""Settle attempts: complete their jobs, queue them again or fail them, or refuse it because the lease has ended.

One statement writes a whole group and decides by itself: it compares the lease, the state and the deadline. Only what no statement
has matched is read afterwards, to find out why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg

from holdfast.engine.ports import MoveNotice, SettlementStatus
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.jobs.job import ORDINARY_COST, JobId, Lease, Settlement
from holdfast.jobs.judgements import outcome_of
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.stores.encoding import (
    MILLISECOND,
    DeadlineGuard,
    by_kind,
    completion_meta,
    cost_meta,
    failure_json,
    meta_of,
    repeated,
    to_json,
    verb_of,
)
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.state_tables import CANCELLED, FAILED

#: The longest duration in the event of a completion, in milliseconds: the column is an int.
LONGEST_DURATION = 2**31 - 1


class Requeue(NamedTuple):
    """A job for `requeue`."""

    lease: Lease
    verdict: Verdict
    outcome: str
    crashes: int | None  #: crashes to add; None: reset to 0
    meta: dict[str, Any]


class End(NamedTuple):
    """A job for `end`. A job that is cancelled has no *failure*."""

    job_id: JobId
    failure: Failure | None
    meta: dict[str, Any]


class Ending(NamedTuple):
    """How a verb ends jobs."""

    state: int
    kind: Kind
    outcome: str


_ENDINGS: Mapping[str, Ending] = {
    "fail": Ending(FAILED, Kind.failed, "failed"),
    "reclaim": Ending(FAILED, Kind.failed, "reclaimed"),
    "time_out": Ending(FAILED, Kind.timed_out, "timed_out"),
    "cancel": Ending(CANCELLED, Kind.cancelled, "cancelled"),
}


async def settle(move: Move, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
    unique = {s.lease: s for s in reversed(settlements)}
    if len(unique) < len(settlements):
        return repeated(
            settlements, dict(zip(unique, await settle(move, list(unique.values())), strict=True))
        )
    applied: set[Lease] = set()
    completed = [s for s in settlements if isinstance(s.verdict, Complete)]
    requeued = [s for s in settlements if isinstance(s.verdict, (RetryAfter, Release))]
    buried = [s for s in settlements if isinstance(s.verdict, Bury)]
    if completed:
        applied |= await _complete(move, completed)
    if requeued:
        applied |= await _requeue_all(move, requeued)
    if buried:
        applied |= await _bury(move, buried)
    statuses: list[SettlementStatus] = []
    for s in settlements:
        if s.lease in applied:
            statuses.append(SettlementStatus.APPLIED)
        else:
            async with move.connection.transaction():
                statuses.append(await _settle_one(move, s))
    return statuses


# -- groups: return the leases that the statement matched -------------------------------------------------------------------
async def _complete(move: Move, settlements: Sequence[Settlement]) -> set[Lease]:
    rows = await move.run(
        "complete",
        [s.lease.job_id for s in settlements],
        [s.lease.epoch for s in settlements],
        [s.verdict.result for s in settlements],  # type: ignore[union-attr]
        [min(s.duration // MILLISECOND, LONGEST_DURATION) for s in settlements],
        _some([s.verdict.gateway_status for s in settlements]),  # type: ignore[union-attr]
        [min(s.waited // MILLISECOND, LONGEST_DURATION) for s in settlements],
        _some([None if s.cost == ORDINARY_COST else s.cost for s in settlements]),
    )
    applied = settlements
    if len(rows) < len(settlements):
        leases = _leases(rows)
        applied = [s for s in settlements if s.lease in leases]
    _free_keys(move, rows)
    if move.has_hooks:
        for s in applied:
            move.notice(Kind.complete, s.lease, s.attempt, completion_meta(s, s.verdict))  # type: ignore[arg-type]
    return {s.lease for s in applied}


def _some(values: list[Any]) -> list[Any] | None:
    """Return *values*, or None if all of them are None."""
    return None if values.count(None) == len(values) else values


async def _requeue_all(move: Move, settlements: Sequence[Settlement]) -> set[Lease]:
    leases: set[Lease] = set()
    for kind, group in by_kind(settlements).items():
        jobs = [Requeue(s.lease, s.verdict, outcome_of(s.verdict), None, meta_of(s)) for s in group]
        verb = verb_of(group[0].verdict)
        leases |= await requeue(move, verb, kind, jobs, any_deadline=False)
    return leases


async def requeue(
    move: Move, verb: str, kind: Kind, jobs: Sequence[Requeue], *, any_deadline: bool
) -> set[Lease]:
    """Move jobs from processing to queued as far as their leases hold, and return the leases of those that moved."""
    columns = [_requeue_columns(job.verdict, job.crashes) for job in jobs]
    rows = await move.run(
        f"requeue.{verb}",
        [job.lease.job_id for job in jobs],
        [job.lease.epoch for job in jobs],
        [delay for delay, _, _, _ in columns],
        [job.outcome for job in jobs],
        [failure for _, failure, _, _ in columns],
        [back for _, _, back, _ in columns],
        [crashes for _, _, _, crashes in columns],
        [to_json(job.meta) for job in jobs],
        int(kind),
        any_deadline,
    )
    _free_keys(move, rows)
    attempts = {_lease(row): row["attempt"] for row in rows}
    if move.has_hooks:
        for job in jobs:
            if job.lease in attempts:
                move.notice(kind, job.lease, attempts[job.lease], job.meta)
    return set(attempts)


def _requeue_columns(verdict: Verdict, crashes: int | None) -> tuple[timedelta, str | None, int, int | None]:
    """Return (delay, failure, attempts to give back, crashes to add) for a verdict that queues the job again."""
    match verdict:
        case RetryAfter(delay, failure):
            return delay, failure_json(failure), 0, crashes
        case Release(delay):
            return delay, None, 1, 0
    raise AssertionError(f"this verdict does not queue the job again: {verdict}")


async def _bury(move: Move, settlements: Sequence[Settlement]) -> set[Lease]:
    jobs = [End(s.lease.job_id, s.verdict.failure, meta_of(s)) for s in settlements]  # type: ignore[union-attr]
    epochs = [s.lease.epoch for s in settlements]
    async with move.connection.transaction():
        ended = await end(move, "fail", jobs, DeadlineGuard.NOT_PASSED, epochs=epochs)
        for s in settlements:
            if s.lease in ended:
                await move.forget_steps(s.lease.job_id, s.verdict.failure.forget)  # type: ignore[union-attr]
    return ended


async def end(
    move: Move,
    verb: str,
    jobs: Sequence[End],
    deadline: DeadlineGuard,
    *,
    epochs: Sequence[int] | None,
    crashes: int | None = None,
) -> set[Lease]:
    """Move jobs to failed or cancelled, and return the newest leases of those that moved.

    With *epochs* they move only under these leases. *crashes* are added; None resets them to 0.
    """
    state, kind, outcome = _ENDINGS[verb]
    failures = [job.failure for job in jobs]
    rows = await move.run(
        f"end.{verb}",
        [job.job_id for job in jobs],
        epochs,
        state,
        int(kind),
        outcome,
        int(deadline),
        crashes,
        [f.code if f else None for f in failures],
        [f.message if f else None for f in failures],
        [f.detail if f else None for f in failures],
        [f.fingerprint if f else None for f in failures],
        [failure_json(f) if f else None for f in failures],
        [to_json(job.meta) for job in jobs],
    )
    _free_keys(move, rows)
    metas = {job.job_id: job.meta for job in jobs}
    for row in rows:
        lease = _lease(row)
        move.notices.append(MoveNotice(kind, *lease, row["attempt"], metas[lease.job_id]))
    return _leases(rows)


def _lease(row: asyncpg.Record) -> Lease:
    return Lease(JobId(str(row["job_id"])), row["epoch"])


def _leases(rows: Iterable[asyncpg.Record]) -> set[Lease]:
    return {_lease(row) for row in rows}


def _free_keys(move: Move, rows: Iterable[asyncpg.Record]) -> None:
    move.freed.update(row["key"] for row in rows if row["key"] is not None)


# -- one by one ---------------------------------------------------------------------------------------------------------
async def _settle_one(move: Move, settlement: Settlement) -> SettlementStatus:
    """Settle what no group statement matched: a passed deadline, a repeated or a refused write."""
    lease = settlement.lease
    if not await time_out(move, [lease.job_id], epochs=[lease.epoch]):
        holds = "SELECT 1 FROM holdfast.lease WHERE job_id = $1 AND epoch = $2"
        if await move.connection.fetchval(holds, *lease):
            raise StoreUnavailable(
                f"job {lease.job_id} moved while it was being settled; the settlement is sent again"
            )
        complete = "SELECT 1 FROM holdfast.done WHERE job_id = $1 AND epoch = $2 AND state = 3"
        if await move.connection.fetchval(complete, *lease):
            return SettlementStatus.REPEATED
    return await _refuse(move, settlement)


async def time_out(move: Move, ids: Sequence[JobId], *, epochs: Sequence[int] | None = None) -> set[Lease]:
    """Fail those of these jobs whose deadline has passed, wherever they are, or with *epochs* only under these leases."""
    failure = Failure.of("TIMEOUT")
    jobs = [End(job_id, failure, {"error_code": failure.code}) for job_id in ids]
    return await end(move, "time_out", jobs, DeadlineGuard.PASSED, epochs=epochs, crashes=0)


# -- refusals -------------------------------------------------------------------------------------------------------------
async def _refuse(move: Move, settlement: Settlement) -> SettlementStatus:
    """Return why a settlement has changed nothing: the attempt's record has the answer."""
    lease = settlement.lease
    row = await move.connection.fetchrow(
        "SELECT outcome, attempt FROM holdfast.attempt WHERE job_id = $1 AND epoch = $2", *lease
    )
    if row is None:
        return SettlementStatus.STALE  # this lease never existed
    outcome, attempt = row
    if outcome in ("timed_out", "cancelled"):
        return await store_late_result(move, settlement._replace(attempt=attempt), outcome)
    if outcome != "reclaimed":
        return SettlementStatus.REPEATED
    await refuse_once(move, lease)
    return SettlementStatus.STALE


async def refuse_once(move: Move, lease: Lease) -> None:
    """Record, once, that a worker tried to write under a lease that was reclaimed."""
    attempt = await move.connection.fetchval(
        "UPDATE holdfast.attempt SET refused = true WHERE job_id = $1 AND epoch = $2 AND outcome = 'reclaimed' AND NOT refused"
        " RETURNING attempt", *lease,
    )  # fmt: skip
    if attempt is not None:
        await move.record_one(Kind.stale_write, lease, attempt, {})


async def store_late_result(move: Move, late: Settlement, reason: str) -> SettlementStatus:
    """Store what an attempt reported after its end, once."""
    lease, verdict = late.lease, late.verdict
    result = verdict.result if isinstance(verdict, Complete) else None
    outcome = outcome_of(verdict)
    added = await move.connection.fetchval(
        "INSERT INTO holdfast.late_result (job_id, epoch, at, reason, outcome, result)"
        " VALUES ($1, $2, holdfast.clock(), $3, $4, $5) ON CONFLICT DO NOTHING RETURNING epoch",
        *lease, reason, outcome, result,
    )  # fmt: skip
    if added is not None:
        await move.record_one(Kind.late_result, lease, late.attempt, {"outcome": outcome, **cost_meta(late)})
    return SettlementStatus.LATE


# -- writes under a lease: they raise `LeaseLost` if it is not current ------------------------------------------------------
async def complete_in(move: Move, settlement: Settlement) -> None:
    if not await _complete(move, [settlement]):
        raise LeaseLost(*settlement.lease)


async def record_step(move: Move, lease: Lease, name: str, result: str) -> None:
    if not await move.run("record_step", *lease, name, result):
        raise LeaseLost(*lease)


async def record_progress(move: Move, lease: Lease, percent: float, message: str) -> None:
    written = await move.connection.fetchval(
        "UPDATE holdfast.lease SET progress = $3::jsonb WHERE job_id = $1 AND epoch = $2 RETURNING epoch",
        *lease,
        to_json({"percent": percent, "message": message}),
    )
    if written is None:
        raise LeaseLost(*lease)
