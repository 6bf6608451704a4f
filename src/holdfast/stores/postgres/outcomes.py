"""An attempt's end: complete, back into line, buried; or refused, because its lease had ended before.

The bulk of the traffic is handled by one statement per batch; whatever it did not match is looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import asyncpg

from holdfast.domain.job import JobId, Lease, Settlement
from holdfast.domain.judgements import outcome_of
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.ports import MoveNotice, SettlementStatus
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.stores.encoding import (
    MILLISECOND,
    by_kind,
    completion_meta,
    failure_json,
    meta_of,
    repeated,
    to_json,
)
from holdfast.stores.postgres.move import Move

FAILED, CANCELLED = 4, 5  # the states `end` may end in
ANY, PASSED, NOT_PASSED = 0, 1, 2  # how `end` looks at the deadline
LONGEST_TOLD = 2**31 - 1  # in the event of a completion: 24 days, which the narrow column can hold


class Back(NamedTuple):
    """One line for `requeue`."""

    lease: Lease
    verdict: Verdict
    outcome: str
    crashes: int | None  #: to add; None: back to 0
    meta: dict[str, Any]


class End(NamedTuple):
    """One line for `end`. Without a *failure* nobody failed: a person has cancelled."""

    job_id: JobId
    failure: Failure | None
    meta: dict[str, Any]


async def settle(move: Move, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
    firsts = {s.lease: s for s in reversed(settlements)}
    if len(firsts) < len(settlements):
        return repeated(
            settlements, dict(zip(firsts, await settle(move, list(firsts.values())), strict=True))
        )
    answers: dict[Lease, SettlementStatus] = {}
    completed = [s for s in settlements if isinstance(s.verdict, Complete)]
    requeued = [s for s in settlements if isinstance(s.verdict, (RetryAfter, Release))]
    buried = [s for s in settlements if isinstance(s.verdict, Bury)]
    if completed:
        answers |= await _complete(move, completed)
    if requeued:
        answers |= await _requeue(move, requeued)
    if buried:
        answers |= await _bury(move, buried)
    for s in settlements:
        if s.lease not in answers:
            async with move.connection.transaction():
                answers[s.lease] = await _settle_one(move, s)
    return [answers[s.lease] for s in settlements]


# -- batches: those that are not in the answer were not matched ------------------------------------------------------------
async def _complete(move: Move, settlements: Sequence[Settlement]) -> dict[Lease, SettlementStatus]:
    rows = await move.run(
        "complete",
        [s.lease.job_id for s in settlements],
        [s.lease.epoch for s in settlements],
        [s.verdict.result for s in settlements],  # type: ignore[union-attr]
        [min(s.duration // MILLISECOND, LONGEST_TOLD) for s in settlements],
        _statuses(settlements),
    )
    applied = settlements
    if len(rows) < len(settlements):
        done = _leases(rows)
        applied = [s for s in settlements if s.lease in done]
    move.freed.update(row[2] for row in rows if row[2] is not None)
    if move.telling:
        for s in applied:
            move.tell(Kind.complete, s.lease, s.attempt, completion_meta(s, s.verdict))  # type: ignore[arg-type]
    return {s.lease: SettlementStatus.APPLIED for s in applied}


def _statuses(settlements: Sequence[Settlement]) -> list[int | None] | None:
    """Return what the services behind these completions answered; None where no handler has said it."""
    found = [s.verdict.gateway_status for s in settlements]  # type: ignore[union-attr]
    return None if found.count(None) == len(found) else found


async def _requeue(move: Move, settlements: Sequence[Settlement]) -> dict[Lease, SettlementStatus]:
    answers: dict[Lease, SettlementStatus] = {}
    for kind, group in by_kind(settlements).items():
        lines = [Back(s.lease, s.verdict, outcome_of(s.verdict), None, meta_of(s)) for s in group]
        done = await into_line(move, kind, lines, any_deadline=False)
        answers |= dict.fromkeys(done, SettlementStatus.APPLIED)
    return answers


async def into_line(move: Move, kind: Kind, lines: Sequence[Back], *, any_deadline: bool) -> set[Lease]:
    """Processing → queued, as far as the leases hold; those that did."""
    ways = [_way_back(line.verdict, line.crashes) for line in lines]
    rows = await move.run(
        "requeue",
        [line.lease.job_id for line in lines],
        [line.lease.epoch for line in lines],
        [delay for delay, _, _, _ in ways],
        [line.outcome for line in lines],
        [failure for _, failure, _, _ in ways],
        [back for _, _, back, _ in ways],
        [crashes for _, _, _, crashes in ways],
        [to_json(line.meta) for line in lines],
        int(kind),
        any_deadline,
    )
    move.freed.update(row[2] for row in rows if row[2] is not None)
    done = _leases(rows)
    if move.telling:
        attempts = {Lease(JobId(str(row[0])), row[1]): row[3] for row in rows}
        for line in lines:
            if line.lease in done:
                move.tell(kind, line.lease, attempts[line.lease], line.meta)
    return done


def _way_back(verdict: Verdict, crashes: int | None) -> tuple[timedelta, str | None, int, int | None]:
    """(delay, failure, attempts given back, crashes to add) of a verdict that puts the job back into line."""
    match verdict:
        case RetryAfter(delay, failure):
            return delay, failure_json(failure), 0, crashes
        case Release(delay):
            return delay, None, 1, 0
    raise AssertionError(f"not a way back into line: {verdict}")


async def _bury(move: Move, settlements: Sequence[Settlement]) -> dict[Lease, SettlementStatus]:
    lines = [End(s.lease.job_id, s.verdict.failure, meta_of(s)) for s in settlements]  # type: ignore[union-attr]
    epochs = [s.lease.epoch for s in settlements]
    async with move.connection.transaction():
        ended = await end(move, lines, FAILED, Kind.failed, "failed", NOT_PASSED, epochs=epochs)
        for s in settlements:
            if s.lease in ended:
                await move.forget_steps(s.lease.job_id, s.verdict.failure.forget)  # type: ignore[union-attr]
    return {s.lease: SettlementStatus.APPLIED for s in settlements if s.lease in ended}


async def end(
    move: Move,
    lines: Sequence[End],
    state: int,
    kind: Kind,
    outcome: str,
    deadline: int,
    *,
    epochs: Sequence[int] | None,
    crashes: int | None = None,
) -> set[Lease]:
    """End jobs wherever they are (or, with *epochs*, only under these leases); those that were ended."""
    failures = [line.failure for line in lines]
    rows = await move.run(
        "end",
        [line.job_id for line in lines],
        epochs,
        state,
        int(kind),
        outcome,
        deadline,
        crashes,
        [f.code if f else None for f in failures],
        [f.message if f else None for f in failures],
        [f.detail if f else None for f in failures],
        [f.fingerprint if f else None for f in failures],
        [failure_json(f) if f else None for f in failures],
        [to_json(line.meta) for line in lines],
    )
    move.freed.update(row[3] for row in rows if row[3] is not None)
    metas = {line.job_id: line.meta for line in lines}
    move.told += [MoveNotice(kind, job := JobId(str(row[0])), row[1], row[2], metas[job]) for row in rows]
    return _leases(rows)


def _leases(rows: Sequence[asyncpg.Record]) -> set[Lease]:
    return {Lease(JobId(str(row[0])), row[1]) for row in rows}


# -- one by one ---------------------------------------------------------------------------------------------------------
async def _settle_one(move: Move, settlement: Settlement) -> SettlementStatus:
    """What no batch statement matched: a passed deadline, a repeated or a refused write."""
    lease = settlement.lease
    held = "SELECT 1 FROM holdfast.lease WHERE job_id = $1 AND epoch = $2"
    if await move.connection.fetchval(held, *lease) and not await time_out(
        move, [lease.job_id], epochs=[lease.epoch]
    ):
        raise StoreUnavailable(
            f"job {lease.job_id} moved while it was being settled; the settlement is sent again"
        )
    complete = "SELECT 1 FROM holdfast.done WHERE job_id = $1 AND epoch = $2 AND state = 3"
    if await move.connection.fetchval(complete, *lease):
        return SettlementStatus.REPEATED
    return await _refuse(move, lease, settlement.verdict)


async def time_out(move: Move, ids: Sequence[JobId], *, epochs: Sequence[int] | None = None) -> set[Lease]:
    """→ failed(TIMEOUT), for those whose deadline has passed."""
    failure = Failure.of("TIMEOUT")
    lines = [End(job_id, failure, {"error_code": failure.code}) for job_id in ids]
    return await end(move, lines, FAILED, Kind.timed_out, "timed_out", PASSED, epochs=epochs, crashes=0)


# -- refusals -------------------------------------------------------------------------------------------------------------
async def _refuse(move: Move, lease: Lease, verdict: Verdict) -> SettlementStatus:
    """The lease had ended before: the attempt's own record says how, and so what this write is."""
    row = await move.connection.fetchrow(
        "SELECT outcome, attempt FROM holdfast.attempt WHERE job_id = $1 AND epoch = $2", *lease
    )
    if row is None:
        return SettlementStatus.STALE  # this lease was never given out
    outcome, attempt = row
    if outcome in ("timed_out", "cancelled"):
        return await store_late_result(move, lease, attempt, outcome, verdict)
    if outcome != "reclaimed":
        return SettlementStatus.REPEATED
    await refuse_once(move, lease)
    return SettlementStatus.STALE


async def refuse_once(move: Move, lease: Lease) -> None:
    """Put on record, once, that the holder of a reclaimed lease tried to write."""
    attempt = await move.connection.fetchval(
        "UPDATE holdfast.attempt SET refused = true WHERE job_id = $1 AND epoch = $2 AND outcome = 'reclaimed' AND NOT refused"
        " RETURNING attempt", *lease,
    )  # fmt: skip
    if attempt is not None:
        await move.record_one(Kind.stale_write, lease, attempt, {})


async def store_late_result(
    move: Move, lease: Lease, attempt: int, reason: str, verdict: Verdict
) -> SettlementStatus:
    result = verdict.result if isinstance(verdict, Complete) else None
    outcome = outcome_of(verdict)
    added = await move.connection.fetchval(
        "INSERT INTO holdfast.late_result (job_id, epoch, at, reason, outcome, result)"
        " VALUES ($1, $2, holdfast.clock(), $3, $4, $5) ON CONFLICT DO NOTHING RETURNING epoch",
        *lease, reason, outcome, result,
    )  # fmt: skip
    if added is not None:
        await move.record_one(Kind.late_result, lease, attempt, {"outcome": outcome})
    return SettlementStatus.LATE


# -- under a lease, while it holds ------------------------------------------------------------------------------------------
async def complete_in(move: Move, lease: Lease, end: Complete, duration: timedelta) -> None:
    held = "SELECT attempt FROM holdfast.lease WHERE job_id = $1 AND epoch = $2"
    attempt = await move.connection.fetchval(held, *lease) if move.telling else 0
    if not await _complete(move, [Settlement(lease, end, attempt or 0, duration)]):
        raise LeaseLost(*lease)


async def record_step(move: Move, lease: Lease, name: str, result: str) -> None:
    if not await move.run("record_step", *lease, name, result):
        raise LeaseLost(*lease)


async def record_progress(move: Move, lease: Lease, percent: float, message: str) -> None:
    held = await move.connection.fetchval(
        "UPDATE holdfast.lease SET progress = $3::jsonb WHERE job_id = $1 AND epoch = $2 RETURNING epoch",
        *lease,
        to_json({"percent": percent, "message": message}),
    )
    if held is None:
        raise LeaseLost(*lease)
