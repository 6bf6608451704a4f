"""What maintenance does with jobs: expired leases, stuck attempts, passed deadlines, retention."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from holdfast.engine.extensions import PurgeHook
from holdfast.engine.ports import Reclaim, Row
from holdfast.jobs.job import Expired, JobId, Lease
from holdfast.jobs.moves import Kind
from holdfast.jobs.retention import Retention
from holdfast.jobs.verdict import Bury, RetryAfter
from holdfast.stores.encoding import (
    OVERRUN_MARGIN,
    DeadlineGuard,
    expired_lease,
    manual_meta,
    stored_cost,
    to_json,
)
from holdfast.stores.hooks import run_to_end
from holdfast.stores.sqlite import outcomes
from holdfast.stores.sqlite.attempt_data import purge_tracebacks
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span

#: The tables from which a purged job is deleted, with the column that has its number.
_PLACES = (
    ("holdfast_attempt", "job"), ("holdfast_attempt_log", "job"), ("holdfast_step", "job"), ("holdfast_late_result", "job"), ("holdfast_dedupe", "job"),
    ("holdfast_job", "id"),
)  # fmt: skip


# -- leases ---------------------------------------------------------------------------------------------------------------
def expired(move: Move, limit: int) -> list[Expired]:
    return _as_expired(move, _expired_rows(move, limit))


def stuck(
    move: Move,
    limits: Mapping[str, timedelta],
    limit: int,
    owner: str | None = None,
    ids: Collection[str] | None = None,
) -> list[Expired]:
    rows = move.run_rows(
        "stuck",
        limits=to_json({task: span(longest) for task, longest in limits.items()}),
        limit=limit,
        owner=owner,
        ids=None if ids is None else to_json(list(ids)),
        boot=move.boot,
        mono=move.mono,
    )
    return _as_expired(move, rows)


def _as_expired(move: Move, rows: Iterable[Row]) -> list[Expired]:
    lanes = move.lane_of
    return [expired_lease(row, lanes[row["lane"]]) for row in rows]


def ran_out(move: Move) -> dict[Lease, bool]:
    """Return every lease that has expired, and whether that is only because its attempt overran its timeout."""
    return {one.lease: one.overran for one in expired(move, -1)}


def _expired_rows(move: Move, limit: int) -> Iterable[Row]:
    return move.run_rows("expired", boot=move.boot, mono=move.mono, margin=span(OVERRUN_MARGIN), limit=limit)


def reclaim(move: Move, reclaims: Sequence[Reclaim], stuck: bool = False) -> int:
    """Take jobs from their workers, and return how many were taken.

    There are two guards: the statement compares the lease, and the lease must still have expired unless the attempt is *stuck*.
    """
    overran = {} if stuck else ran_out(move)
    due = {r.lease: r for r in reclaims if stuck or overran.get(r.lease) is (not r.crashed)}.values()
    return sum(_reclaim_one(move, one) for one in due)


def _reclaim_one(move: Move, one: Reclaim) -> bool:
    lease, verdict, crashed, by, cost = one
    crashes, meta = 1 if crashed else None, manual_meta(by)
    match verdict:
        case RetryAfter():
            return outcomes.reclaim(move, lease, verdict, crashes, meta, cost)
        case Bury(failure):
            meta = {"error_code": failure.code, **meta, "cost": stored_cost(cost)}
            return outcomes.bury(
                move, "reclaim", lease.job_id, failure, DeadlineGuard.ANY, epoch=lease.epoch, crashes=crashes, cost=cost, meta=meta
            )  # fmt: skip
    raise AssertionError(f"a reclaim queues the job again or fails it, and has no verdict {verdict}")


# -- deadlines --------------------------------------------------------------------------------------------------------------
def overdue(move: Move, limit: int, skip: int) -> list[JobId]:
    """Return the unfinished jobs whose deadline has passed, wherever they are."""
    return [JobId(uid) for (uid,) in move.run("overdue", now=move.now, limit=limit, skip=skip)]


def time_out(move: Move, limit: int, skip: int) -> list[JobId]:
    return [job_id for job_id in overdue(move, limit, skip) if outcomes.time_out(move, job_id)]


# -- retention ------------------------------------------------------------------------------------------------------------
def purge(
    move: Move,
    task: str | None,
    keep: Retention,
    limit: int,
    but: Collection[str],
    hooks: Sequence[PurgeHook] = (),
) -> int:
    """Delete what was kept long enough, call *hooks* with the deleted jobs, and return how much was deleted."""
    done = 0
    tasks = {"task": task, "but": to_json(list(but))}
    if keep.results is not None:
        rows = move.run(
            "purge_results", before=move.now - span(keep.results), now=move.now, limit=limit, **tasks
        ).fetchall()
        for uid, epoch, attempt in rows:
            move.record_one(Kind.expired, Lease(uid, epoch), attempt)
        done += len(rows)
    if keep.jobs is not None:
        rows = move.run("purge_jobs", before=move.now - span(keep.jobs), limit=limit, **tasks).fetchall()
        listed = to_json([number for number, _ in rows])
        for table, column in _PLACES:
            move.connection.execute(
                f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (listed,)
            )
        for hook in hooks if rows else ():
            run_to_end(hook(move.transaction, [JobId(uid) for _, uid in rows]))
        done += len(rows) or purge_tracebacks(move, limit)
    if keep.events is not None and task is None:
        # The newest row stays: the next number is counted from its number. The inner LIMIT reads only the oldest rows.
        done += move.connection.execute(
            "DELETE FROM holdfast_event WHERE seq IN (SELECT seq FROM (SELECT seq, at FROM holdfast_event ORDER BY seq LIMIT ?)"
            " WHERE at <= ? AND seq < (SELECT max(seq) FROM holdfast_event))",
            (limit, move.now - span(keep.events)),
        ).rowcount
    return done
