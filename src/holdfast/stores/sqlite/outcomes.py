"""Settle attempts: complete their jobs, queue them again or fail them, or refuse it because the lease has ended.

Completions and retries are written by one statement for the whole group, with JSON parameters. Every statement decides by
itself: it compares the lease, the state and the deadline. Only what no statement has matched is read afterwards, to find out why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.engine.ports import SettlementStatus
from holdfast.errors import LeaseLost, StoreError
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
    stored_cost,
    to_json,
    verb_of,
)
from holdfast.stores.sqlite.facts import end_facts
from holdfast.stores.sqlite.move import Found, Move
from holdfast.stores.sqlite.phases import COMPLETE, PROCESSING
from holdfast.stores.sqlite.times import span

#: An attempt in the JSON parameter of a statement: uid, epoch, place of its failure, delay, cost.
Item = tuple[Any, ...]


def settle(move: Move, settlements: Sequence[Settlement]) -> list[SettlementStatus]:
    unique = {s.lease: s for s in reversed(settlements)}
    if len(unique) < len(settlements):
        return repeated(settlements, dict(zip(unique, settle(move, list(unique.values())), strict=True)))
    applied: set[Lease] = set()
    completed = [s for s in settlements if isinstance(s.verdict, Complete)]
    requeued = [s for s in settlements if isinstance(s.verdict, (RetryAfter, Release))]
    if completed:
        applied |= _complete(move, completed)
    if requeued:
        applied |= _requeue_all(move, requeued)
    return [SettlementStatus.APPLIED if s.lease in applied else _settle_one(move, s) for s in settlements]


# -- groups: return the leases that the statement matched -------------------------------------------------------------------
def _complete(move: Move, settlements: Sequence[Settlement]) -> set[Lease]:
    seq = move.next_seq()
    items = to_json([(*s.lease, s.verdict.result, stored_cost(s.cost)) for s in settlements])  # type: ignore[union-attr]
    matched = move.run("complete", settled=items, now=move.now, seq=seq).rowcount
    marked = "SELECT uid, epoch FROM holdfast_job WHERE uid IN (SELECT value FROM json_each(?)) AND settle_event = ?"
    applied = _matched(move, settlements, matched, marked, seq)
    moves = [(*s.lease, s.attempt, completion_meta(s, s.verdict)) for s in applied]  # type: ignore[arg-type]
    totals = [(s.waited + s.duration) // MILLISECOND for s in applied]
    move.record(seq, Kind.complete, moves, facts=end_facts(moves, _lanes(move, applied), totals))
    return {s.lease for s in applied}


def _lanes(move: Move, settlements: Sequence[Settlement]) -> list[int]:
    """Return the number of the lane of each settled job."""
    if any(s.lane is None for s in settlements):
        return move.lanes_of([s.lease.job_id for s in settlements])
    return [move.lanes.number(move.connection, s.lane) for s in settlements]  # type: ignore[arg-type]


def _requeue_all(move: Move, settlements: Sequence[Settlement]) -> set[Lease]:
    leases: set[Lease] = set()
    for kind, group in by_kind(settlements).items():
        seq = move.next_seq()
        texts = FailureTexts(move.now)
        items = [texts.item(s.lease, s.verdict, s.cost) for s in group]
        columns = requeue_columns(group[0].verdict, outcome_of(group[0].verdict), None)
        matched = _requeue(move, columns, items, texts, seq, DeadlineGuard.NOT_PASSED)
        marked = (
            "SELECT j.uid, a.epoch FROM holdfast_job j JOIN holdfast_attempt a ON a.job = j.id"
            " WHERE j.uid IN (SELECT value FROM json_each(?)) AND a.settle_event = ?"
        )
        applied = _matched(move, group, matched, marked, seq)
        moves = [(*s.lease, s.attempt or _attempt_of(move, s.lease), meta_of(s)) for s in applied]
        move.record(seq, kind, moves, facts=end_facts(moves, _lanes(move, applied)))
        leases |= {s.lease for s in applied}
    return leases


def _attempt_of(move: Move, lease: Lease) -> int:
    """Return the number of an ended attempt. A caller that releases a claim whose answer was lost does not know it."""
    sql = "SELECT a.attempt FROM holdfast_attempt a JOIN holdfast_job j ON j.id = a.job WHERE j.uid = ? AND a.epoch = ?"
    attempt: int = move.connection.execute(sql, lease).fetchone()[0]
    return attempt


def _matched(
    move: Move, settlements: Sequence[Settlement], matched: int, marked: str, seq: int
) -> Sequence[Settlement]:
    """Return the settlements that a statement has matched. If not all, the query *marked* finds the rows that have *seq*."""
    if not matched or matched == len(settlements):
        return settlements[:matched]
    uids = to_json([s.lease.job_id for s in settlements])
    leases = {Lease(uid, epoch) for uid, epoch in move.connection.execute(marked, (uids, seq))}
    return [s for s in settlements if s.lease in leases]


class RequeueColumns(NamedTuple):
    """What `end_attempt` and `requeue` write for every job of a group."""

    verb: str
    outcome: str
    back: int  #: attempts to give back
    crashes: int | None  #: crashes to add; None: reset to 0


def requeue_columns(verdict: Verdict, outcome: str, crashes: int | None) -> RequeueColumns:
    match verdict:
        case RetryAfter():
            verb = "reclaim" if outcome == "reclaimed" else verb_of(verdict)
            return RequeueColumns(verb, outcome, 0, crashes)
        case Release():
            return RequeueColumns(verb_of(verdict), outcome, 1, 0)
    raise AssertionError(f"this verdict does not queue the job again: {verdict}")


def _requeue(
    move: Move,
    columns: RequeueColumns,
    items: Sequence[Item],
    texts: FailureTexts,
    seq: int | None,
    deadline: DeadlineGuard,
) -> int:
    """Move jobs from processing to queued as far as their leases hold, and return the number of those that moved."""
    verb, outcome, back, crashes = columns
    guards = {"settled": to_json(items), "now": move.now, "deadline": int(deadline)}
    ended = move.run(
        f"end_attempt.{verb}", outcome=outcome, failures=to_json(texts.failures), seq=seq, **guards
    ).rowcount
    if ended:
        move.run(f"requeue.{verb}", back=back, crashes=crashes, failures=to_json(texts.brief), **guards)
    return ended


class FailureTexts:
    """The failures of a group as JSON texts, each once: during an outage most jobs of a group share one failure."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._places: dict[int, int] = {}
        self._failures: list[
            Failure
        ] = []  # keeps them alive: a new failure could get the id() of a freed one
        self.failures: list[str] = []
        self.brief: list[str] = []  #: for the job's own row; the statement appends the number of the attempt

    def item(self, lease: Lease, verdict: Verdict, cost: float) -> Item:
        match verdict:
            case RetryAfter(delay, failure):
                return (*lease, self.place(failure), span(delay), stored_cost(cost))
            case Release(delay):
                return (*lease, None, span(delay), stored_cost(cost))
        raise AssertionError(f"this verdict does not queue the job again: {verdict}")

    def place(self, failure: Failure) -> int:
        place = self._places.get(id(failure))
        if place is None:
            place = self._places[id(failure)] = len(self._failures)
            self._failures.append(failure)
            self.failures.append(failure_json(failure))
            self.brief.append(_brief(failure, self._now))
        return place


def _brief(failure: Failure, now: int) -> str:
    text = to_json({"code": failure.code, "message": failure.message, "at": now})
    return text.removesuffix("}") + ',"attempt":'


# -- one by one ---------------------------------------------------------------------------------------------------------
def _settle_one(move: Move, settlement: Settlement) -> SettlementStatus:
    """Settle what no group statement matched: a failure for good, a passed deadline, a repeated or a refused write."""
    lease, verdict = settlement.lease, settlement.verdict
    if isinstance(verdict, Bury) and bury(
        move,
        "fail",
        lease.job_id,
        verdict.failure,
        DeadlineGuard.NOT_PASSED,
        epoch=lease.epoch,
        cost=settlement.cost,
        meta=meta_of(settlement),
    ):
        return SettlementStatus.APPLIED
    time_out(move, lease.job_id, epoch=lease.epoch)
    return _refuse(move, settlement)


def reclaim(
    move: Move,
    lease: Lease,
    verdict: RetryAfter,
    crashes: int | None,
    meta: Mapping[str, Any],
    cost: float = ORDINARY_COST,
) -> bool:
    """Take a job from its worker and queue it again, whatever its deadline; return whether the lease was current."""
    texts = FailureTexts(move.now)
    columns = requeue_columns(verdict, "reclaimed", crashes)
    items = [texts.item(lease, verdict, cost)]
    if not _requeue(move, columns, items, texts, None, DeadlineGuard.ANY):
        return False
    meta = {"error_code": verdict.failure.code, **meta, "cost": stored_cost(cost)}
    move.record_one(Kind.reclaimed, lease, _attempt_of(move, lease), **meta)
    return True


def time_out(move: Move, job_id: JobId, *, epoch: int | None = None) -> bool:
    """Fail a job whose deadline has passed, wherever it is, or with *epoch* only under that lease; return whether it moved."""
    failure = Failure.of("TIMEOUT")
    meta = {"error_code": failure.code}
    return bury(move, "time_out", job_id, failure, DeadlineGuard.PASSED, epoch=epoch, crashes=0, meta=meta)


#: For the verbs that may bury a job: the outcome of the attempt, and the kind of the event.
_BURIALS = {
    "fail": ("failed", Kind.failed),
    "reclaim": ("reclaimed", Kind.failed),
    "time_out": ("timed_out", Kind.timed_out),
}


def bury(
    move: Move,
    verb: str,
    job_id: JobId,
    failure: Failure,
    deadline: DeadlineGuard,
    *,
    epoch: int | None = None,
    crashes: int | None = None,
    cost: float = ORDINARY_COST,
    meta: Mapping[str, Any],
) -> bool:
    """Move a job to failed, with a dead letter, and return whether it moved.

    With *epoch* it moves only under that lease. *crashes* are added; None resets them to 0.
    """
    outcome, kind = _BURIALS[verb]
    end_attempt(move, verb, job_id, outcome, failure, deadline, epoch=epoch, cost=cost)
    rows = move.run(
        f"bury.{verb}",
        uid=job_id,
        epoch=epoch,
        deadline=int(deadline),
        now=move.now,
        code=failure.code,
        message=failure.message,
        # A passed deadline is not a failure of the attempt: the last failure stays.
        last_failure=None if verb == "time_out" else _brief(failure, move.now),
        crashes=crashes,
    ).fetchall()
    for number, newest, attempt in rows:
        move.run(
            "dead_letter", id=number, now=move.now, code=failure.code, message=failure.message, detail=failure.detail,
            fingerprint=failure.fingerprint, attempts=attempt,
        )  # fmt: skip
        move.forget_steps(number, failure.forget)
        move.record_one(kind, Lease(job_id, newest), attempt, **meta)
    return bool(rows)


def end_attempt(
    move: Move,
    verb: str,
    job_id: JobId,
    outcome: str,
    failure: Failure | None,
    deadline: DeadlineGuard,
    *,
    epoch: int | None = None,
    cost: float = ORDINARY_COST,
) -> None:
    """Write the record of the attempt that is running, if there is one and its job may make this move."""
    texts = FailureTexts(move.now)
    item = (job_id, epoch, texts.place(failure) if failure else None, 0, stored_cost(cost))
    move.run(
        f"end_attempt.{verb}",
        settled=to_json([item]),
        outcome=outcome,
        failures=to_json(texts.failures),
        now=move.now,
        seq=None,
        deadline=int(deadline),
    )


# -- refusals -------------------------------------------------------------------------------------------------------------
def _refuse(move: Move, settlement: Settlement) -> SettlementStatus:
    """Return why a settlement has changed nothing: the job's row or the attempt's record has the answer."""
    lease = settlement.lease
    job = move.look(lease.job_id)
    if job is None:
        return SettlementStatus.STALE
    if job.lease == lease and job.phase == COMPLETE:
        return SettlementStatus.REPEATED if job.settle_event is not None else SettlementStatus.STALE
    if job.lease == lease and job.phase == PROCESSING:
        # There is one writer: this cannot happen.
        raise StoreError(f"job {lease.job_id} holds its lease, but no statement has matched it")
    row = move.connection.execute(
        "SELECT outcome, attempt FROM holdfast_attempt WHERE job = ? AND epoch = ?", (job.number, lease.epoch)
    ).fetchone()
    if row is None:
        return SettlementStatus.STALE  # this lease never existed
    outcome, attempt = row
    if outcome in ("timed_out", "cancelled"):
        late = settlement._replace(attempt=attempt)
        return store_late_result(move, job, late, outcome)
    if outcome != "reclaimed":
        return SettlementStatus.REPEATED
    refuse_once(move, lease)
    return SettlementStatus.STALE


def refuse_once(move: Move, lease: Lease) -> None:
    """Record, once, that a worker tried to write under a lease that was reclaimed."""
    rows = move.connection.execute(
        "UPDATE holdfast_attempt SET refused = 1 WHERE job = (SELECT id FROM holdfast_job WHERE uid = ?) AND epoch = ?"
        " AND outcome = 'reclaimed' AND NOT refused RETURNING attempt", lease
    ).fetchall()  # fmt: skip
    for (attempt,) in rows:
        move.record_one(Kind.stale_write, lease, attempt)


def store_late_result(move: Move, job: Found, late: Settlement, reason: str) -> SettlementStatus:
    """Store what an attempt reported after its end, once."""
    lease, verdict = late.lease, late.verdict
    result = verdict.result if isinstance(verdict, Complete) else None
    outcome = outcome_of(verdict)
    added = move.connection.execute(
        "INSERT INTO holdfast_late_result (job, epoch, at, reason, outcome, result) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (job.number, lease.epoch, move.now, reason, outcome, result),
    ).rowcount
    if added:
        move.record_one(Kind.late_result, lease, late.attempt, outcome=outcome, **cost_meta(late))
    return SettlementStatus.LATE


# -- writes under a lease: they raise `LeaseLost` if it is not current ------------------------------------------------------
def complete_in(move: Move, settlement: Settlement) -> None:
    if not _complete(move, [settlement]):
        raise LeaseLost(*settlement.lease)


def record_step(move: Move, lease: Lease, name: str, result: str) -> None:
    uid, epoch = lease
    if not move.run("record_step", uid=uid, epoch=epoch, name=name, result=result, now=move.now).rowcount:
        raise LeaseLost(*lease)


def record_progress(move: Move, lease: Lease, percent: float, message: str) -> None:
    progress = to_json({"percent": percent, "message": message})
    written = move.connection.execute(
        f"UPDATE holdfast_job SET progress = ? WHERE uid = ? AND epoch = ? AND phase = {PROCESSING}",
        (progress, *lease),
    ).rowcount
    if not written:
        raise LeaseLost(*lease)
