"""The part of the port that `holdfast.engine.dispatch` describes: jobs that a broker hands out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from holdfast.domain.job import Claimed, JobId, Lane, Session
from holdfast.domain.moves import State
from holdfast.engine.dispatch import Depth, DispatchEntry, DispatchHint
from holdfast.stores.memory.intake import claim_now, in_line
from holdfast.stores.memory.tables import Job, Tables


def claim_jobs(
    tables: Tables, session: Session, hints: Collection[DispatchHint], unheld: Collection[Lane]
) -> list[Claimed]:
    now = tables.clock.now()
    due = {job.id: job for job in in_line(tables, now) if job.spec.key is None and job.lane in unheld}
    wanted = [due[hint.job_id] for hint in dict.fromkeys(hints) if _is_in(due.get(hint.job_id), hint)]
    return [claim_now(tables, job, session, now) for job in wanted]


def _is_in(job: Job | None, hint: DispatchHint) -> bool:
    return job is not None and job.generation == hint.generation


def waiting(tables: Tables, ids: Collection[JobId]) -> list[DispatchEntry]:
    return _entries(tables, (tables.jobs[one] for one in dict.fromkeys(ids) if one in tables.jobs))


def all_waiting(tables: Tables, after: JobId | None, limit: int) -> list[DispatchEntry]:
    behind = [job for job in tables.jobs.values() if after is None or job.id > after]
    return _entries(tables, sorted(behind, key=lambda job: job.id))[:limit]


def due_soon(tables: Tables, within: timedelta, limit: int) -> list[DispatchEntry]:
    entries = _entries(tables, (job for job in tables.jobs.values() if job.deferred))
    return sorted(
        (entry for entry in entries if timedelta() < entry.delay <= within), key=lambda entry: entry.delay
    )[:limit]


def count_waiting(tables: Tables) -> dict[Lane, Depth]:
    depths: dict[Lane, Depth] = {}
    for entry in _entries(tables, tables.jobs.values()):
        due, later = depths.get(entry.lane, Depth(0, 0))
        depths[entry.lane] = Depth(due + (not entry.delay), later + bool(entry.delay))
    return depths


def _entries(tables: Tables, jobs: Iterable[Job]) -> list[DispatchEntry]:
    now = tables.clock.now()
    return [
        DispatchEntry(job.id, job.generation, job.lane, job.spec.priority, max(job.run_at - now, timedelta()))
        for job in jobs
        if job.state is State.QUEUED and job.spec.key is None
    ]
