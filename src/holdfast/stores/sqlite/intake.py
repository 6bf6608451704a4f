"""Jobs on their way in: enqueue, reject, promote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from holdfast.domain.job import AllNew, Enqueued, JobBatch, JobId, Lease, NewJob
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.stores.encoding import MOST_PER_EVENT, to_json
from holdfast.stores.sqlite import fairness
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.phases import DEFERRED, IN_LINE
from holdfast.stores.sqlite.times import maybe_span, micros, span


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


def _insert(move: Move, batch: JobBatch, *, silent: bool = False) -> None:
    """One statement for the whole batch, and one event unless *silent*."""
    spec, now = batch.spec, move.now
    seq = move.next_seq()
    run_at = micros(spec.run_at) if spec.run_at else now + span(spec.delay) if spec.delay else now
    sla = maybe_span(spec.deadline)
    lane = move.lanes.number(move.connection, spec.lane)
    first, step = max(run_at, now), 0
    in_turn = spec.lane.fair and run_at <= now and not silent
    if in_turn:
        first, step = fairness.enter(move, lane, -spec.priority, spec.owner)
    shared = {
        "lane": lane,
        "phase": IN_LINE if run_at <= now else DEFERRED,
        "prio": -spec.priority,
        "run_at": run_at,
        "created_at": now,
        "queued_at": now,
        "updated_at": now,
        "queued_event": seq,
        "max_attempts": spec.max_attempts,
        "max_crashes": spec.max_crashes,
        "version": spec.version,
        "owner": spec.owner,
        "key": spec.key,
        "key_slots": spec.key_slots if spec.key_slots > 1 else None,
        "tags": to_json(spec.tags) if spec.tags else None,
        "trace": spec.trace,
        "timeout": maybe_span(spec.timeout),
        "sla": sla,
        "start_within": maybe_span(spec.start_within),
        "dedupe": spec.dedupe.hex() if spec.dedupe else None,
        "dedupe_for": maybe_span(spec.dedupe_for),
        "deadline_at": micros(spec.deadline_at) if spec.deadline_at else None if sla is None else now + sla,
    }
    added = _add(move, batch, shared, first, step)
    if in_turn and added:
        fairness.entered(move, lane, -spec.priority, spec.owner, first + (len(batch) - 1) * step)
    if silent:
        return
    new: Iterable[str] = batch.ids
    if added < len(
        batch
    ):  # the rest was stored by an earlier call whose answer was lost: its event is on record
        rows = move.connection.execute(
            "SELECT uid FROM holdfast_job WHERE queued_event = ? AND created_at = ?", (seq, now)
        )
        stored = {uid for (uid,) in rows}
        new = [uid for uid in batch.ids if uid in stored]
    move.record(seq, Kind.queued, [(uid, 0, 0, None) for uid in new])


def _add(move: Move, batch: JobBatch, shared: dict[str, Any], first: int, step: int) -> int:
    """The rows of *batch*, which have these columns in *shared*; how many were not known before."""
    if len(batch) > 1:
        jobs = to_json(list(zip(batch.ids, batch.payloads, strict=True)))
        return move.run("enqueue", jobs=jobs, first=first, step=step, **shared).rowcount
    row = {name: value for name, value in shared.items() if value is not None}
    row["uid"], row["payload"], row["ord"] = batch.ids[0], batch.payloads[0], first
    return move.connection.execute(_enqueue_one(tuple(row)), tuple(row.values())).rowcount


@cache
def _enqueue_one(columns: tuple[str, ...]) -> str:
    """`enqueue` for a lone job: without JSON, and without the columns that it leaves empty, because `sqlite3` takes
    a microsecond to bind each NULL."""
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
    """The job that stands in for a new one with this dedupe key."""
    row = move.run("twin", digest=digest, now=move.now).fetchone()
    return None if row is None else JobId(row[0])


def take_key(move: Move, digest: str, number: int) -> None:
    """From now on this job stands in for others with the key."""
    move.connection.execute(
        "INSERT OR REPLACE INTO holdfast_dedupe (digest, job) VALUES (?, ?)", (digest, number)
    )


def reject(move: Move, job: NewJob, failure: Failure) -> None:
    if move.look(job.id) is not None:
        return
    _insert(move, JobBatch([job.id], [job.payload], job.spec), silent=True)
    move.run(
        "bury",
        id=move.find(job.id).number,
        now=move.now,
        code=failure.code,
        message=failure.message,
        last_failure=None,
        crashes=None,
    )
    move.record_one(Kind.rejected, Lease(job.id, 0), 0, error_code=failure.code)


def promote(move: Move, limit: int) -> timedelta | None:
    """Let what is due into line; how long until the next one is."""
    move.run("promote", now=move.now, limit=limit).fetchall()
    return next_due(move)


def next_due(move: Move) -> timedelta | None:
    """How long until the next deferred job may step into line; no time at all when one may already."""
    [(due,)] = move.run("due", now=move.now)
    return None if due is None else timedelta(microseconds=max(due - move.now, 0))
