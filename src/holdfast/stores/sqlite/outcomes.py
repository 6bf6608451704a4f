"""An attempt's end: complete, back into line, buried; or refused, because its lease had ended before.

The bulk of the traffic is handled by one statement per batch (JSON in); whatever a batch statement did not match is
looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.domain.job import Lease, Settlement
from holdfast.domain.judgements import outcome_of
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost, StoreError
from holdfast.stores.encoding import (
    MILLISECOND,
    by_kind,
    completion_meta,
    failure_json,
    meta_of,
    repeated,
    said,
    to_json,
)
from holdfast.stores.sqlite.move import Found, Move
from holdfast.stores.sqlite.phases import COMPLETE, PROCESSING
from holdfast.stores.sqlite.times import span

#: [uid, epoch, place of its failure, delay]
Line = tuple[Any, ...]


def settle(move: Move, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
    firsts = {s.lease: s for s in reversed(settlements)}
    if len(firsts) < len(settlements):
        return repeated(settlements, dict(zip(firsts, settle(move, list(firsts.values())), strict=True)))
    answers: dict[Lease, SettlementStatus] = {}
    completed = [s for s in settlements if isinstance(s.verdict, Complete)]
    requeued = [s for s in settlements if isinstance(s.verdict, (RetryAfter, Release))]
    if completed:
        answers |= _complete(move, completed)
    if requeued:
        answers |= _requeue(move, requeued)
    return [answers[s.lease] if s.lease in answers else _settle_one(move, s) for s in settlements]


# -- batches: those that are not in the answer were not matched ------------------------------------------------------------
def _complete(move: Move, settlements: Sequence[Settlement]) -> dict[Lease, SettlementStatus]:
    seq = move.next_seq()
    items = to_json([(*s.lease, s.verdict.result) for s in settlements])  # type: ignore[union-attr]
    matched = move.run("complete", settled=items, now=move.now, seq=seq).rowcount
    marked = "SELECT uid, epoch FROM holdfast_job WHERE uid IN (SELECT value FROM json_each(?)) AND settle_event = ?"
    applied = _matched(move, settlements, matched, marked, seq)
    move.record(
        seq,
        Kind.complete,
        [(*s.lease, s.attempt, completion_meta(s, s.verdict)) for s in applied],  # type: ignore[arg-type]
    )
    return {s.lease: SettlementStatus.APPLIED for s in applied}


def _requeue(move: Move, settlements: Sequence[Settlement]) -> dict[Lease, SettlementStatus]:
    answers: dict[Lease, SettlementStatus] = {}
    for kind, group in by_kind(settlements).items():
        seq = move.next_seq()
        told = FailureTexts(move.now)
        lines = [told.line(s.lease, s.verdict) for s in group]
        way = requeue_columns(group[0].verdict, outcome_of(group[0].verdict), None)
        matched = _into_line(move, way, lines, told, seq, any_deadline=False)
        marked = (
            "SELECT j.uid, a.epoch FROM holdfast_job j JOIN holdfast_attempt a ON a.job = j.id"
            " WHERE j.uid IN (SELECT value FROM json_each(?)) AND a.settle_event = ?"
        )
        applied = _matched(move, group, matched, marked, seq)
        move.record(
            seq, kind, [(*s.lease, s.attempt or _attempt_of(move, s.lease), meta_of(s)) for s in applied]
        )
        answers |= {s.lease: SettlementStatus.APPLIED for s in applied}
    return answers


def _attempt_of(move: Move, lease: Lease) -> int:
    """Return the attempt of a lease whose claim was never answered: the caller that releases it does not know it."""
    sql = "SELECT a.attempt FROM holdfast_attempt a JOIN holdfast_job j ON j.id = a.job WHERE j.uid = ? AND a.epoch = ?"
    attempt: int = move.connection.execute(sql, lease).fetchone()[0]
    return attempt


def _matched(
    move: Move, settlements: Sequence[Settlement], matched: int, marked: str, seq: int
) -> Sequence[Settlement]:
    """Those that a batch statement matched; which ones, where not all, is told by the rows it *marked* with *seq*."""
    if not matched or matched == len(settlements):
        return settlements[:matched]
    uids = to_json([s.lease.job_id for s in settlements])
    leases = {Lease(uid, epoch) for uid, epoch in move.connection.execute(marked, (uids, seq))}
    return [s for s in settlements if s.lease in leases]


class Way(NamedTuple):
    """How the jobs of one batch go back into line: the same for all of them."""

    outcome: str
    back: int  #: attempts given back
    crashes: int | None  #: to add; None: back to 0


def requeue_columns(verdict: Verdict, outcome: str, crashes: int | None) -> Way:
    match verdict:
        case RetryAfter():
            return Way(outcome, 0, crashes)
        case Release():
            return Way(outcome, 1, 0)
    raise AssertionError(f"not a way back into line: {verdict}")


def _into_line(
    move: Move, way: Way, lines: Sequence[Line], told: FailureTexts, seq: int | None, *, any_deadline: bool
) -> int:
    """Processing → queued for these lines of `told`, as far as their leases hold; how many."""
    given = {"settled": to_json(lines), "now": move.now, "any_deadline": any_deadline}
    ended = move.run(
        "end_attempt", outcome=way.outcome, failures=to_json(told.failures), seq=seq, **given
    ).rowcount
    if ended:
        move.run("requeue", back=way.back, crashes=way.crashes, told=to_json(told.briefly), **given)
    return ended


class FailureTexts:
    """The failures that a batch of lines speaks of, each told once: in a storm, most jobs fail for one cause."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._places: dict[int, int] = {}
        self._kept: list[Failure] = []  # so that no other failure gets the same id()
        self.failures: list[str] = []
        self.briefly: list[str] = []  #: as the job's own row keeps it, up to the attempt

    def line(self, lease: Lease, verdict: Verdict) -> Line:
        """The item of this job for `end_attempt` and `requeue`."""
        match verdict:
            case RetryAfter(delay, failure):
                return (*lease, self.place(failure), span(delay))
            case Release(delay):
                return (*lease, None, span(delay))
        raise AssertionError(f"not a way back into line: {verdict}")

    def place(self, failure: Failure) -> int:
        place = self._places.get(id(failure))
        if place is None:
            place = self._places[id(failure)] = len(self._kept)
            self._kept.append(failure)
            self.failures.append(failure_json(failure))
            brief = to_json({"code": failure.code, "message": failure.message, "at": self._now})
            self.briefly.append(brief.removesuffix("}") + ',"attempt":')
        return place


# -- one by one ---------------------------------------------------------------------------------------------------------
def _settle_one(move: Move, settlement: Settlement) -> SettlementStatus:
    """What no batch statement matched: a burial, a passed deadline, a repeated or a refused write."""
    lease, verdict = settlement.lease, settlement.verdict
    job = move.look(lease.job_id)
    if job is None:
        return SettlementStatus.STALE
    if job.phase == COMPLETE and job.lease == lease:
        return SettlementStatus.REPEATED if job.settle_event is not None else SettlementStatus.STALE
    if job.phase != PROCESSING or job.lease != lease:
        return _refuse(move, job, lease, verdict)
    if job.deadline_at is not None and move.now > job.deadline_at:
        time_out_one(move, job)
        return store_late_result(move, job, lease, job.attempt, "timed_out", verdict)
    if isinstance(verdict, Bury):
        end_attempt(move, job, "failed", verdict.failure)
        bury(move, job, verdict.failure, Kind.failed, duration=settlement.duration)
        return SettlementStatus.APPLIED
    # There is one writer: this cannot happen.
    raise StoreError(f"job {lease.job_id} matched its lease one moment and not the next")


def reclaim_one(move: Move, job: Found, verdict: RetryAfter, crashes: int | None) -> None:
    """Take the job from its holder and put it back into line, whatever its deadline."""
    told = FailureTexts(move.now)
    way = requeue_columns(verdict, "reclaimed", crashes)
    _into_line(move, way, [told.line(job.lease, verdict)], told, None, any_deadline=True)


def time_out_one(move: Move, job: Found) -> None:
    failure = Failure.of("TIMEOUT")
    end_attempt(move, job, "timed_out", failure)
    bury(move, job, failure, Kind.timed_out, crashes=0)


def end_attempt(move: Move, job: Found, outcome: str, failure: Failure | None) -> None:
    """Write down the attempt that ends, if one is under way, whatever its deadline."""
    told = FailureTexts(move.now)
    line = (*job.lease, told.place(failure) if failure else None)
    move.run(
        "end_attempt",
        settled=to_json([line]),
        outcome=outcome,
        failures=to_json(told.failures),
        now=move.now,
        seq=None,
        any_deadline=True,
    )


def bury(
    move: Move,
    job: Found,
    failure: Failure,
    kind: Kind,
    *,
    crashes: int | None = None,
    duration: timedelta | None = None,
    by: str = "",
) -> None:
    """→ failed, with a dead letter. *crashes* to add; None: back to 0."""
    told = {"code": failure.code, "message": failure.message, "at": move.now, "attempt": job.attempt}
    move.run(
        "bury",
        id=job.number,
        now=move.now,
        code=failure.code,
        message=failure.message,
        # A deadline is nobody's failure: the last one stays what it was.
        last_failure=None if kind is Kind.timed_out else to_json(told),
        crashes=crashes,
    )
    move.run(
        "dead_letter", id=job.number, now=move.now, code=failure.code, message=failure.message, detail=failure.detail,
        fingerprint=failure.fingerprint, attempts=job.attempt,
    )  # fmt: skip
    move.forget_steps(job.number, failure.forget)
    move.record_one(
        kind, job.lease, job.attempt, error_code=failure.code, gateway_http_status=failure.gateway_status,
        duration_ms=duration // MILLISECOND if duration is not None else None, **said(by),
    )  # fmt: skip


# -- refusals -------------------------------------------------------------------------------------------------------------
def _refuse(move: Move, job: Found, lease: Lease, verdict: Verdict) -> SettlementStatus:
    """The lease had ended before: the attempt's own record says how, and so what this write is."""
    row = move.connection.execute(
        "SELECT outcome, attempt FROM holdfast_attempt WHERE job = ? AND epoch = ?", (job.number, lease.epoch)
    ).fetchone()
    if row is None:
        return SettlementStatus.STALE  # this lease was never given out
    outcome, attempt = row
    if outcome in ("timed_out", "cancelled"):
        return store_late_result(move, job, lease, attempt, outcome, verdict)
    if outcome != "reclaimed":
        return SettlementStatus.REPEATED
    refuse_once(move, lease)
    return SettlementStatus.STALE


def refuse_once(move: Move, lease: Lease) -> None:
    """Put on record, once, that the holder of a reclaimed lease tried to write."""
    row = move.connection.execute(
        "UPDATE holdfast_attempt SET refused = 1 WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?) AND epoch = ?"
        " AND outcome = 'reclaimed' AND NOT refused RETURNING attempt", lease
    ).fetchone()  # fmt: skip
    if row is not None:
        move.record_one(Kind.stale_write, lease, row[0])


def store_late_result(
    move: Move, job: Found, lease: Lease, attempt: int, reason: str, verdict: Verdict
) -> SettlementStatus:
    result = verdict.result if isinstance(verdict, Complete) else None
    outcome = outcome_of(verdict)
    added = move.connection.execute(
        "INSERT INTO holdfast_late_result (job, epoch, at, reason, outcome, result) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (job.number, lease.epoch, move.now, reason, outcome, result),
    ).rowcount
    if added:
        move.record_one(Kind.late_result, lease, attempt, outcome=outcome)
    return SettlementStatus.LATE


# -- under a lease, while it holds ------------------------------------------------------------------------------------------
def complete_in(move: Move, lease: Lease, end: Complete, duration: timedelta) -> None:
    job = move.look(lease.job_id)
    attempt = job.attempt if job is not None else 0  # for the event: the caller knows only its lease
    if not _complete(move, [Settlement(lease, end, attempt, duration)]):
        raise LeaseLost(*lease)


def record_step(move: Move, lease: Lease, name: str, result: str) -> None:
    move.connection.execute(
        "INSERT OR REPLACE INTO holdfast_step (job, name, result, at) VALUES (?, ?, ?, ?)",
        (_current(move, lease), name, result, move.now),
    )


def record_progress(move: Move, lease: Lease, percent: float, message: str) -> None:
    told = to_json({"percent": percent, "message": message})
    move.connection.execute(
        "UPDATE holdfast_job AS job SET progress = ? WHERE id = ?", (told, _current(move, lease))
    )


def _current(move: Move, lease: Lease) -> int:
    """The number of the job that *lease* still holds, or `LeaseLost`."""
    row = move.connection.execute(
        "SELECT id FROM holdfast_job WHERE uid = ? AND epoch = ? AND phase = 2", lease
    ).fetchone()
    if row is None:
        raise LeaseLost(*lease)
    return int(row[0])
