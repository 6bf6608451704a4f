"""The statements of an enqueue and their order, as a plan that runs on any connection.

A plan is a generator: it yields (SQL, parameters), receives the rows, and returns the answers. The store runs it on its own
connection. `external_connections` runs it on a connection of the caller, which may be sync or async and of any library.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from holdfast.engine.ports import Row
from holdfast.jobs.job import Enqueued, JobBatch, JobId, JobSpec, Lane, NewJob
from holdfast.stores.columns import COLUMNS, SPECS, field_column, placeholders
from holdfast.stores.encoding import MOST_PER_EVENT
from holdfast.stores.postgres.notifier import CHANNEL, KEYS
from holdfast.stores.postgres.state_tables import in_states
from holdfast.stores.sql_files import load_sql

#: The parameters of `enqueue` and `enqueue_lanes` after the ids, the payloads and the lanes …
_PARAMETERS = (*COLUMNS, field_column("deadline_at", "timestamptz"))
#: … and those of `enqueue_again`.
_MORE_PARAMETERS = (
    *_PARAMETERS,
    field_column("delay", "interval"),
    field_column("run_at", "timestamptz"),
)
_NUMBERED = {
    column.name: f"${number}::{column.type}" for number, column in enumerate(_MORE_PARAMETERS, start=4)
}

SQL = load_sql(
    "holdfast.stores.postgres",
    in_states,
    texts=placeholders(lambda column: _NUMBERED[column.name])
    | {f"${name}": parameter for name, parameter in _NUMBERED.items()},
)

#: Returns the number of a lane, which is created if it does not exist. Until the end of the transaction that created it,
#: other transactions that need the lane wait.
LANE_NUMBER = "SELECT holdfast.lane_number($1::text, $2::text, $3::text, $4::text, $5::boolean)"
#: Does the same for many lanes.
LANE_NUMBERS = "SELECT holdfast.lane_numbers($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[])"

Plan = Generator[tuple[str, tuple[Any, ...]], Sequence[Row], list[Enqueued]]


def is_plain(spec: JobSpec) -> bool:
    """Return whether jobs of this spec have neither a dedupe key nor a concurrency key. One statement stores such jobs."""
    return spec.dedupe is None and spec.key is None


def plain(batch: JobBatch, lane: int) -> tuple[str, tuple[Any, ...]]:
    """Return the name and the parameters of the one statement that stores plain jobs of one lane.

    For jobs that are due at once, the statement raises `UniqueViolationError` if the id of one is known.
    """
    spec = batch.spec
    if spec.delay or spec.run_at is not None:
        return "enqueue_again", _more_parameters(batch, lane)
    return "enqueue", _parameters(batch, lane)


def together(batches: Sequence[JobBatch]) -> list[list[JobBatch]]:
    """Group neighbouring batches that one statement can store: plain jobs due at once whose specs differ in their lanes only."""
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
    """Return the name and the parameters of the one statement for batches whose specs differ in their lanes only.

    The jobs are in the order of their lanes, which `arrived.sql` relies on.
    """
    if len(batches) == 1:
        return plain(batches[0], lanes[batches[0].spec.lane])
    jobs = sorted(
        (lanes[batch.spec.lane], job_id, payload)
        for batch in batches
        for job_id, payload in zip(batch.ids, batch.payloads, strict=True)
    )
    ids, payloads = [job_id for _, job_id, _ in jobs], [payload for _, _, payload in jobs]
    together = JobBatch(ids, payloads, batches[0].spec)
    return "enqueue_lanes", _parameters(together, [lane for lane, _, _ in jobs])


def _parameters(batch: JobBatch, lanes: int | list[int]) -> tuple[Any, ...]:
    """Return the parameters of the statement that inserts *batch*. *lanes* is the lane of all its jobs, or a lane for each."""
    return batch.ids, batch.payloads, lanes, *_values(batch.spec)


def _more_parameters(batch: JobBatch, lane: int) -> tuple[Any, ...]:
    """Return the parameters of `enqueue_again`."""
    return batch.ids, batch.payloads, lane, *_values(batch.spec, more=True)


@lru_cache(SPECS)
def _values(spec: JobSpec, *, more: bool = False) -> tuple[Any, ...]:
    return tuple(column.value(spec) for column in (_MORE_PARAMETERS if more else _PARAMETERS))


def enqueue(jobs: Sequence[NewJob], *, lanes: Mapping[Lane, int] | None = None, grant: bool = True) -> Plan:
    """Return the plan that stores *jobs*. It may run again, and inside any transaction: a known id is no error.

    *lanes* has the numbers of lanes that are known. *grant* is False inside a transaction of the caller: it may stay open
    for long, and a transaction that grants a key makes others wait for its end. Its commit makes the workers grant instead.
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
                yield SQL["enqueue_again"], _more_parameters(part, lane)
            answers |= {job_id: Enqueued(job_id) for job_id in batch.ids}
    if keys and not grant:
        yield f"SELECT pg_notify('{CHANNEL}', '{KEYS}')", ()
    elif keys:
        [(_, freed)] = yield SQL["grant"], (list(keys),)
        if freed:  # a slot that the statement itself has emptied is taken only by the next one
            yield SQL["grant"], (list(keys),)
    return [answers[job.id] for job in jobs]


def _by_digest(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """Return *jobs* in the order of their dedupe keys, so that two callers with the same keys cannot deadlock."""
    if not isinstance(jobs, JobBatch) and any(job.spec.dedupe for job in jobs):
        return sorted(jobs, key=lambda job: job.spec.dedupe or b"")
    return jobs


def _unless_twin(
    job: NewJob, spec: JobSpec, lane: int
) -> Generator[tuple[str, tuple[Any, ...]], Sequence[Row], Enqueued]:
    """Store *job* unless it is a duplicate. Either way the row of its dedupe key stays locked until the end of the transaction."""
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
    yield SQL["enqueue_again"], _more_parameters(alone, lane)
    return Enqueued(job.id)
