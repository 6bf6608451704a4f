"""Requests that their senders have named, so that they may be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.job import AllNew, Enqueued, JobBatch, NewJob
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
from holdfast.stores.postgres import enqueue_plan, intake
from holdfast.stores.postgres.enqueue_plan import SQL
from holdfast.stores.postgres.move import Move

_NOW = "SELECT (extract(epoch FROM holdfast.clock()) * 1000000)::bigint"


async def enqueue_once(
    move: Move, request: NamedRequest, jobs: Sequence[NewJob], keep: timedelta, quick: bool
) -> Sequence[Enqueued] | Repeated:
    """Inside a transaction: its row is taken first, so that of two at once the later waits here for the end of the other.

    *quick* raises `UniqueViolationError` where jobs are known whose request is not, or not any more.
    """
    digest, batches = request_digest(request), JobBatch.split(jobs)
    expected = AllNew([job_id for batch in batches for job_id in batch.ids])
    while not await move.run("take_request", digest, request.fingerprint, answers_json(expected), keep):
        known = await move.connection.fetchrow(
            "SELECT fingerprint, answers FROM holdfast.request WHERE digest = $1::bytea", digest
        )
        if known is not None:  # else it was removed in this very moment
            return first_answer(repeated(*known), jobs)
    if quick and all(enqueue_plan.is_plain(batch.spec) for batch in batches):
        return await intake.enqueue_plain(move, batches)
    answers = await intake.enqueue_planned(move, jobs)
    if any(answer.duplicate for answer in answers):
        await move.connection.execute(
            "UPDATE holdfast.request SET answers = $2::text WHERE digest = $1::bytea",
            digest,
            answers_json(answers),
        )
    return answers


async def begin_request(
    connection: asyncpg.Connection[Any], request: NamedRequest, holder: str, span: timedelta, keep: timedelta
) -> StartedRequest | EarlierRequest:
    """Inside a transaction: of two at once the later waits for the first one's row."""
    digest, lasts = request_digest(request), span // timedelta(microseconds=1)
    while True:
        now = await connection.fetchval(_NOW)
        fresh = begun(holder, holder, now + lasts)
        if await connection.fetch(SQL["take_request"], digest, request.fingerprint, fresh.ticket, keep):
            return fresh
        known = await connection.fetchrow(
            "SELECT fingerprint, answers FROM holdfast.request WHERE digest = $1::bytea FOR UPDATE", digest
        )
        if known is not None:  # else it was removed in this very moment
            break
    fingerprint, row = known
    found = begun_before(row, request, fingerprint, holder, await connection.fetchval(_NOW), lasts)
    if isinstance(found, StartedRequest):
        await connection.execute(
            "UPDATE holdfast.request SET answers = $2::text, until = holdfast.clock() + $3::interval WHERE digest = $1::bytea",
            digest,
            found.ticket,
            keep,
        )
    return found


async def answer_request(
    connection: asyncpg.Connection[Any], request: NamedRequest, ticket: str, answer: str, keep: timedelta
) -> bool:
    kept = await connection.fetchval(
        "UPDATE holdfast.request SET answers = $3::text, until = holdfast.clock() + $4::interval"
        " WHERE digest = $1::bytea AND answers IN ($2::text, $3::text) RETURNING true",
        request_digest(request), ticket, answered(answer), keep,
    )  # fmt: skip
    return kept is not None


async def drop_request(connection: asyncpg.Connection[Any], request: NamedRequest, ticket: str) -> bool:
    sql = "DELETE FROM holdfast.request WHERE digest = $1::bytea AND answers = $2::text RETURNING true"
    return await connection.fetchval(sql, request_digest(request), ticket) is not None


async def leave_request(connection: asyncpg.Connection[Any], request: NamedRequest, ticket: str) -> bool:
    sql = "UPDATE holdfast.request SET answers = $3::text WHERE digest = $1::bytea AND answers = $2::text RETURNING true"
    return await connection.fetchval(sql, request_digest(request), ticket, left(ticket)) is not None


async def forget_requests(connection: asyncpg.Connection[Any], limit: int) -> int:
    gone = await connection.fetchval(
        "WITH gone AS (DELETE FROM holdfast.request WHERE digest IN"
        " (SELECT digest FROM holdfast.request WHERE until <= holdfast.clock() LIMIT $1::int FOR UPDATE SKIP LOCKED)"
        " RETURNING 1) SELECT count(*) FROM gone",
        limit,
    )
    ended = await connection.fetchval(
        "WITH gone AS (DELETE FROM holdfast.operation WHERE number IN (SELECT number FROM holdfast.operation"
        " WHERE progress <> 'running' AND updated_at <= holdfast.clock() - $1::interval LIMIT $2::int FOR UPDATE SKIP LOCKED)"
        " RETURNING 1) SELECT count(*) FROM gone",
        KEEP_OPERATIONS, limit - gone,
    )  # fmt: skip
    return int(gone + ended)
