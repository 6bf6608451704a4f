"""Find the queue position of a job."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.jobs.job import JobId
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.queue_position import LAST_MOVE, MOST_AHEAD, LastMove, Place, QueuePosition, Use
from holdfast.stores.memory.intake import ready_jobs
from holdfast.stores.memory.tables import Tables


def queue_position(tables: Tables, job_id: JobId, use: Mapping[str, Use]) -> QueuePosition | None:
    job, now = tables.jobs.get(job_id), tables.clock.now()
    if job is None:
        return None
    line, key, place, ahead = ready_jobs(tables, now), job.spec.key, None, None
    others = [j.id for j in tables.jobs.values() if j.live and j is not job and j.spec.key == key]
    holder = others[0] if key is not None and len(others) >= job.spec.key_slots else None
    if job.state is State.QUEUED:
        place = Place.LATER if job.deferred else Place.LINE if holder is None else Place.KEY
    if place is Place.LINE:
        ahead = sum(j.place < job.place for j in line if j.lane == job.lane)
    moves = [e for e in tables.events if e.job_id == job_id and Kind[e.kind] <= LAST_MOVE]
    return QueuePosition(
        lane=job.lane,
        place=place,
        now=now,
        ahead=None if ahead is None else min(ahead, MOST_AHEAD),
        holder=holder,
        key_slots=job.spec.key_slots,
        last=LastMove(moves[-1].kind, moves[-1].at, moves[-1].attempt, moves[-1].meta) if moves else None,
        use=use,
    )
