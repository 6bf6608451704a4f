"""What housekeeping does: leases that ran out, deadlines that passed, records that were kept long enough."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from holdfast.domain.job import Expired, JobId, Lease
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Bury, RetryAfter
from holdfast.engine.ports import Reclaim, Retention
from holdfast.stores.encoding import OVERRUN_MARGIN, said, to_json
from holdfast.stores.sqlite.attempt_data import purge_tracebacks
from holdfast.stores.sqlite.move import Found, Move
from holdfast.stores.sqlite.outcomes import bury, end_attempt, reclaim_one, time_out_one
from holdfast.stores.sqlite.phases import PROCESSING
from holdfast.stores.sqlite.times import span

#: Where a purged job leaves nothing behind: the table, and its column for the job.
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
    told = to_json({task: span(most) for task, most in limits.items()})
    only = None if ids is None else to_json(list(ids))
    now = {"boot": move.boot, "mono": move.mono}
    rows = move.run("stuck", limits=told, limit=limit, owner=owner, ids=only, **now).fetchall()
    return _as_expired(move, rows)


def _as_expired(move: Move, rows: Sequence[tuple[Any, ...]]) -> list[Expired]:
    lanes = move.lane_of
    return [
        Expired(Lease(uid, epoch), lanes[lane], attempt, most, crashes, max_crashes, worker, bool(overran))
        for uid, epoch, lane, attempt, most, crashes, max_crashes, worker, overran in rows
    ]


def ran_out(move: Move) -> dict[Lease, bool]:
    """Every lease that ran out, and whether it is only that its attempt overran."""
    return {Lease(row[0], row[1]): bool(row[8]) for row in _expired_rows(move, -1)}


def _expired_rows(move: Move, limit: int) -> list[tuple[Any, ...]]:
    return move.run(
        "expired", boot=move.boot, mono=move.mono, margin=span(OVERRUN_MARGIN), limit=limit
    ).fetchall()


def reclaim(move: Move, reclaims: Sequence[Reclaim], stuck: bool = False) -> int:
    """Guarded twice: the lease must still be the current one, and must still have run out, unless it is *stuck*."""
    if stuck:
        due = {r.lease: r for r in reclaims if _holds(move, r.lease)}.values()
    else:
        overran = ran_out(move)
        due = {r.lease: r for r in reclaims if overran.get(r.lease) is (not r.crashed)}.values()
    for lease, verdict, crashed, by in due:
        job, crashes = move.find(lease.job_id), 1 if crashed else None
        match verdict:
            case RetryAfter(_, failure):
                reclaim_one(move, job, verdict, crashes)
                move.record_one(Kind.reclaimed, lease, job.attempt, error_code=failure.code, **said(by))
            case Bury(failure):
                end_attempt(move, job, "reclaimed", failure)
                bury(move, job, failure, Kind.failed, crashes=crashes, by=by)
            case _:
                raise AssertionError(f"a reclaim ends in line or in the grave, not as {verdict}")
    return len(due)


def _holds(move: Move, lease: Lease) -> bool:
    job = move.look(lease.job_id)
    return job is not None and job.phase == PROCESSING and job.epoch == lease.epoch


# -- deadlines --------------------------------------------------------------------------------------------------------------
def overdue(move: Move, limit: int, skip: int) -> Iterator[Found]:
    """Whose deadline has passed, wherever they are."""
    return move.jobs(
        "deadline_at IS NOT NULL AND phase <= 2 AND deadline_at < ? ORDER BY deadline_at, id LIMIT ? OFFSET ?",
        move.now,
        limit,
        skip,
    )


def time_out(move: Move, limit: int, skip: int) -> list[JobId]:
    passed = list(overdue(move, limit, skip))
    for job in passed:
        time_out_one(move, job)
    return [job.uid for job in passed]


# -- retention ------------------------------------------------------------------------------------------------------------
def purge(move: Move, task: str | None, keep: Retention, limit: int, but: Collection[str]) -> int:
    done = 0
    whose = {"task": task, "but": to_json(list(but))}
    if keep.results is not None:
        rows = move.run(
            "purge_results", before=move.now - span(keep.results), now=move.now, limit=limit, **whose
        ).fetchall()
        for uid, epoch, attempt in rows:
            move.record_one(Kind.expired, Lease(uid, epoch), attempt)
        done += len(rows)
    if keep.jobs is not None:
        rows = move.run("purge_jobs", before=move.now - span(keep.jobs), limit=limit, **whose).fetchall()
        listed = to_json([number for (number,) in rows])
        move.connection.execute(  # what it has paid is in the ledger, which stays
            "DELETE FROM holdfast_credit_hold WHERE standing <> 'held'"
            " AND job IN (SELECT uid FROM holdfast_job WHERE id IN (SELECT value FROM json_each(?)))",
            (listed,),
        )
        for table, column in _PLACES:
            move.connection.execute(
                f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (listed,)
            )
        done += len(rows) or purge_tracebacks(move, limit)
    if keep.events is not None and task is None:
        # The newest row stays: its number is where the next one counts on from. Only the oldest rows are looked at: those
        # behind them are younger.
        done += move.connection.execute(
            "DELETE FROM holdfast_event WHERE seq IN (SELECT seq FROM (SELECT seq, at FROM holdfast_event ORDER BY seq LIMIT ?)"
            " WHERE at <= ? AND seq < (SELECT max(seq) FROM holdfast_event))",
            (limit, move.now - span(keep.events)),
        ).rowcount
    return done
