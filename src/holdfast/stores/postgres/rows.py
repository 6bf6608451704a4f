"""Reading: rows of PostgreSQL as the values everyone sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from holdfast.domain.codes import ErrorClass
from holdfast.domain.job import (
    Attempt,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterGroup,
    Event,
    JobFilter,
    JobId,
    JobRow,
    LateResult,
)
from holdfast.domain.moves import Kind, State
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Page
from holdfast.errors import UsageError
from holdfast.stores.postgres.plans import SQL

_decode = msgspec.json.Decoder().decode
EVENTS_PER_ROW = 10_000


def _json(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError:  # a damaged row is shown as it is, not hidden
        return text


def job_row(row: asyncpg.Record) -> JobRow:
    failure = _json(row["last_failure"])
    if failure:
        failure["at"] = datetime.fromisoformat(failure["at"])
    return JobRow(
        id=JobId(str(row["id"])),
        task=row["task"],
        queue=row["queue"],
        owner=row["owner"],
        priority=row["priority"],
        state=State(row["state"]),
        generation=row["generation"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        crashes=row["crashes"],
        run_at=row["run_at"],
        created_at=row["created_at"],
        queued_at=row["queued_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        last_attempt_at=row["last_attempt_at"],
        updated_at=row["updated_at"],
        deadline_at=row["deadline_at"],
        expired_at=row["expired_at"],
        leased_by=row["leased_by"],
        lease_expires_at=row["lease_expires_at"],
        error_code=row["error_code"],
        error_message=row["error_message"],
        last_failure=failure,
        retry_type=row["retry_type"],
        manual_retry_count=row["manual_retry_count"],
        result=_json(row["result"]),
        tags=tuple(row["tags"]),
        payload=_json(row["payload"]),
        progress=_json(row["progress"]),
        key=row["key"],
    )


class Reader:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._db = connection

    async def job(self, job_id: JobId) -> JobRow | None:
        row = await self._db.fetchrow("SELECT * FROM holdfast.jobs WHERE id = $1", job_id)
        return job_row(row) if row else None

    async def jobs(self, where: JobFilter, after: str | None, limit: int) -> Page:
        conditions: list[str] = []
        params: list[Any] = []

        def add(condition: str, *values: Any) -> None:
            for value in values:
                params.append(value)
                condition = condition.replace("?", f"${len(params)}", 1)
            conditions.append(condition)

        if after is not None:
            if len(after) != 36 or after.count("-") != 4:
                raise UsageError(f"{after!r} is not a cursor; pass the `next` of the page before")
            add("id < ?::uuid", after)
        if where.states:
            add("state = ANY (?::text[])", [str(state) for state in where.states])
        if where.tasks:
            add("task = ANY (?::text[])", list(where.tasks))
        if where.queues:
            add("queue = ANY (?::text[])", list(where.queues))
        if where.owner is not None:
            add("owner = ?::text", where.owner)
        if where.tag is not None:
            add("?::text = ANY (tags)", where.tag)
        for name, value in where.args.items():
            add(
                "(payload::json -> ?::text)::text::jsonb = ?::jsonb",
                name,
                msgspec.json.encode(value).decode(),
            )
        add("true LIMIT ?::int", limit + 1)
        text = " AND ".join(conditions).replace("true LIMIT", "true ORDER BY id DESC LIMIT")
        try:
            rows = await self._db.fetch(f"SELECT * FROM holdfast.jobs WHERE {text}", *params)
        except asyncpg.DataError:
            raise UsageError(f"{after!r} is not a cursor; pass the `next` of the page before") from None
        return Page(
            [job_row(row) for row in rows[:limit]], str(rows[limit - 1]["id"]) if len(rows) > limit else None
        )

    async def counts(self) -> dict[str, int]:
        row = await self._db.fetchrow(
            """SELECT (SELECT count(*) FROM holdfast.ready) + (SELECT count(*) FROM holdfast.deferred) AS queued,
                      (SELECT count(*) FROM holdfast.lease) AS processing,
                      count(*) FILTER (WHERE state = 3) AS complete, count(*) FILTER (WHERE state = 4) AS failed,
                      count(*) FILTER (WHERE state = 5) AS cancelled
                 FROM holdfast.done"""
        )
        assert row is not None
        return {str(state): row[state.value] for state in State}

    async def events(self, after: int, limit: int) -> list[Event]:
        found: list[Event] = []
        seq = after // EVENTS_PER_ROW
        while len(found) < limit:
            rows = await self._db.fetch(SQL["feed"], seq, 100)
            for row in rows:
                found += [event for event in _unpack(row) if event.id > after]
                if len(found) >= limit:
                    break
            if len(rows) < 100:
                break
            seq = rows[-1]["seq"] + 1
        return found[:limit]

    async def events_of(self, job_id: JobId, after: int, limit: int) -> list[Event]:
        rows = await self._db.fetch(SQL["job_events"], job_id)
        return [e for row in rows for e in _unpack(row) if e.job_id == job_id and e.id > after][:limit]

    async def attempts(self, job_id: JobId) -> list[Attempt]:
        rows = await self._db.fetch(
            """SELECT a.epoch, a.generation, a.attempt, a.started_at, a.ended_at, a.outcome, a.failure, s.worker
                 FROM (SELECT epoch, generation, attempt, started_at, ended_at, outcome, failure, session_id
                         FROM holdfast.attempt WHERE job_id = $1
                       UNION ALL
                       SELECT epoch, generation, attempt, claimed_at, NULL, NULL, NULL, session_id FROM holdfast.lease WHERE job_id = $1
                       UNION ALL
                       SELECT epoch, generation, attempt, started_at, finished_at, 'complete', NULL, session_id
                         FROM holdfast.done WHERE job_id = $1 AND state = 3) a
                 LEFT JOIN holdfast.session s ON s.id = a.session_id ORDER BY a.epoch""",
            job_id,
        )
        return [
            Attempt(
                job_id=job_id,
                epoch=row["epoch"],
                generation=row["generation"],
                attempt=row["attempt"],
                worker=row["worker"],
                started_at=row["started_at"],
                ended_at=row["ended_at"],
                outcome=row["outcome"],
                failure=_failure(_json(row["failure"])),
            )
            for row in rows
        ]

    async def dead_letters(self, where: DeadLetterFilter, after: str | None, limit: int) -> list[DeadLetter]:
        rows = await self._db.fetch(
            f"SELECT b.*, n.task, n.queue, j.owner, j.payload {_DEAD} AND ($7::uuid IS NULL OR b.job_id > $7::uuid)"
            " ORDER BY b.job_id LIMIT $8::int",
            *_dead_params(where), after, limit,
        )  # fmt: skip
        return [
            DeadLetter(
                id=JobId(str(row["job_id"])),
                task=row["task"],
                queue=row["queue"],
                owner=row["owner"],
                reason=row["reason"],
                message=row["message"],
                detail=row["detail"],
                fingerprint=row["fingerprint"],
                attempts=row["attempts"],
                at=row["at"],
                payload=_json(row["payload"]),
            )
            for row in rows
        ]

    async def dead_letter_groups(self, where: DeadLetterFilter, limit: int) -> list[DeadLetterGroup]:
        rows = await self._db.fetch(
            f"""SELECT b.fingerprint, n.task, b.reason, count(*) AS count, min(b.at) AS first_at, max(b.at) AS last_at,
                       (array_agg(b.job_id ORDER BY b.at DESC))[1] AS sample,
                       (array_agg(coalesce(nullif(b.detail, ''), b.message) ORDER BY b.at DESC))[1] AS message
                  {_DEAD} GROUP BY b.fingerprint, n.task, b.reason ORDER BY count(*) DESC LIMIT $7::int""",
            *_dead_params(where), limit,
        )  # fmt: skip
        return [
            DeadLetterGroup(
                fingerprint=row["fingerprint"],
                task=row["task"],
                reason=row["reason"],
                message=row["message"],
                count=row["count"],
                first_at=row["first_at"],
                last_at=row["last_at"],
                sample=JobId(str(row["sample"])),
            )
            for row in rows
        ]

    async def late_results(self, job_id: JobId) -> list[LateResult]:
        rows = await self._db.fetch(
            "SELECT * FROM holdfast.late_result WHERE job_id = $1 ORDER BY epoch", job_id
        )
        return [
            LateResult(
                job_id=job_id,
                epoch=row["epoch"],
                at=row["at"],
                reason=row["reason"],
                outcome=row["outcome"],
                result=_json(row["result"]),
            )
            for row in rows
        ]

    async def violations(self) -> list[str]:
        """Jobs that are in no place or in several: what constraints cannot say (E3)."""
        found: list[str] = []
        for rule, sql in _RULES:
            found += [f"job {row[0]}: {rule}" for row in await self._db.fetch(sql)]
        return found


_PLACES = """(SELECT id FROM holdfast.ready UNION ALL SELECT id FROM holdfast.deferred
              UNION ALL SELECT job_id FROM holdfast.lease UNION ALL SELECT job_id FROM holdfast.done)"""
_RULES = (
    ("is in no place at all", f"SELECT j.id FROM holdfast.job j WHERE NOT EXISTS (SELECT FROM {_PLACES} p WHERE p.id = j.id)"),
    ("is in several places at once", f"SELECT id FROM {_PLACES} p GROUP BY id HAVING count(*) > 1"),
    ("is somewhere without a job", f"SELECT p.id FROM {_PLACES} p LEFT JOIN holdfast.job j ON j.id = p.id WHERE j.id IS NULL"),
    ("has more attempts than it may", "SELECT l.job_id FROM holdfast.lease l JOIN holdfast.job j ON j.id = l.job_id WHERE l.attempt > j.max_attempts"),
    ("has a dead letter but is not failed",
     "SELECT b.job_id FROM holdfast.dead_letter b LEFT JOIN holdfast.done f ON f.job_id = b.job_id WHERE f.state IS DISTINCT FROM 4"),
    ("shares its key with another running job",
     "SELECT min(job_id::text) FROM holdfast.lease WHERE key IS NOT NULL GROUP BY key HAVING count(*) > 1"),
    ("has an attempt that ended before it began", "SELECT job_id FROM holdfast.attempt WHERE ended_at < started_at"),
)  # fmt: skip

_DEAD = """FROM holdfast.dead_letter b JOIN holdfast.lane n ON n.id = b.lane JOIN holdfast.job j ON j.id = b.job_id
          WHERE ($1::text[] IS NULL OR n.task = ANY ($1::text[])) AND ($2::text[] IS NULL OR n.queue = ANY ($2::text[]))
            AND ($3::text[] IS NULL OR b.reason = ANY ($3::text[])) AND ($4::uuid[] IS NULL OR b.job_id = ANY ($4::uuid[]))
            AND ($5::text IS NULL OR b.fingerprint = $5::text) AND ($6::text IS NULL OR j.owner = $6::text)"""


def _dead_params(where: DeadLetterFilter) -> tuple[Any, ...]:
    def some(values: Sequence[str]) -> list[str] | None:
        return list(values) or None

    return (
        some(where.tasks),
        some(where.queues),
        some(where.reasons),
        some(where.ids),
        where.fingerprint,
        where.owner,
    )


def _unpack(row: asyncpg.Record) -> list[Event]:
    ids = row["job_ids"]
    nothing = [None] * len(ids)
    epochs, attempts = row["epochs"] or nothing, row["attempts"] or nothing
    durations, metas = row["durations"] or nothing, row["metas"] or nothing
    kind, worker = Kind(row["kind"]).name, row["worker"]
    events = []
    for place, (job_id, epoch, attempt, duration, meta) in enumerate(
        zip(ids, epochs, attempts, durations, metas, strict=True)
    ):
        told: dict[str, Any] = _json(meta) or {}
        if duration is not None:
            told["duration_ms"] = duration
        if worker is not None:
            told["worker"] = worker
        events.append(
            Event(
                id=row["seq"] * EVENTS_PER_ROW + place,
                at=row["at"],
                kind=kind,
                job_id=JobId(str(job_id)),
                epoch=epoch or 0,
                attempt=attempt or 0,
                meta=told,
            )
        )
    return events


def _failure(told: dict[str, Any] | None) -> Failure | None:
    if told is None:
        return None
    return Failure(
        code=told["code"],
        message=told["message"],
        error_class=ErrorClass(told["class"]),
        detail=told["detail"],
        fingerprint=told["fingerprint"],
        gateway_status=told["gateway_status"],
    )
