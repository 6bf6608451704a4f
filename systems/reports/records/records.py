"""Reads and writes of the tables. Each write is idempotent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from holdfast.records import MoveNotice, Transaction
from systems.common.databases import Database, database_of
from systems.reports.records.tables import TABLES


class Report(NamedTuple):
    """A finished report."""

    job_id: str
    address: str
    sha256: str
    model: str
    repairs: list[str]


class Capture(NamedTuple):
    """An answer that could not be used, with the schema it was checked against and the errors found."""

    job_id: str
    request_id: str
    schema_hash: str
    code: str
    at: float
    body: dict[str, Any]  #: answer, schema, errors, prompt_hash, model, step

    def as_json(self) -> dict[str, Any]:
        return self._asdict()


_CAPTURE = "job_id, request_id, schema_hash, code, at, body"


class Records:
    """The tables of the reports in one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    async def prepare(self) -> None:
        """Create the tables that are missing."""
        await self.database.prepare(TABLES)

    # -- reports ------------------------------------------------------------------------------------------------------
    async def begin(self, job_id: str, at: float) -> None:
        """Insert the row of a report when its first attempt begins.

        `follow` keeps it up to date from then on.
        """
        await self.database.run(
            "INSERT INTO reports_report (job_id, status, begun_at) VALUES ($1, 'processing', $2) ON CONFLICT (job_id) DO NOTHING",
            job_id,
            at,
        )

    async def finish_in(self, connection: Any, report: Report, answer: str, at: float) -> None:
        """Record a finished report, in the transaction that completes its job."""
        await self.database.run_in(
            connection,
            """UPDATE reports_report SET status = 'succeeded', code = NULL, seconds = $2 - begun_at, address = $3,
                 sha256 = $4, answer = $5, model = $6, repairs = $7 WHERE job_id = $1""",
            report.job_id,
            at,
            report.address,
            report.sha256,
            answer,
            report.model,
            json.dumps(report.repairs),
        )

    async def report(self, job_id: str) -> Report | None:
        """Return the finished report of a job; None when there is none."""
        rows = await self.database.run(
            "SELECT address, sha256, model, repairs FROM reports_report WHERE job_id = $1 AND status = 'succeeded'",
            job_id,
        )
        if not rows:
            return None
        address, sha256, model, repairs = rows[0]
        return Report(job_id, address, sha256, model, json.loads(repairs))

    async def follow(self, transaction: Transaction, moves: Sequence[MoveNotice]) -> None:
        """Update the rows of reports whose jobs have moved. This is a hook for events of the engine."""
        failed = "UPDATE reports_report SET status = 'failed', code = $2 WHERE job_id = $1"
        retried = "UPDATE reports_report SET status = 'queued', retries = retries + 1 WHERE job_id = $1"
        restarted = "UPDATE reports_report SET status = 'queued', code = NULL WHERE job_id = $1"
        for move in moves:
            match move.kind.name:
                case "failed" | "timed_out":
                    values = (str(move.job_id), str(move.meta.get("error_code") or "TIMEOUT"))
                    await transaction.execute(self.database.written(failed), *values)
                case "retry" | "reclaimed":
                    await transaction.execute(self.database.written(retried), str(move.job_id))
                case "manual_retry" | "redriven":
                    await transaction.execute(self.database.written(restarted), str(move.job_id))

    # -- calls --------------------------------------------------------------------------------------------------------
    async def note_call(self, job_id: str, step: str, answer: Any, cost: int, at: float) -> None:
        """Record a call that a step has made. A call that is recorded already is not counted again."""
        await self.database.run(
            """INSERT INTO reports_call (job_id, step, model, request_id, tokens_in, tokens_out, estimated, cost, at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (job_id, step) DO NOTHING""",
            job_id,
            step,
            answer["model"],
            answer["request_id"],
            answer["tokens_in"],
            answer["tokens_out"],
            int(answer["estimated"]),
            cost,
            at,
        )

    # -- captures -----------------------------------------------------------------------------------------------------
    async def capture(self, capture: Capture) -> None:
        """Record an unusable answer, unless the same one is recorded already."""
        await self.database.run(
            f"INSERT INTO reports_capture ({_CAPTURE}) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            *capture[:5],
            json.dumps(capture.body),
        )

    async def captures(
        self, *, limit: int = 50, before: float | None = None, code: str = ""
    ) -> list[Capture]:
        """Return captures, newest first; only those older than *before* and with this *code*, if given."""
        rows = await self.database.run(
            f"""SELECT {_CAPTURE} FROM reports_capture WHERE at < $1 AND ($2 = '' OR code = $2)
                ORDER BY at DESC, job_id LIMIT $3""",
            1e18 if before is None else before,
            code,
            limit,
        )
        return [_capture(row) for row in rows]

    async def captures_of(self, job_id: str) -> list[Capture]:
        """Return the newest 100 captures of a job, newest first."""
        rows = await self.database.run(
            f"SELECT {_CAPTURE} FROM reports_capture WHERE job_id = $1 ORDER BY at DESC LIMIT 100", job_id
        )
        return [_capture(row) for row in rows]

    # -- overrides ----------------------------------------------------------------------------------------------------
    async def override(self, capture: Capture, schema: dict[str, Any], schema_hash: str, by: str) -> None:
        """Let the next attempt use this captured answer with *schema*, instead of calling the model."""
        body = json.dumps(
            {"answer": capture.body["answer"], "step": capture.body["step"], "schema": schema, "by": by}
        )
        await self.database.run(
            """INSERT INTO reports_override (job_id, request_id, schema_hash, body) VALUES ($1, $2, $3, $4)
               ON CONFLICT (job_id) DO UPDATE SET request_id = $2, schema_hash = $3, body = $4""",
            capture.job_id,
            capture.request_id,
            schema_hash,
            body,
        )

    async def overridden(self, job_id: str) -> dict[str, Any] | None:
        """Return the override of a job: its `answer`, `step`, `schema` and `by`; None when there is none."""
        rows = await self.database.run("SELECT body FROM reports_override WHERE job_id = $1", job_id)
        return json.loads(rows[0][0]) if rows else None

    async def forget_override(self, job_id: str) -> None:
        await self.database.run("DELETE FROM reports_override WHERE job_id = $1", job_id)

    # -- documents that the watch has enqueued ------------------------------------------------------------------------
    async def unseen(self, found: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of these addresses and versions that `see` has not recorded."""
        places = ", ".join(f"${nth}" for nth in range(1, len(found) + 1))
        rows = await self.database.run(
            f"SELECT address, version FROM reports_seen WHERE address IN ({places or 'NULL'})",
            *(address for address, _ in found),
        )
        return set(found) - {(address, version) for address, version in rows}

    async def see(self, address: str, version: str, job_id: str) -> None:
        """Record that the job of this document's version was enqueued."""
        await self.database.run(
            "INSERT INTO reports_seen (address, version, job_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            address,
            version,
            job_id,
        )


def _capture(row: tuple[Any, ...]) -> Capture:
    job_id, request_id, schema_hash, code, at, body = row
    return Capture(job_id, request_id, schema_hash, code, at, json.loads(body))


@asynccontextmanager
async def open_records(url: str) -> AsyncIterator[Records]:
    """Open the records in the database at *url*, and create the tables that are missing."""
    records = Records(database_of(url))
    try:
        await records.prepare()
        yield records
    finally:
        await records.database.close()
