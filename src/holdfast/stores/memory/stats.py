"""Count the jobs of each lane."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta

from holdfast.jobs.job import Lane
from holdfast.jobs.moves import Kind, State
from holdfast.jobs.stats import RECENT, RECENT_ROWS, JobStats, LaneStats
from holdfast.stores.memory.tables import Job, Tables

#: The ends of attempts that count.
_ENDS = frozenset({Kind.complete.name, Kind.retry.name, Kind.failed.name})


def stats(tables: Tables, most: int) -> JobStats:
    now, nothing = tables.clock.now(), timedelta()
    waiting: dict[Lane, list[Job]] = defaultdict(list)
    active: Counter[Lane] = Counter()
    delayed: list[Job] = []
    for job in tables.jobs.values():
        if job.state is State.PROCESSING:
            active[job.lane] += 1
        elif job.state is State.QUEUED and (job.deferred or job.run_at > now):
            delayed.append(job)
        elif job.state is State.QUEUED:
            waiting[job.lane].append(job)
    late = [
        event.kind
        for event in tables.events[-RECENT_ROWS:]
        if event.kind in _ENDS and event.attempt > 1 and event.at > now - RECENT
    ]
    return JobStats(
        lines={
            lane: LaneStats(
                waiting=min(len(waiting[lane]), most),
                active=active[lane],
                oldest=max(now - min(waiting[lane], key=lambda job: job.place).run_at, nothing)
                if waiting[lane]
                else None,
            )
            for lane in list(tables.lanes)
            if waiting[lane] or active[lane]
        },
        delayed=min(len(delayed), most),
        overdue=max((now - job.run_at for job in delayed if job.run_at <= now), default=nothing),
        dead_letters=min(sum(job.dead is not None for job in tables.jobs.values()), most),
        retried=len(late),
        failed_retries=sum(kind != Kind.complete.name for kind in late),
    )
