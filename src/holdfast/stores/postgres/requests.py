"""Requests that their senders have named, so that they may be sent again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import asyncpg

from holdfast.domain.job import AllNew, Batch, Enqueued, NewJob
from holdfast.engine.doorstore import KEEP_OPERATIONS, Repeated, Request
from holdfast.stores.doorshapes import answers_json, first_answer, repeated, request_digest
from holdfast.stores.postgres import intake, plans
from holdfast.stores.postgres.move import Move


async def enqueue_once(
    move: Move, request: Request, jobs: Sequence[NewJob], keep: timedelta, quick: bool
) -> Sequence[Enqueued] | Repeated:
    """Inside a transaction: its row is taken first, so that of two at once the later waits here for the end of the other.

    *quick* raises `UniqueViolationError` where jobs are known whose request is not, or not any more.
    """
    digest, batches = request_digest(request), Batch.split(jobs)
    expected = AllNew([job_id for batch in batches for job_id in batch.ids])
    while not await move.run("take_request", digest, request.fingerprint, answers_json(expected), keep):
        known = await move.connection.fetchrow(
            "SELECT fingerprint, answers FROM holdfast.request WHERE digest = $1::bytea", digest
        )
        if known is not None:  # else it was removed in this very moment
            return first_answer(repeated(*known), jobs)
    if quick and all(plans.is_plain(batch.spec) for batch in batches):
        return await intake.enqueue_plain(move, batches)
    answers = await intake.enqueue_planned(move, jobs)
    if any(answer.duplicate for answer in answers):
        await move.connection.execute(
            "UPDATE holdfast.request SET answers = $2::text WHERE digest = $1::bytea",
            digest,
            answers_json(answers),
        )
    return answers


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
