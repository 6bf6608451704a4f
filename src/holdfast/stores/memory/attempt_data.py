"""What is stored of attempts beside their results: log lines, tracebacks and artifacts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.errors import LeaseLost
from holdfast.jobs.job import Artifact, Lease, Settlement
from holdfast.jobs.moves import State
from holdfast.jobs.retention import Retention
from holdfast.stores.memory.outcomes import refuse_once
from holdfast.stores.memory.tables import Job, Tables


def keep_logs(tables: Tables, settlements: Sequence[Settlement]) -> None:
    for settlement in settlements:
        job = tables.jobs.get(settlement.lease.job_id)
        if settlement.logs and job is not None:
            job.logs.setdefault(settlement.lease.epoch, settlement.logs)


def record_artifact(tables: Tables, lease: Lease, reference: str, name: str | None, size: int) -> None:
    job = tables.jobs.get(lease.job_id)
    if job is None or not (job.holds(lease) or _may_come_late(job, lease)):
        if job is not None:
            refuse_once(tables, job, lease)
        raise LeaseLost(*lease)
    job.artifacts[reference] = Artifact(
        job_id=job.id,
        epoch=lease.epoch,
        reference=reference,
        name=name,
        bytes=size,
        at=tables.clock.now(),
    )


def _may_come_late(job: Job, lease: Lease) -> bool:
    attempt = job.attempts.get(lease.epoch)
    return attempt is not None and attempt.outcome in ("timed_out", "cancelled")


def artifacts_due(
    tables: Tables, task: str | None, keep: Retention, limit: int, but: Collection[str]
) -> list[Artifact]:
    jobs = [
        job
        for job in tables.jobs.values()
        if job.artifacts
        and (job.lane.task == task if task else job.lane.task not in but)
        and _is_due(tables, job, keep)
    ]
    return [artifact for job in jobs for artifact in job.artifacts.values()][:limit]


def _is_due(tables: Tables, job: Job, keep: Retention) -> bool:
    if job.finished_at is None:
        return False
    age = tables.clock.now() - job.finished_at
    return (job.state is State.COMPLETE and keep.results is not None and age >= keep.results) or (
        job.dead is None and keep.jobs is not None and age >= keep.jobs
    )


def forget_artifacts(tables: Tables, artifacts: Sequence[Artifact]) -> None:
    for artifact in artifacts:
        job = tables.jobs.get(artifact.job_id)
        if job is not None:
            job.artifacts.pop(artifact.reference, None)
