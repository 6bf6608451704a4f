"""Requests that their senders have named, so that they may be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from holdfast.domain.job import Enqueued, NewJob
from holdfast.engine.api_store import KEEP_OPERATIONS, EarlierRequest, NamedRequest, Repeated, StartedRequest
from holdfast.stores.api_encoding import (
    answered,
    answers_json,
    begun,
    begun_before,
    first_answer,
    left,
    repeated,
    request_digest,
)
from holdfast.stores.sqlite import intake
from holdfast.stores.sqlite.move import Move
from holdfast.stores.sqlite.times import span


def enqueue_once(
    move: Move, request: NamedRequest, jobs: Sequence[NewJob], keep: timedelta
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


def begin_request(
    move: Move, request: NamedRequest, holder: str, lasts: timedelta, keep: timedelta
) -> StartedRequest | EarlierRequest:
    digest = request_digest(request)
    known = move.connection.execute(
        "SELECT fingerprint, answers FROM holdfast_request WHERE digest = ? AND until > ?", (digest, move.now)
    ).fetchone()
    if known is None:
        found: StartedRequest | EarlierRequest = begun(holder, holder, move.now + span(lasts))
    else:
        fingerprint, row = known
        found = begun_before(row, request, fingerprint, holder, move.now, span(lasts))
    if isinstance(found, StartedRequest):
        move.connection.execute(
            "INSERT OR REPLACE INTO holdfast_request (digest, fingerprint, answers, until) VALUES (?, ?, ?, ?)",
            (digest, request.fingerprint, found.ticket, move.now + span(keep)),
        )
    return found


def answer_request(move: Move, request: NamedRequest, ticket: str, answer: str, keep: timedelta) -> bool:
    return bool(
        move.connection.execute(
            "UPDATE holdfast_request SET answers = ?, until = ? WHERE digest = ? AND answers = ?",
            (answered(answer), move.now + span(keep), request_digest(request), ticket),
        ).rowcount
    )


def drop_request(move: Move, request: NamedRequest, ticket: str) -> bool:
    sql = "DELETE FROM holdfast_request WHERE digest = ? AND answers = ?"
    return bool(move.connection.execute(sql, (request_digest(request), ticket)).rowcount)


def leave_request(move: Move, request: NamedRequest, ticket: str) -> bool:
    sql = "UPDATE holdfast_request SET answers = ? WHERE digest = ? AND answers = ?"
    return bool(move.connection.execute(sql, (left(ticket), request_digest(request), ticket)).rowcount)


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
