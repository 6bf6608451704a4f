"""Jobs that are executed outside: claimed by their id, and what comes for them when they have ended."""

from __future__ import annotations

from holdfast.domain.external import late_key, why_late
from holdfast.domain.job import Claimed, JobId, Lease, Session
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Verdict
from holdfast.engine.ports import SettlementStatus
from holdfast.stores.sqlite.claims import is_live, take
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.notes import note
from holdfast.stores.sqlite.outcomes import store_late_result
from holdfast.stores.sqlite.phases import CANCELLED, COMPLETE, DEFERRED, FAILED, IN_LINE, STATES


def claim_job(move: Move, session: Session, job_id: JobId, generation: int) -> Claimed | None:
    if not is_live(move, session):
        return None
    row = move.connection.execute(
        "UPDATE holdfast_job SET phase = ? WHERE uid = ? AND generation = ? AND phase IN (?, ?) RETURNING id",
        (IN_LINE, job_id, generation, IN_LINE, DEFERRED),
    ).fetchone()
    return None if row is None else take(move, session, [row[0]])[0]


def settle_unheld(move: Move, job_id: JobId, generation: int, verdict: Verdict, by: str) -> SettlementStatus:
    job = move.find(job_id)
    now_at, error_code = move.connection.execute(
        "SELECT generation, error_code FROM holdfast_job WHERE id = ?", (job.number,)
    ).fetchone()
    if now_at != generation or job.phase not in (COMPLETE, FAILED, CANCELLED):
        told = {"by": by, "generation": generation}
        note(move, job_id, Kind.stale_write, f"generation {generation}", told)
        return SettlementStatus.STALE
    reason = why_late(STATES[job.phase], error_code)
    if reason is None:
        return SettlementStatus.REPEATED
    last = move.connection.execute(
        "SELECT epoch, outcome, generation FROM holdfast_attempt WHERE job = ? AND epoch = ?",
        (job.number, job.epoch),
    ).fetchone()
    return store_late_result(
        move, job, Lease(job_id, late_key(generation, last)), job.attempt, reason, verdict
    )
