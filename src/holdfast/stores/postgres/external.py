"""Claim one job by its id, and store late results, for external tasks."""

from __future__ import annotations

from holdfast.engine.ports import SettlementStatus
from holdfast.jobs.external import late_key, why_late
from holdfast.jobs.job import Claimed, JobId, Lease, Session, Settlement
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Verdict
from holdfast.stores.postgres.claims import claimed
from holdfast.stores.postgres.lanes import LaneNumbers
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outcomes import store_late_result
from holdfast.stores.postgres.state_tables import STATES


async def claim_job(
    move: Move, lanes: LaneNumbers, session: Session, job_id: JobId, generation: int
) -> Claimed | None:
    for row in await move.run("claim_job", session.id, job_id, generation):
        one = claimed(row, await lanes.by_number(move.connection, [row["lane"]]))
        move.notice(Kind.processing, one.lease, one.attempt, {"worker": session.worker})
        return one
    return None


async def settle_unheld(
    move: Move, job_id: JobId, generation: int, verdict: Verdict, by: str
) -> SettlementStatus:
    ended = await move.connection.fetchrow(
        "SELECT state, epoch, attempt, generation, error_code FROM holdfast.done WHERE job_id = $1::uuid",
        job_id,
    )
    if ended is None or ended["generation"] != generation:
        meta = {"by": by, "generation": generation}
        await move.transaction.note(job_id, Kind.stale_write, f"generation {generation}", meta)
        return SettlementStatus.STALE
    reason = why_late(STATES[ended["state"]], ended["error_code"])
    if reason is None:
        return SettlementStatus.REPEATED
    last = await move.connection.fetchrow(
        "SELECT epoch, outcome, generation FROM holdfast.attempt WHERE job_id = $1::uuid AND epoch = $2",
        job_id,
        ended["epoch"],
    )
    key = late_key(generation, None if last is None else tuple(last))
    return await store_late_result(move, Settlement(Lease(job_id, key), verdict, ended["attempt"]), reason)
