"""What maintenance does with jobs: expired leases, stuck attempts, passed deadlines, retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from holdfast.engine.ports import Reclaim
from holdfast.jobs.job import Expired, JobId, Lease
from holdfast.jobs.moves import Kind, allows
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Bury, RetryAfter
from holdfast.stores.encoding import OVERRUN_MARGIN, manual_meta, some, stored_cost
from holdfast.stores.memory.outcomes import apply, time_out_one
from holdfast.stores.memory.tables import Job, Live, Tables


# -- leases ---------------------------------------------------------------------------------------------------------------
def expired(tables: Tables, limit: int) -> list[Expired]:
    found: list[Expired] = []
    for job in tables.jobs.values():
        lost, overran = ran_out(tables, job)
        if (lost or overran) and job.live is not None and len(found) < limit:
            found.append(_expired(job, job.live, overran=not lost))
    return found


def _expired(job: Job, live: Live, *, overran: bool) -> Expired:
    return Expired(
        lease=Lease(job.id, job.epoch),
        lane=job.lane,
        attempt=job.attempt,
        max_attempts=job.spec.max_attempts,
        crashes=job.crashes,
        max_crashes=job.spec.max_crashes,
        worker=live.session.worker,
        overran=overran,
    )


def stuck(
    tables: Tables,
    limits: Mapping[str, timedelta],
    limit: int,
    owner: str | None = None,
    ids: Collection[str] | None = None,
) -> list[Expired]:
    now = tables.clock.monotonic()
    found = [
        (live.began, _expired(job, live, overran=False))
        for job in tables.jobs.values()
        if (live := job.live) is not None
        and (most := limits.get(job.lane.task)) is not None
        and now - live.began > most.total_seconds()
        and tables.is_live(live.session)
        and (live.run_until is None or now <= live.run_until)
        and (owner is None or job.spec.owner == owner)
        and (ids is None or job.id in ids)
    ]
    return [one for _, one in sorted(found)[:limit]]


def ran_out(tables: Tables, job: Job) -> tuple[bool, bool]:
    """Return (the worker is lost, the attempt has overrun its timeout)."""
    if job.live is None:
        return False, False
    until = job.live.run_until
    overran = until is not None and tables.clock.monotonic() > until + OVERRUN_MARGIN.total_seconds()
    return not tables.is_live(job.live.session), overran


def reclaim(tables: Tables, reclaims: Sequence[Reclaim], stuck: bool = False) -> int:
    """Take jobs from their workers, and return how many were taken.

    A lease must still be current, and must still have expired unless the attempt is *stuck*.
    """
    done = 0
    for lease, verdict, crashed, by, cost in reclaims:
        job = tables.jobs.get(lease.job_id)
        if job is None or not job.holds(lease) or not allows("reclaim", job.state):
            continue
        lost, overran = ran_out(tables, job)
        if stuck or (lost if crashed else overran and not lost):
            assert isinstance(verdict, (RetryAfter, Bury)), (
                f"a reclaim queues the job again or fails it, and has no verdict {verdict}"
            )
            meta = {"error_code": verdict.failure.code, **manual_meta(by), "cost": stored_cost(cost)}
            apply(tables, job, verdict, outcome="reclaimed", **some(meta))
            done += 1
    return done


# -- deadlines --------------------------------------------------------------------------------------------------------------
def time_out(tables: Tables, limit: int, skip: int) -> list[JobId]:
    now = tables.clock.now()
    late = [
        (job.deadline_at, job.id, job)
        for job in tables.jobs.values()
        if allows("time_out", job.state) and job.deadline_at is not None and now > job.deadline_at
    ]
    passed = [job for *_, job in sorted(late, key=lambda one: one[:2])][skip : skip + limit]
    for job in passed:
        time_out_one(tables, job)
    return [job.id for job in passed]


# -- retention ------------------------------------------------------------------------------------------------------------
def purge(tables: Tables, task: str | None, keep: Retention, limit: int, but: Collection[str]) -> int:
    now, done = tables.clock.now(), 0
    for job in list(tables.jobs.values()):
        if job.finished_at is None or done >= limit:
            continue
        if job.lane.task != task if task else job.lane.task in but:
            continue
        if job.artifacts:  # they are deleted first
            continue
        if keep.jobs is not None and job.finished_at <= now - keep.jobs and job.dead is None:
            _forget(tables, job)
            done += 1
        elif (
            keep.results is not None
            and allows("purge", job.state)
            and job.expired_at is None
            and job.finished_at <= now - keep.results
        ):
            job.result, job.expired_at, job.updated_at = None, now, now
            tables.record(Kind.expired, job)
            done += 1
    if keep.events is not None and task is None:
        kept = [event for event in tables.events if event.at > now - keep.events]
        done += len(tables.events) - len(kept)
        tables.events = kept
    return done


def _forget(tables: Tables, job: Job) -> None:
    del tables.jobs[job.id]
    if job.spec.dedupe and tables.dedupe.get(job.spec.dedupe) == job.id:
        del tables.dedupe[job.spec.dedupe]
