"""Enqueueing as a plan: which statements, in which order, on whichever connection they run.

A plan is a generator that yields (SQL, parameters), is sent the rows, and returns the answers. The store drives it on its
own connection; `callers` drives it on a connection of the caller's, sync or async, whatever the library.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.domain.job import Enqueued, JobBatch, JobId, JobSpec, Lane, NewJob
from holdfast.stores.encoding import MOST_PER_EVENT
from holdfast.stores.postgres.notifier import CHANNEL, KEYS
from holdfast.stores.sql_files import load_sql

SQL = load_sql("holdfast.stores.postgres")

#: Made if necessary: another transaction that needs the same new lane then waits for the end of this one.
LANE_NUMBER = "SELECT holdfast.lane_number($1::text, $2::text, $3::text, $4::text, $5::boolean)"
#: The same for many lanes at once.
LANE_NUMBERS = "SELECT holdfast.lane_numbers($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])"

Row = Sequence[Any]
Plan = Generator[tuple[str, tuple[Any, ...]], Sequence[Row], list[Enqueued]]


def is_plain(spec: JobSpec) -> bool:
    """No key of either kind: one statement does."""
    return spec.dedupe is None and spec.key is None


def plain(batch: JobBatch, lane: int) -> tuple[str, tuple[Any, ...]]:
    """The one statement for plain jobs. Of those due at once it raises `UniqueViolationError` where one was sent before."""
    spec = batch.spec
    if spec.delay or spec.run_at is not None:
        return "enqueue_again", (*parameters(batch, lane), *_later(spec))
    return "enqueue", parameters(batch, lane)


def together(batches: Sequence[JobBatch]) -> list[list[JobBatch]]:
    """Group neighbours that one statement can enqueue: plain jobs due at once that differ in nothing but their lanes."""
    groups: list[list[JobBatch]] = []
    jobs = 0
    for batch in batches:
        jobs += len(batch)
        if not groups or jobs > MOST_PER_EVENT or not _alike(groups[-1][0].spec, batch.spec):
            groups.append([])
            jobs = len(batch)
        groups[-1].append(batch)
    return groups


def _alike(first: JobSpec, spec: JobSpec) -> bool:
    return not (spec.delay or spec.run_at is not None) and replace(spec, lane=first.lane) == first


def plain_lanes(batches: Sequence[JobBatch], lanes: Mapping[Lane, int]) -> tuple[str, tuple[Any, ...]]:
    """The one statement for batches that differ in nothing but their lanes, in the order of these: see `arrived`."""
    if len(batches) == 1:
        return plain(batches[0], lanes[batches[0].spec.lane])
    jobs = sorted(
        (lanes[batch.spec.lane], job_id, payload)
        for batch in batches
        for job_id, payload in zip(batch.ids, batch.payloads, strict=True)
    )
    ids, payloads = [job_id for _, job_id, _ in jobs], [payload for _, _, payload in jobs]
    shared = parameters(JobBatch(ids, payloads, batches[0].spec), 0)
    return "enqueue_lanes", (*shared[:2], [lane for lane, _, _ in jobs], *shared[3:])


def parameters(batch: JobBatch, lane: int) -> tuple[Any, ...]:
    spec = batch.spec
    return (
        batch.ids,
        batch.payloads,
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


def _later(spec: JobSpec) -> tuple[Any, ...]:
    """What a job has to say that does not enter its line at once."""
    return spec.delay, spec.run_at, spec.key_slots if spec.key_slots > 1 else None


def enqueue(jobs: Sequence[NewJob], *, lanes: Mapping[Lane, int] | None = None, grant: bool = True) -> Plan:
    """Safe to send again, and inside any transaction: nothing here can fail because a job is known already.

    *lanes* are the numbers that are known. *grant* False inside a transaction of the caller's: it may stay open for long,
    and a transaction that moves a key makes all others wait for its end. Its commit tells the workers to grant instead.
    """
    answers: dict[JobId, Enqueued] = {}
    keys: set[str] = set()
    for batch in JobBatch.split(_by_digest(jobs)):
        spec = batch.spec
        lane = (lanes or {}).get(spec.lane)
        if lane is None:
            [(lane,)] = yield LANE_NUMBER, tuple(spec.lane)
        if spec.key is not None:
            keys.add(spec.key)
        if spec.dedupe is not None:
            for job in batch:
                answers[job.id] = yield from _unless_twin(job, spec, lane)
        else:
            for part in batch.parts(MOST_PER_EVENT):
                yield SQL["enqueue_again"], (*parameters(part, lane), *_later(spec))
            answers |= {job_id: Enqueued(job_id) for job_id in batch.ids}
    if keys and not grant:
        yield f"SELECT pg_notify('{CHANNEL}', '{KEYS}')", ()
    elif keys:
        [(_, freed)] = yield SQL["grant"], (list(keys),)
        if freed:  # a slot that the statement itself has emptied is taken only by the next one
            yield SQL["grant"], (list(keys),)
    return [answers[job.id] for job in jobs]


def _by_digest(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """In one order of dedupe keys, so that two callers with the same keys cannot wait for each other."""
    if not isinstance(jobs, JobBatch) and any(job.spec.dedupe for job in jobs):
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
    alone = JobBatch([job.id], [job.payload], spec)
    yield SQL["enqueue_again"], (*parameters(alone, lane), *_later(spec))
    return Enqueued(job.id)
