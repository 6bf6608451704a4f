"""What a person does with a job: cancel it, retry it, or discard its dead letter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from holdfast.engine.lane_store import Charge
from holdfast.engine.ports import StuckAttempt
from holdfast.errors import Conflict, UnknownJob
from holdfast.jobs.job import Edit, JobId, Lease
from holdfast.jobs.judgements import retry_refusal
from holdfast.jobs.moves import MOVES, Kind, allows
from holdfast.jobs.precondition import UNCONDITIONAL, Precondition
from holdfast.jobs.verdict import Failure, RetryAfter
from holdfast.stores.encoding import (
    DeadlineGuard,
    key_is_taken,
    lost_failure,
    manual_meta,
    no_dead_letter,
    not_cancellable,
    to_json,
)
from holdfast.stores.postgres import outcomes
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.ids import known
from holdfast.stores.postgres.limits import charge_manual_retry
from holdfast.stores.postgres.move import Move
from holdfast.stores.postgres.outcomes import End, Requeue
from holdfast.stores.postgres.preconditions import WRITTEN, check
from holdfast.stores.postgres.recovery import bury_lost, ran_out
from holdfast.stores.postgres.state_tables import in_states


async def cancel(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    if await _is_repeated(move, known(job_id), precondition):
        return
    await check(move, job_id, precondition)
    job = End(known(job_id), None, manual_meta(by, reason, precondition.token))
    # A statement sees the tables as they were when it began, and misses a job that a claim moves meanwhile: send it again.
    for _ in range(20):
        if await outcomes.end(move, "cancel", [job], DeadlineGuard.ANY, epochs=None, crashes=0):
            return
        state = await move.state(job_id)
        if not allows("cancel", state):
            raise not_cancellable(job_id, state)
    raise Conflict(f"job {job_id} moves too fast to be cancelled; try again")


async def retry(
    move: Move,
    job_id: JobId,
    by: str,
    *,
    kind: Kind,
    forget: Collection[str] | None = None,
    queue: str | None = None,
    edit: Edit | None = None,
    priority: int | None = None,
    precondition: Precondition = UNCONDITIONAL,
    stuck: StuckAttempt | None = None,
    charges: Sequence[Charge] = (),
) -> int:
    if await _is_repeated(move, known(job_id), precondition):
        return int(await move.connection.fetchval(SQL["position"], job_id))
    lane = None if queue is None else await _lane_in(move, known(job_id), queue)
    await _take_key(move, known(job_id))
    await check(move, job_id, precondition)  # after the key: all retries lock them in this order
    if kind is Kind.redriven:
        await _require_dead_letter(move, job_id)
    meta = manual_meta(by, token=precondition.token, edit=edit, priority=priority)
    await _change(move, job_id, edit, priority)
    await _end_last_attempt(move, job_id, by, stuck)
    ended = await move.run("retry", job_id, int(kind), to_json(meta), lane)
    if ended:
        move.notice(kind, Lease(job_id, ended[0]["epoch"]), 0, meta)
    elif not await _hasten(move, job_id, kind, by, meta, stuck, priority):
        raise Conflict(retry_refusal(job_id, await move.state(job_id)))
    if forget is not None or edit is not None:
        await move.forget_steps(job_id, forget)
    await move.run("grant", None)
    if ended:  # the last lock, so that other retries of the owner wait only briefly
        await charge_manual_retry(move.connection, charges)
    return int(await move.connection.fetchval(SQL["position"], job_id))


async def _change(move: Move, job_id: JobId, edit: Edit | None, priority: int | None) -> None:
    """Write the job's new arguments and priority. If the retry is refused, its transaction is rolled back."""
    if edit is not None:
        await move.connection.execute(
            "UPDATE holdfast.job SET payload = $2, version = $3::smallint WHERE id = $1",
            job_id,
            edit.payload,
            edit.version,
        )
    if priority is not None:
        await move.connection.execute(
            "UPDATE holdfast.job SET prio = $2::smallint WHERE id = $1", job_id, -priority
        )


async def _require_dead_letter(move: Move, job_id: JobId) -> None:
    """Raise `Conflict` without a dead letter. It is not locked: if it is discarded now, this is the retry of a failed job."""
    if not await move.connection.fetchval("SELECT 1 FROM holdfast.dead_letter WHERE job_id = $1", job_id):
        await move.state(job_id)
        raise no_dead_letter(job_id)


async def _is_repeated(move: Move, job_id: JobId, precondition: Precondition) -> bool:
    """Return whether this very call was carried out before, and only its answer was lost (E6)."""
    if precondition.token is None:
        return False
    sql = "SELECT 1 FROM holdfast.event WHERE job_id = $1 AND metas[1] ->> 'token' = $2"
    return await move.connection.fetchval(sql, job_id, precondition.token) is not None


async def _lost_leases(
    move: Move, job_id: JobId, stuck: StuckAttempt | None
) -> list[tuple[Lease, Failure, int | None]]:
    """Return the lease that may be taken from its worker, why, and the crash that it counts as, if any."""
    found = (await ran_out(move, [job_id])).items()
    lost = [(lease, lost_failure(overran=overran), None if overran else 1) for lease, overran in found]
    return lost or ([] if stuck is None else [(stuck.lease, stuck.failure, None)])


async def _end_last_attempt(move: Move, job_id: JobId, by: str, stuck: StuckAttempt | None) -> None:
    """Fail a stuck job that has no attempt left. The retry then starts a new generation."""
    for lease, lost, crashes in await _lost_leases(move, job_id, stuck):
        spent = await move.connection.fetchval(
            "SELECT l.attempt >= j.max_attempts FROM holdfast.lease l JOIN holdfast.job j ON j.id = l.job_id WHERE j.id = $1",
            job_id,
        )
        if spent:
            await bury_lost(move, lease, lost, crashes, by)


async def _lane_in(move: Move, job_id: JobId, queue: str) -> int:
    """Return the number of the lane that the job's task has in another queue."""
    number = await move.connection.fetchval(
        "SELECT coalesce(g.lane, j.lane) FROM holdfast.job j LEFT JOIN holdfast.life g ON g.job_id = j.id WHERE j.id = $1",
        job_id,
    )
    if number is None:
        raise UnknownJob(job_id)
    lane = (await move.lanes.by_number(move.connection, [number]))[number]
    return await move.lanes.number(move.connection, lane._replace(queue=queue))


async def _take_key(move: Move, job_id: JobId) -> None:
    """Give a finished job its dedupe key again, or raise `Conflict` if another job has it."""
    digest = await move.connection.fetchval(
        "SELECT j.dedupe FROM holdfast.job j JOIN holdfast.done f ON f.job_id = j.id"
        f" WHERE j.id = $1 AND {in_states('f.done', MOVES['retry'][0])}",
        job_id,
    )
    if digest is None:
        return
    await move.connection.execute("SELECT 1 FROM holdfast.dedupe WHERE digest = $1 FOR UPDATE", digest)
    twin = await move.connection.fetchval(SQL["twin"], digest)
    if twin is not None and str(twin) != job_id:
        raise key_is_taken(job_id, str(twin))
    await move.connection.execute(
        "INSERT INTO holdfast.dedupe (digest, job_id) VALUES ($1, $2)"
        " ON CONFLICT (digest) DO UPDATE SET job_id = excluded.job_id", digest, job_id,
    )  # fmt: skip


async def _hasten(
    move: Move,
    job_id: JobId,
    kind: Kind,
    by: str,
    meta: dict[str, Any],
    stuck: StuckAttempt | None,
    priority: int | None,
) -> bool:
    """Make a deferred or stuck job due now, in the same generation; return whether it was one."""
    for lease, lost, crashes in await _lost_leases(move, job_id, stuck):
        # It is deferred only until the statement below makes it due.
        verdict = RetryAfter(timedelta(hours=1), lost)
        reclaimed = Requeue(
            lease, verdict, "reclaimed", crashes, {"error_code": lost.code, **manual_meta(by)}
        )
        await outcomes.requeue(move, "reclaim", Kind.reclaimed, [reclaimed], any_deadline=True)
    rows = await move.run("hasten", job_id, int(kind), to_json(meta), None if priority is None else -priority)
    for row in rows:
        move.notice(kind, Lease(job_id, row["epoch"]), row["attempt"], meta)
    return bool(rows)


async def discard(move: Move, job_id: JobId, by: str, reason: str, precondition: Precondition) -> None:
    if await _is_repeated(move, known(job_id), precondition):
        return
    # One statement deletes the letter, compares the version and records the event. With two statements, a retry that waited for the
    # first could get an event number below that of the second.
    meta = manual_meta(by, reason, precondition.token)
    row = await move.connection.fetchrow(
        "WITH f AS (SELECT job_id, epoch FROM holdfast.done WHERE job_id = $1::uuid"
        f"          AND ($4::text[] IS NULL OR ({WRITTEN}) = ANY ($4::text[]))),"
        " b AS (DELETE FROM holdfast.dead_letter d USING f WHERE d.job_id = f.job_id"
        "       RETURNING d.job_id, f.epoch, d.attempts::smallint AS attempts),"
        " e AS (INSERT INTO holdfast.event (seq, at, kind, job_ids, epochs, attempts, metas, job_id)"
        "       SELECT holdfast.event_number(), holdfast.clock(), $2::smallint, ARRAY[job_id], ARRAY[epoch], ARRAY[attempts],"
        "              ARRAY[$3::jsonb], job_id FROM b)"
        " SELECT epoch, attempts FROM b", known(job_id), int(Kind.discarded), to_json(meta),
        None if precondition.versions is None else [str(version) for version in precondition.versions],
    )  # fmt: skip
    if row is None:
        await check(move, job_id, precondition)
        await move.state(job_id)
        raise no_dead_letter(job_id)
    epoch, attempts = row
    move.notice(Kind.discarded, Lease(job_id, epoch), attempts, meta)
