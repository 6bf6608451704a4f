"""Enqueueing as a plan: which statements, in which order, whoever's connection runs them.

A plan is a generator that yields (SQL, parameters), is sent the rows, and returns the answers. The store drives it on its
own connection; `callers` drives it on a connection of the caller's, sync or async, whatever the library.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import groupby
from typing import Any

from holdfast.domain.job import Enqueued, JobId, JobSpec, NewJob
from holdfast.stores.sqlfiles import load_sql

SQL = load_sql("holdfast.stores.postgres")

#: How many jobs one event row may speak of: the place in the row is part of an event's id.
MOST_PER_EVENT = 1000

Row = Sequence[Any]
Plan = Generator[tuple[str, tuple[Any, ...]], Sequence[Row], list[Enqueued]]


def is_plain(spec: JobSpec) -> bool:
    """Due now, no key of either kind: one INSERT does."""
    return spec.dedupe is None and spec.key is None and not spec.delay and spec.run_at is None


def parameters(jobs: Sequence[NewJob], spec: JobSpec, lane: int) -> tuple[Any, ...]:
    return (
        [job.id for job in jobs],
        [job.payload for job in jobs],
        lane,
        -spec.priority,
        spec.max_attempts,
        spec.max_crashes,
        spec.version,
        spec.owner,
        spec.key,
        list(spec.tags) or None,
        spec.trace,
        spec.timeout,
        spec.deadline,
        spec.start_within,
        spec.dedupe,
        spec.dedupe_for,
        spec.deadline_at,
    )


def enqueue(jobs: Sequence[NewJob]) -> Plan:
    """Safe to send again, and inside any transaction: nothing here can fail because a job is known already."""
    answers: dict[JobId, Enqueued] = {}
    keyed = False
    for spec, group in groupby(_by_digest(jobs), key=lambda job: job.spec):
        batch = list(group)
        rows = yield "SELECT holdfast.lane_number($1::text, $2::text)", tuple(spec.lane)
        lane = rows[0][0]
        keyed |= spec.key is not None
        if spec.dedupe is not None:
            for job in batch:
                answers[job.id] = yield from _unless_twin(job, spec, lane)
        else:
            for start in range(0, len(batch), MOST_PER_EVENT):
                part = batch[start : start + MOST_PER_EVENT]
                yield SQL["enqueue_again"], (*parameters(part, spec, lane), spec.delay, spec.run_at)
            answers |= {job.id: Enqueued(job.id) for job in batch}
    if keyed:
        yield SQL["grant"], ()
    return [answers[job.id] for job in jobs]


def _by_digest(jobs: Sequence[NewJob]) -> Iterable[NewJob]:
    """In one order of dedupe keys, so that two callers with the same keys cannot wait for each other."""
    if any(job.spec.dedupe for job in jobs):
        return sorted(jobs, key=lambda job: job.spec.dedupe or b"")
    return jobs


def _unless_twin(
    job: NewJob, spec: JobSpec, lane: int
) -> Generator[tuple[str, tuple[Any, ...]], Sequence[Row], Enqueued]:
    """Take the key or find who holds it. The row of the key is locked either way, so nobody is between."""
    taken = yield (
        "INSERT INTO holdfast.dedupe (digest, job_id) VALUES ($1::bytea, $2::uuid) ON CONFLICT (digest) DO NOTHING RETURNING digest",
        (spec.dedupe, job.id),
    )
    if not taken:
        yield "SELECT job_id FROM holdfast.dedupe WHERE digest = $1::bytea FOR UPDATE", (spec.dedupe,)
        twin = yield SQL["twin"], (spec.dedupe,)
        if twin:
            found = JobId(str(twin[0][0]))
            return Enqueued(found, duplicate=found != job.id)
        yield "UPDATE holdfast.dedupe SET job_id = $2::uuid WHERE digest = $1::bytea", (spec.dedupe, job.id)
    yield SQL["enqueue_again"], (*parameters([job], spec, lane), spec.delay, spec.run_at)
    return Enqueued(job.id)
