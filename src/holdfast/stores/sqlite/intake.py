"""Store new jobs: enqueue, reject, promote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any

from holdfast.jobs.job import AllNew, Enqueued, JobBatch, JobId, JobSpec, NewJob
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Failure
from holdfast.stores.columns import COLUMNS, SPECS
from holdfast.stores.encoding import MOST_PER_EVENT, to_json
from holdfast.stores.sqlite import fairness
from holdfast.stores.sqlite.facts import end_facts
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.phases import DEFERRED, FAILED, READY
from holdfast.stores.sqlite.times import maybe_span, micros, span

#: How values are stored, by the type of their column. A type without an entry is stored as it is.
_ENCODERS: Mapping[str, Callable[[Any], Any]] = {"interval": span, "bytea": bytes.hex, "text[]": to_json}
_ENCODED = [(column.name, _ENCODERS[column.type]) for column in COLUMNS if column.type in _ENCODERS]


def enqueue(move: Move, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
    answers: list[Enqueued] = []
    batches = JobBatch.split(jobs)
    for batch in batches:
        if batch.spec.dedupe is None:
            for part in batch.parts(MOST_PER_EVENT):
                _insert(move, part)
            if len(batches) == 1:
                return AllNew(batch.ids)
            answers += AllNew(batch.ids)
        else:
            answers += [_enqueue_unless_twin(move, job) for job in batch]
    return answers


def _insert(move: Move, batch: JobBatch) -> None:
    """Insert the whole batch with one statement, and record one event for it."""
    spec, now = batch.spec, move.now
    columns = _columns(move, spec)
    lane, seq, run_at = columns["lane"], columns["queued_event"], columns["run_at"]
    first, step = max(run_at, now), 0
    in_turn = spec.lane.fair and run_at <= now
    if in_turn:
        first, step = fairness.enter(move, lane, -spec.priority, spec.owner)
    added = _add(move, batch, columns, first, step)
    if in_turn and added:
        fairness.entered(move, lane, -spec.priority, spec.owner, first + (len(batch) - 1) * step)
    new: Iterable[str] = batch.ids
    if added < len(batch):
        # The others were stored by an earlier call whose answer was lost. Their event is on record.
        rows = move.connection.execute(
            "SELECT uid FROM holdfast_job WHERE queued_event = ? AND created_at = ?", (seq, now)
        )
        stored = {uid for (uid,) in rows}
        new = [uid for uid in batch.ids if uid in stored]
    moves = [(uid, 0, 0, None) for uid in new]
    move.record(seq, Kind.queued, moves, facts=f"[[{lane},{len(moves)}]]")


def _columns(move: Move, spec: JobSpec) -> dict[str, Any]:
    """Return the columns that all jobs of a batch share."""
    now = move.now
    run_at = micros(spec.run_at) if spec.run_at else now + span(spec.delay) if spec.delay else now
    sla = maybe_span(spec.deadline)
    return {
        "lane": move.lanes.number(move.connection, spec.lane),
        "phase": READY if run_at <= now else DEFERRED,
        "run_at": run_at,
        "created_at": now,
        "queued_at": now,
        "updated_at": now,
        "queued_event": move.next_seq(),
        "deadline_at": micros(spec.deadline_at) if spec.deadline_at else None if sla is None else now + sla,
        **_stored(spec),
    }


@lru_cache(SPECS)
def _stored(spec: JobSpec) -> Mapping[str, Any]:
    """Return the columns of *spec* by name, as they are stored."""
    row = {column.name: column.value(spec) for column in COLUMNS}
    for name, encode in _ENCODED:
        if row[name] is not None:
            row[name] = encode(row[name])
    return row


def _add(move: Move, batch: JobBatch, columns: dict[str, Any], first: int, step: int) -> int:
    """Insert the rows of *batch*, and return how many were not stored before."""
    if len(batch) > 1:
        jobs = to_json(list(zip(batch.ids, batch.payloads, strict=True)))
        return move.run("enqueue", jobs=jobs, first=first, step=step, **columns).rowcount
    row = {name: value for name, value in columns.items() if value is not None}
    row["uid"], row["payload"], row["ord"] = batch.ids[0], batch.payloads[0], first
    return move.connection.execute(_enqueue_one(tuple(row)), tuple(row.values())).rowcount


@cache
def _enqueue_one(columns: tuple[str, ...]) -> str:
    """Return `enqueue` for one job: without JSON and without columns that are null, because `sqlite3` takes
    a microsecond to bind each null."""
    return (
        f"INSERT INTO holdfast_job ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        " ON CONFLICT (uid) DO NOTHING"
    )


def _enqueue_unless_twin(move: Move, job: NewJob) -> Enqueued:
    assert job.spec.dedupe is not None
    digest = job.spec.dedupe.hex()
    twin = twin_of(move, digest)
    if twin is not None:
        return Enqueued(twin, duplicate=twin != job.id)
    _insert(move, JobBatch([job.id], [job.payload], job.spec))
    take_key(move, digest, move.find(job.id).number)
    return Enqueued(job.id)


def twin_of(move: Move, digest: str) -> JobId | None:
    """Return the job of which a new one with this dedupe key is a duplicate."""
    row = move.run("twin", digest=digest, now=move.now).fetchone()
    return None if row is None else JobId(row[0])


def take_key(move: Move, digest: str, number: int) -> None:
    """Store that later jobs with this dedupe key are duplicates of this one."""
    move.connection.execute(
        "INSERT OR REPLACE INTO holdfast_dedupe (digest, job) VALUES (?, ?)", (digest, number)
    )


def reject(move: Move, job: NewJob, failure: Failure) -> None:
    columns = _columns(move, job.spec) | {
        "phase": FAILED,
        "finished_at": move.now,
        "error_code": failure.code,
        "error_message": failure.message,
    }
    if _add(move, JobBatch([job.id], [job.payload], job.spec), columns, columns["run_at"], 0):
        moves = [(job.id, 0, 0, {"error_code": failure.code})]
        facts = end_facts(moves, [columns["lane"]])
        move.record(columns["queued_event"], Kind.rejected, moves, job=job.id, facts=facts)


def promote(move: Move, limit: int) -> timedelta | None:
    """Make deferred jobs ready that are due, and return how long it is until the next one is due."""
    move.run("promote", now=move.now, limit=limit).fetchall()
    return next_due(move)


def next_due(move: Move) -> timedelta | None:
    """Return how long it is until the next deferred job is due: zero if one is due already, None if there is none."""
    [(due,)] = move.run("due", now=move.now)
    return None if due is None else timedelta(microseconds=max(due - move.now, 0))
