"""Requests that their senders have named, so that they may be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.job import Enqueued, NewJob
from holdfast.engine.doorstore import KEEP_OPERATIONS, Repeated, Request
from holdfast.stores.doorshapes import answers_json, first_answer, repeated, request_digest
from holdfast.stores.sqlite import intake
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span


def enqueue_once(
    move: Move, request: Request, jobs: Sequence[NewJob], keep: timedelta
) -> Sequence[Enqueued] | Repeated:
    digest = request_digest(request)
    known = move.connection.execute(
        "SELECT fingerprint, answers FROM holdfast_request WHERE digest = ? AND until > ?", (digest, move.now)
    ).fetchone()
    if known is not None:
        return first_answer(repeated(*known), jobs)
    answers = intake.enqueue(move, jobs)
    move.connection.execute(
        "INSERT OR REPLACE INTO holdfast_request (digest, fingerprint, answers, until) VALUES (?, ?, ?, ?)",
        (digest, request.fingerprint, answers_json(answers), move.now + span(keep)),
    )
    return answers


def are_forgettable(move: Move) -> bool:
    """Whether there is something to remove: looking costs no write."""
    sql = """SELECT EXISTS (SELECT 1 FROM holdfast_request WHERE until <= ?1)
                 OR EXISTS (SELECT 1 FROM holdfast_operation WHERE progress <> 'running' AND updated_at <= ?2)"""
    return bool(move.rows(sql, move.now, move.now - span(KEEP_OPERATIONS))[0][0])


def forget_requests(move: Move, limit: int) -> int:
    gone = move.connection.execute(
        "DELETE FROM holdfast_request WHERE digest IN (SELECT digest FROM holdfast_request WHERE until <= ? LIMIT ?)",
        (move.now, limit),
    ).rowcount
    return gone + move.connection.execute(
        "DELETE FROM holdfast_operation WHERE number IN"
        " (SELECT number FROM holdfast_operation WHERE progress <> 'running' AND updated_at <= ? LIMIT ?)",
        (move.now - span(KEEP_OPERATIONS), limit - gone),
    ).rowcount  # fmt: skip
