"""The port `JobQueries`, over Python objects."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from holdfast import __version__
from holdfast.engine.artifacts import split_result
from holdfast.engine.job_queries import EVERY, FIRST, Page
from holdfast.jobs.concurrency_keys import own_key
from holdfast.jobs.forecast import Forecast, ForecastRow, make_forecast
from holdfast.jobs.internal import hides_internal, is_internal
from holdfast.jobs.job import (
    Artifact,
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
    WorkerRow,
)
from holdfast.jobs.judgements import broken_invariants
from holdfast.jobs.moves import State
from holdfast.jobs.queue_position import QueuePosition
from holdfast.jobs.stats import JobStats
from holdfast.stores.encoding import read_cursor
from holdfast.stores.memory import queue_position
from holdfast.stores.memory.lanes import Lanes
from holdfast.stores.memory.stats import stats
from holdfast.stores.memory.tables import Job, Live, Tables


class Queries:
    def __init__(self, tables: Tables, lanes: Lanes) -> None:
        self._tables, self._lanes = tables, lanes

    # -- jobs -------------------------------------------------------------------------------------------------------
    async def job(self, job_id: JobId) -> JobRow | None:
        job = self._tables.jobs.get(job_id)
        return _job_row(self._tables, job) if job else None

    async def queue_position(self, job_id: JobId, scopes: Collection[str] = ()) -> QueuePosition | None:
        use = {scope: self._lanes.use(scope) for scope in scopes}
        return queue_position.queue_position(self._tables, job_id, use)

    async def jobs(self, where: JobFilter, *, after: str | None, limit: int, contents: bool = True) -> Page:
        before = None if after is None else read_cursor(after)
        found = [job for job in self._found(where) if before is None or job.number < before]
        found.sort(key=lambda job: -job.number)
        rows = found[:limit]
        shown = [_job_row(self._tables, job) for job in rows]
        return Page(
            shown if contents else [replace(row, payload=None, result=None) for row in shown],
            str(rows[-1].number) if len(found) > limit else None,
        )

    async def count(self, where: JobFilter) -> int:
        return len(self._found(where))

    def _found(self, where: JobFilter) -> list[Job]:
        jobs = self._tables.jobs
        named = (jobs[one] for one in dict.fromkeys(where.ids) if one in jobs)
        return [job for job in (named if where.ids else jobs.values()) if _matches(job, where)]

    async def counts(self) -> dict[str, int]:
        counts = dict.fromkeys(State, 0)
        for job in self._tables.jobs.values():
            counts[job.state] += 1
        return {str(state): number for state, number in counts.items()}

    async def stats(self, most: int) -> JobStats:
        return stats(self._tables, most)

    async def forecast(self, within: timedelta, bucket: timedelta, most: int) -> Forecast:
        now = self._tables.clock.now()
        later = [job for job in self._tables.jobs.values() if job.state is State.QUEUED and job.deferred]
        due = sorted((job for job in later if now < job.run_at < now + within), key=lambda job: job.run_at)
        rows = [
            ForecastRow(
                0,
                (job.run_at - now) // bucket,
                job.lane.dependency,
                int(job.attempt > 0),
                int(not job.attempt),
                job.run_at,
            )
            for job in due[:most]
        ]
        return make_forecast(now, within, bucket, most, rows)

    async def workers(self) -> list[WorkerRow]:
        tables = self._tables
        leased = Counter(job.live.session.id for job in tables.jobs.values() if job.live is not None)
        return [
            WorkerRow(
                name=kept.session.worker,
                started_at=kept.started_at,
                expires_at=tables.clock.now() + timedelta(seconds=kept.until - tables.clock.monotonic()),
                queues=kept.queues,
                leases=leased[kept.session.id],
                waiting=kept.waiting,
                version=__version__,
            )
            for kept in tables.sessions.values()
            if tables.is_live(kept.session)
        ]

    # -- what is kept of a job ----------------------------------------------------------------------------------------
    async def events(self, *, after: int, limit: int, job_id: JobId | None = None) -> list[Event]:
        events = self._tables.events
        news = islice(events, bisect_right(events, after, key=lambda event: event.id), None)
        return list(islice((e for e in news if job_id is None or e.job_id == job_id), limit))

    async def event_lag(self) -> timedelta:
        return timedelta()  # there is one writer

    async def newest_event(self) -> int:
        return self._tables.events[-1].id if self._tables.events else 0

    async def attempts(self, job_id: JobId, *, after: int = 0, limit: int = EVERY) -> list[Attempt]:
        job = self._tables.jobs.get(job_id)
        if job is None:
            return []
        running = [job.current_attempt(None, None, None)] if job.live else []
        found = [a for a in (*job.attempts.values(), *running) if a.epoch > after][:limit]
        return [replace(a, logs=job.logs.get(a.epoch, ())) for a in found]

    async def steps(self, job_id: JobId) -> dict[str, str]:
        job = self._tables.jobs.get(job_id)
        return dict(job.steps) if job else {}

    async def late_results(
        self, job_id: JobId, *, after: int = FIRST, limit: int = EVERY
    ) -> list[LateResult]:
        job = self._tables.jobs.get(job_id)
        return [late for late in job.late.values() if late.epoch > after][:limit] if job else []

    async def artifacts(self, job_id: JobId) -> list[Artifact]:
        job = self._tables.jobs.get(job_id)
        return sorted(job.artifacts.values(), key=lambda a: (a.epoch, a.reference)) if job else []

    # -- dead letters -------------------------------------------------------------------------------------------------
    async def dead_letters(
        self, where: DeadLetterFilter, *, after: str | None, limit: int, contents: bool = True
    ) -> list[DeadLetter]:
        found = [letter for letter in self._dead(where) if after is None or letter.id > after]
        chosen = sorted(found, key=lambda letter: letter.id)[:limit]
        return chosen if contents else [replace(letter, payload=None) for letter in chosen]

    async def count_dead_letters(self, where: DeadLetterFilter) -> int:
        return len(self._dead(where))

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        groups: dict[tuple[str, str, str], list[DeadLetter]] = {}
        for letter in self._dead(where):
            groups.setdefault((letter.fingerprint, letter.task, letter.code), []).append(letter)
        found = [
            DeadLetterGroup(
                fingerprint=fingerprint,
                task=task,
                code=code,
                message=newest.detail or newest.message,
                count=len(letters),
                first_at=min(letter.at for letter in letters),
                last_at=newest.at,
                sample=newest.id,
            )
            for (fingerprint, task, code), letters in groups.items()
            for newest in [max(letters, key=lambda letter: (letter.at, letter.id))]
        ]
        return sorted(found, key=lambda group: (group.count, group.last_at, group.sample), reverse=True)[
            :limit
        ]

    def _dead(self, where: DeadLetterFilter) -> list[DeadLetter]:
        letters = (job.dead for job in self._tables.jobs.values() if job.dead is not None)
        return [letter for letter in letters if _matches_dead(letter, where)]

    # -- the store itself -----------------------------------------------------------------------------------------------
    async def violations(self) -> list[str]:
        tables = self._tables
        return [
            f"job {job.id}: {rule}"
            for job in tables.jobs.values()
            for rule in broken_invariants(_job_row(tables, job))
        ]

    async def health(self) -> dict[str, Any]:
        return {"store": "memory", "durable": False}


def _job_row(tables: Tables, job: Job) -> JobRow:
    live = job.live
    has_progress = live is not None and live.percent is not None
    result, artifact = split_result(job.result)
    return JobRow(
        id=job.id,
        task=job.lane.task,
        queue=job.lane.queue,
        owner=job.spec.owner,
        priority=job.spec.priority,
        state=job.state,
        generation=job.generation,
        epoch=job.epoch,
        attempt=job.attempt,
        max_attempts=job.spec.max_attempts,
        crashes=job.crashes,
        run_at=job.run_at,
        created_at=job.created_at,
        queued_at=job.queued_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_attempt_at=job.last_attempt_at,
        updated_at=job.updated_at,
        deadline_at=job.deadline_at,
        expired_at=job.expired_at,
        leased_by=live.session.worker if live else None,
        lease_expires_at=_lease_end(tables, live) if live else None,
        error_code=job.error.code if job.error else None,
        error_message=job.error.message if job.error else None,
        last_failure=job.last_failure,
        retry_type=job.retry_type,
        manual_retry_count=job.manual_retry_count,
        result=json.loads(result) if result is not None else None,
        artifact=artifact,
        tags=job.spec.tags,
        payload=json.loads(job.payload),
        progress={"percent": live.percent, "message": live.message} if live and has_progress else None,
        key=own_key(job.spec.key),
    )


def _lease_end(tables: Tables, live: Live) -> datetime:
    now, kept = tables.clock.monotonic(), tables.sessions.get(live.session.id)
    ends = now if kept is None else kept.until
    left = min(ends, live.run_until if live.run_until is not None else ends) - now
    return tables.clock.now() + timedelta(seconds=left)


def _has_arguments(arguments: Any, wanted: Mapping[str, Any]) -> bool:
    return all(name in arguments and _is_same(arguments[name], value) for name, value in wanted.items())


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON. In Python, True equals 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    return bool(one == other)


def _matches(job: Job, where: JobFilter) -> bool:
    return (
        not (hides_internal(where) and is_internal(job.lane.task))
        and (not where.states or job.state in where.states)
        and (not where.tasks or job.lane.task in where.tasks)
        and (not where.queues or job.lane.queue in where.queues)
        and (where.owner is None or job.spec.owner == where.owner)
        and (where.tag is None or where.tag in job.spec.tags)
        and (not where.args or _has_arguments(json.loads(job.payload), where.args))
        and _within(job.created_at, where.created_after, where.created_before)
        and (where.error_code is None or (job.error is not None and job.error.code == where.error_code))
        and (where.key is None or own_key(job.spec.key) == where.key)
    )


def _matches_dead(letter: DeadLetter, where: DeadLetterFilter) -> bool:
    return (
        not (hides_internal(where) and is_internal(letter.task))
        and (not where.tasks or letter.task in where.tasks)
        and (not where.queues or letter.queue in where.queues)
        and (not where.codes or letter.code in where.codes)
        and (where.fingerprint is None or letter.fingerprint == where.fingerprint)
        and (where.owner is None or letter.owner == where.owner)
        and (not where.ids or letter.id in where.ids)
        and _within(letter.at, where.died_after, where.died_before)
    )


def _within(at: datetime, after: datetime | None, before: datetime | None) -> bool:
    return (after is None or at >= after) and (before is None or at < before)
