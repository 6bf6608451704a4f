"""Copies the engine's events to the tables, in order and each once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast import Holdfast, JobRow
from holdfast.contrib.credits import Credits
from holdfast.records import Event
from systems.common.databases import Database, database_of
from systems.screenshots.promises import PROMISED_PRIORITY, Promises, Tier
from systems.screenshots.records.tables import TABLES

TYPES = ("SCREENSHOT", "PDF_GENERATION")
_PAGE = 500
_ENDS = ("complete", "retry", "failed", "reclaimed", "timed_out")
_ASKS = ("manual_retry", "redriven")
_HOUR = 3600
Statement = tuple[Any, ...]  # the SQL, then its values

_ADD_JOB = """INSERT INTO screenshots_job (job_id, owner, account, task, price, tier, credits, created_at, due_at, retry_within)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (job_id) DO NOTHING"""
# Selecting from screenshots_job leaves out the attempts of maintenance tasks.
_ADD_ATTEMPT = """INSERT INTO screenshots_attempt
      (job_id, epoch, task, attempt, outcome, code, at, hour, seconds, price, again)
    SELECT job_id, CAST($2 AS bigint), task, CAST($3 AS bigint), CAST($4 AS text), CAST($5 AS text),
      CAST($6 AS double precision), CAST($7 AS bigint), CAST($8 AS double precision), price,
      CASE WHEN EXISTS (SELECT 1 FROM screenshots_retry r WHERE r.job_id = $1) THEN 1 ELSE 0 END
    FROM screenshots_job WHERE job_id = $1 ON CONFLICT DO NOTHING"""
_ADD_RETRY = """INSERT INTO screenshots_retry (job_id, event, by_whom, asked_at, hour, due_at)
    SELECT job_id, CAST($2 AS bigint), CAST($3 AS text), CAST($4 AS double precision), CAST($5 AS bigint),
      CAST($4 AS double precision) + retry_within FROM screenshots_job WHERE job_id = $1 ON CONFLICT DO NOTHING"""
_SET_MARK = """INSERT INTO screenshots_mark (name, value) VALUES ('events', $1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value"""


class Books:
    """The tables of the screenshots in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        return await self.database.run(sql, *values)

    async def follow(self, app: Holdfast, promises: Promises) -> int:
        """Record the events since the last call, and return their number."""
        total = 0
        while True:
            rows = await self.run("SELECT value FROM screenshots_mark WHERE name = 'events'")
            position = int(rows[0][0]) if rows else 0
            events = await app.events.list(after=position, limit=_PAGE)
            if not events:
                return total
            statements = [
                *await _job_statements(app, promises, events),
                *_attempt_and_retry_statements(events),
            ]
            async with app.transaction() as connection:
                for sql, *values in statements:
                    await self.database.run_in(connection, sql, *values)
                await self.database.run_in(connection, _SET_MARK, events[-1].id)
            total += len(events)

    async def forget(self, before: float) -> None:
        """Delete the rows older than *before*, except breaches and payouts, which are accounting records."""
        await self.run("DELETE FROM screenshots_attempt WHERE at < $1", before)
        await self.run("DELETE FROM screenshots_retry WHERE asked_at < $1", before)
        await self.run("DELETE FROM screenshots_job WHERE created_at < $1", before)


async def _job_statements(app: Holdfast, promises: Promises, events: Iterable[Event]) -> list[Statement]:
    ids = [event.job_id for event in events if event.kind == "queued"]
    statements: list[Statement] = []
    for row in await rows_of(app, ids):
        if row.task not in TYPES or row.owner is None:
            continue
        payer, tier = await _payer_and_tier(app, promises, row)
        created = row.created_at.timestamp()
        within = None if tier is None else tier.success_within
        price = Credits.of(app).price_of(row.task)
        statements.append(
            (
                _ADD_JOB,
                row.id,
                row.owner,
                payer,
                row.task,
                price,
                "" if tier is None else tier.name,
                0 if tier is None else min(tier.compensation, price),
                created,
                None if within is None else created + within,
                None if tier is None else tier.retry_within,
            )
        )
    return statements


async def _payer_and_tier(app: Holdfast, promises: Promises, row: JobRow) -> tuple[str, Tier | None]:
    """Return the account that pays for the job, and the tier of its owner or of that account."""
    paid = await Credits.of(app).ledger(job_id=row.id, limit=1)
    payer = paid[0].account if paid else row.owner or ""
    return payer, promises.tier_of([row.owner, payer])


async def retry_priority(app: Holdfast, books: Books, promises: Promises, row: JobRow) -> int | None:
    """Return the priority of a manual retry of this job: the highest where its start is promised, else None.

    The promise that was recorded for the job applies; for a job that is not recorded yet, the one that will
    be.
    """
    recorded = await books.run("SELECT retry_within FROM screenshots_job WHERE job_id = $1", row.id)
    if recorded:
        within = recorded[0][0]
    else:
        _, tier = await _payer_and_tier(app, promises, row)
        within = None if tier is None else tier.retry_within
    return None if within is None else PROMISED_PRIORITY


def _attempt_and_retry_statements(events: Iterable[Event]) -> Iterable[Statement]:
    for event in events:
        at = event.at.timestamp()
        if event.kind in _ENDS and event.epoch:
            yield (
                _ADD_ATTEMPT,
                event.job_id,
                event.epoch,
                event.attempt,
                event.kind,
                str(event.meta.get("error_code") or ""),
                at,
                int(at // _HOUR),
                float(event.meta.get("duration_ms") or 0) / 1000,
            )
        elif event.kind in _ASKS:
            yield (
                _ADD_RETRY,
                event.job_id,
                event.id,
                str(event.meta.get("by") or ""),
                at,
                int(at // _HOUR),
            )


async def rows_of(app: Holdfast, ids: Sequence[str]) -> list[JobRow]:
    """Return the rows of these jobs, without those that do not exist."""
    rows: list[JobRow] = []
    for first in range(0, len(ids), _PAGE):
        after: str | None = None
        while True:
            page = await app.jobs.list(ids=list(ids[first : first + _PAGE]), after=after, limit=_PAGE)
            rows += page.rows
            if (after := page.next) is None:
                break
    return rows


@asynccontextmanager
async def open_books(url: str) -> AsyncIterator[Books]:
    """Open the books in the database at *url*, and create the tables that are missing."""
    books = Books(database_of(url))
    try:
        await books.database.prepare(TABLES)
        yield books
    finally:
        await books.database.close()
