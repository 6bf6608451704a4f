"""`app.external`: reports about jobs that other systems execute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.manual_retry import job_row
from holdfast.engine.namespace import Namespace
from holdfast.engine.ports import SettlementStatus
from holdfast.errors import Conflict, UsageError
from holdfast.jobs.codes import ErrorCode
from holdfast.jobs.external import LEASE, Done, Failed, Outcome, ReportResult, ReportStatus, Requeue
from holdfast.jobs.job import JobId, JobRow, Lease, Settlement, named
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, Verdict
from holdfast.tasks.task import Task
from holdfast.values.duration import Duration, duration, optional
from holdfast.values.validation import word

#: How often a report is tried again when the job was moved meanwhile.
_TRIES = 5
#: How many characters of a refused report's reason are kept.
_LONGEST_REASON = 500


class ExternalJobs(Namespace):
    """Reports about jobs of tasks with `execute="external"`, by the job's id and generation. Any report may be sent twice."""

    async def begin(
        self, job_id: str, *, generation: int, worker: str, lease: Duration | None = None
    ) -> ReportResult:
        """Report that *worker* has begun the job.

        The job is reclaimed, as from any lost worker, when it has not ended after *lease* (by default the task's). A report
        about a job that another worker has begun changes nothing, and its answer says so.
        """
        engine, known = await self._engine(), named(job_id)
        store, row = engine.store, await _external_job(engine, known)
        if row.generation != generation:
            await _record_refusal(engine, known, f"generation {generation}", by=worker, generation=generation)
            return ReportResult(ReportStatus.STALE, row.state, row.epoch)
        if row.state is State.QUEUED:
            span = optional(lease) or engine.tasks[row.task].policy.lease or LEASE
            session = await store.open_session(worker, span)
            claimed = await store.claim_job(session, known, generation)
            if claimed is not None:
                return ReportResult(ReportStatus.APPLIED, State.PROCESSING, claimed.lease.epoch)
            await store.close_session(session)
            row = await _external_job(engine, known)
        if row.state is State.PROCESSING and row.generation == generation:
            is_repeated = (await store.queries.attempts(known))[-1].worker == worker
            status = ReportStatus.REPEATED if is_repeated else ReportStatus.STALE
            return ReportResult(status, row.state, row.epoch)
        return ReportResult(ReportStatus.STALE, row.state, row.epoch)

    async def end(self, job_id: str, outcome: Outcome, *, generation: int, worker: str) -> ReportResult:
        """Report how the job ended: `Done(result)`, `Failed(code, detail)` or `Requeue(delay, reason, retry=…)`.

        The report counts even when the one of its `begin` never arrived.
        """
        engine, known = await self._engine(), named(job_id)
        for _ in range(_TRIES):
            row = await _external_job(engine, known)
            verdict = _verdict(outcome, engine.tasks[row.task], engine.codes)
            if row.generation != generation or row.state not in (State.QUEUED, State.PROCESSING):
                answer = await engine.store.settle_unheld(known, generation, verdict, by=worker)
                return (await _reported(engine, answer, known))[0]
            answer = await _settle(engine, row, verdict, generation, worker)
            if answer is not SettlementStatus.STALE:
                report, after = await _reported(engine, answer, known)
                if answer is SettlementStatus.APPLIED:
                    engine.observers.reported(after, outcome)
                return report
        raise Conflict(f"job {job_id} moves too fast to be ended; try again")

    async def refuse(self, job_id: str, name: str, *, reason: str = "", by: str = "") -> bool:
        """Record that a report was not believed, because it is not signed, say. The job is not changed.

        The job has one such event (`stale_write`) for each *name*, so that repeated reports cannot fill its record. Returns
        whether it is new.
        """
        engine, known = await self._engine(), named(job_id)
        await _external_job(engine, known)
        facts = {"reason": _printable(reason) or None, "by": _printable(by) or None}
        return await _record_refusal(engine, known, word("name", name), **facts)


async def _record_refusal(engine: Engine, job_id: JobId, name: str, **facts: Any) -> bool:
    meta = {key: value for key, value in facts.items() if value is not None}
    return await engine.store.transact(
        lambda transaction: transaction.note(job_id, Kind.stale_write, name, meta)
    )


async def _settle(
    engine: Engine, row: JobRow, verdict: Verdict, generation: int, worker: str
) -> SettlementStatus:
    """Settle under the job's lease, or under one that is taken for this. STALE when the job was moved meanwhile."""
    store = engine.store
    if row.state is State.PROCESSING:
        return await _settle_under(engine, row, Lease(row.id, row.epoch), row.attempt, verdict)
    session = await store.open_session(worker, LEASE)
    try:
        claimed = await store.claim_job(session, row.id, generation)
        if claimed is None:
            return SettlementStatus.STALE
        return await _settle_under(engine, row, claimed.lease, claimed.attempt, verdict)
    finally:
        await store.close_session(session)


async def _settle_under(
    engine: Engine, row: JobRow, lease: Lease, attempt: int, verdict: Verdict
) -> SettlementStatus:
    if isinstance(verdict, Complete) and verdict.result is not None:
        verdict = Complete(await engine.artifact_store.keep_result(lease, verdict.result))
    cost = 0.0 if isinstance(verdict, Release) else engine.tasks[row.task].policy.cost
    [answer] = await engine.store.settle([Settlement(lease, verdict, attempt, cost=cost)])
    return answer


async def _reported(engine: Engine, answer: SettlementStatus, job_id: JobId) -> tuple[ReportResult, JobRow]:
    row = await _external_job(engine, job_id)
    return ReportResult(ReportStatus(answer), row.state, row.epoch), row


async def _external_job(engine: Engine, job_id: JobId) -> JobRow:
    row = await job_row(engine, job_id)
    task = engine.tasks.get(row.task)
    if task is None or task.policy.execute != "external":
        raise UsageError(f'{row.task} is not executed outside; declare it with execute="external"')
    return row


def _printable(text: str) -> str:
    """Return *text* as every store can keep it; its sender is not known."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:_LONGEST_REASON]
    )


def _verdict(outcome: Outcome, task: Task[Any, Any], codes: Mapping[str, ErrorCode]) -> Verdict:
    match outcome:
        case Done(result):
            return Complete(task.returns.write(result, "the result"))
        case Failed(code, detail):
            return Bury(Failure.of(code, detail, codes))
        case Requeue(delay, reason):
            return Release(duration(delay), reason)
