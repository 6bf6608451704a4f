"""Jobs that others execute: begun and ended by their id and generation. Mixed into the engine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from holdfast.domain.codes import ErrorCode
from holdfast.domain.duration import duration
from holdfast.domain.external import LEASE, Done, Failed, Outcome, ReportResult, ReportStatus, Requeue
from holdfast.domain.job import JobId, JobRow, Lease, Settlement
from holdfast.domain.moves import Kind, State
from holdfast.domain.validation import word
from holdfast.domain.verdict import Bury, Complete, Failure, Release, Verdict
from holdfast.engine.artifacts import ArtifactStore
from holdfast.engine.observers import Observers
from holdfast.engine.ports import SettlementStatus, Store
from holdfast.engine.tasks import Task
from holdfast.errors import Conflict, UnknownJob, UsageError

#: How often a report is tried again when the job was moved meanwhile.
TRIES = 5
#: How many characters of a refused report's reason are kept: its sender is not known.
LONGEST_REASON = 500


class ExternalJobs:
    store: Store
    tasks: dict[str, Task[Any, Any]]
    artifact_store: ArtifactStore
    codes: Mapping[str, ErrorCode]
    observers: Observers

    async def begin(
        self, job_id: JobId, *, generation: int, worker: str, lease: timedelta | None = None
    ) -> ReportResult:
        """Somebody has taken the job up: queued → processing, until *lease* is over.

        Not heard of any more by then, it is reclaimed as from any lost worker. A job that is another's is left alone.
        """
        row = await self._external_job(job_id)
        if row.generation != generation:
            await self._note(job_id, f"generation {generation}", by=worker, generation=generation)
            return ReportResult(ReportStatus.STALE, row.state, row.epoch)
        if row.state is State.QUEUED:
            span = lease or self.tasks[row.task].policy.lease or LEASE
            session = await self.store.open_session(worker, span)
            claimed = await self.store.claim_job(session, job_id, generation)
            if claimed is not None:
                return ReportResult(ReportStatus.APPLIED, State.PROCESSING, claimed.lease.epoch)
            await self.store.close_session(session)
            row = await self._external_job(job_id)
        if row.state is State.PROCESSING and row.generation == generation:
            mine = (await self.store.attempts(job_id))[-1].worker == worker
            return ReportResult(ReportStatus.REPEATED if mine else ReportStatus.STALE, row.state, row.epoch)
        return ReportResult(ReportStatus.STALE, row.state, row.epoch)

    async def end(self, job_id: JobId, outcome: Outcome, *, generation: int, worker: str) -> ReportResult:
        """Record the result that an external executor reports, even when its `begin` never arrived."""
        for _ in range(TRIES):
            row = await self._external_job(job_id)
            verdict = _verdict(outcome, self.tasks[row.task], self.codes)
            if row.generation != generation or row.state not in (State.QUEUED, State.PROCESSING):
                answer = await self.store.settle_unheld(job_id, generation, verdict, by=worker)
                return (await self._told(answer, job_id))[0]
            answer = await self._settle(row, verdict, generation, worker)
            if answer is not SettlementStatus.STALE:
                report, after = await self._told(answer, job_id)
                if answer is SettlementStatus.APPLIED:
                    self.observers.reported(after, outcome)
                return report
        raise Conflict(f"job {job_id} moves too fast to be ended; try again")

    async def refuse(self, job_id: JobId, name: str, *, reason: str = "", by: str = "") -> bool:
        """A report that is not believed changes nothing and is on record, once for each *name*; whether this is new."""
        await self._external_job(job_id)
        told = {"reason": _printable(reason) or None, "by": _printable(by) or None}
        return await self._note(job_id, word("name", name), **told)

    async def _note(self, job_id: JobId, name: str, **told: Any) -> bool:
        said = {key: value for key, value in told.items() if value is not None}
        return await self.store.note(job_id, Kind.stale_write, name, said)

    async def _settle(self, row: JobRow, verdict: Verdict, generation: int, worker: str) -> SettlementStatus:
        """Under the lease that there is, or one that is taken for this; STALE when the job was moved meanwhile."""
        if row.state is State.PROCESSING:
            return await self._settle_under(Lease(row.id, row.epoch), row.attempt, verdict)
        session = await self.store.open_session(worker, LEASE)
        try:
            claimed = await self.store.claim_job(session, row.id, generation)
            if claimed is None:
                return SettlementStatus.STALE
            return await self._settle_under(claimed.lease, claimed.attempt, verdict)
        finally:
            await self.store.close_session(session)

    async def _settle_under(self, lease: Lease, attempt: int, verdict: Verdict) -> SettlementStatus:
        if isinstance(verdict, Complete) and verdict.result is not None:
            verdict = Complete(await self.artifact_store.keep_result(lease, verdict.result))
        [answer] = await self.store.settle([Settlement(lease, verdict, attempt)])
        return answer

    async def _told(self, answer: SettlementStatus, job_id: JobId) -> tuple[ReportResult, JobRow]:
        row = await self._external_job(job_id)
        return ReportResult(ReportStatus(answer), row.state, row.epoch), row

    async def _external_job(self, job_id: JobId) -> JobRow:
        row = await self.store.job(job_id)
        if row is None:
            raise UnknownJob(job_id)
        task = self.tasks.get(row.task)
        if task is None or task.policy.execute != "external":
            raise UsageError(f'{row.task} is not executed outside; declare it with execute="external"')
        return row


def _printable(text: str) -> str:
    """What every store can keep, of a text that anybody may have written."""
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:LONGEST_REASON]
    )


def _verdict(outcome: Outcome, task: Task[Any, Any], codes: Mapping[str, ErrorCode]) -> Verdict:
    match outcome:
        case Done(result):
            return Complete(task.returns.write(result, "the result"))
        case Failed(code, detail):
            return Bury(Failure.of(code, detail, codes))
        case Requeue(delay, reason):
            return Release(duration(delay), reason)
