"""Claim one job by its id, and store late results, for external tasks."""

from __future__ import annotations

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.external import late_key, why_late
from holdfast.jobs.job import Claimed, JobId, Lease, Session, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Verdict
from holdfast.stores.sqlite.claims import is_live, take
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.outcomes import store_late_result
from holdfast.stores.sqlite.phases import CANCELLED, COMPLETE, FAILED, STATES


def claim_job(move: Move, session: Session, job_id: JobId, generation: int) -> Claimed | None:
    if not is_live(move, session):
        return None
    rows = move.run("claim_job", uid=job_id, generation=generation).fetchall()
    return take(move, session, [number for (number,) in rows])[0] if rows else None


def settle_unheld(move: Move, job_id: JobId, generation: int, verdict: Verdict, by: str) -> SettlementStatus:
    job = move.find(job_id)
    now_at, error_code = move.connection.execute(
        "SELECT generation, error_code FROM holdfast_job WHERE id = ?", (job.number,)
    ).fetchone()
    if now_at != generation or job.phase not in (COMPLETE, FAILED, CANCELLED):
        meta = {"by": by, "generation": generation}
        move.note(job_id, Kind.stale_write, f"generation {generation}", meta)
        return SettlementStatus.STALE
    reason = why_late(STATES[job.phase], error_code)
    if reason is None:
        return SettlementStatus.REPEATED
    last = move.connection.execute(
        "SELECT epoch, outcome, generation FROM holdfast_attempt WHERE job = ? AND epoch = ?",
        (job.number, job.epoch),
    ).fetchone()
    late = Settlement(Lease(job_id, late_key(generation, last)), verdict, job.attempt)
    return store_late_result(move, job, late, reason)
