"""Checks each promise once when it is due, and records and compensates each broken one once (E76).

SUCCESS  the picture was not ready in time: it is late, has failed, or the job has not ended.
RETRY    a manual retry did not start in time. It has the highest priority (`records.books.retry_priority`), so it was
         held by a pause, a concurrency limit, or the lack of a free worker.

A promise is not broken where the customer is the cause: the job was cancelled, an attempt failed because of
the page or the request (`codes.BY_CUSTOMER`), the page's host was held for the customer (`hosts`), or the
page answered with an error. Compensation waits until the job has ended, because only then the cause is known,
and it is bounded (`payouts`).

A breach and its compensation are events of the job, `breached` and `compensated`, so they are in its history,
in streams and in the webhooks of its owner.

Each step is idempotent and can be done by any process: a breach is one row for each job and kind, its events
are named after the kind, its amount is decided once, and the id of its grant is made of job and kind.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast import Holdfast, JobRow, State, UnknownJob
from holdfast.contrib.credits import Credits
from holdfast.logging import Log
from holdfast.records import Event
from systems.screenshots.codes import BY_CUSTOMER
from systems.screenshots.payouts import Claim, decide
from systems.screenshots.promises import Promises
from systems.screenshots.records import Books
from systems.screenshots.records.books import rows_of

log = Log("screenshots.sla")

_AT_A_TIME = 200
#: How many open breaches are checked at a time for ended jobs.
_MOST_OPEN = 1_000
_OPEN = (State.QUEUED, State.PROCESSING)


class Kind(StrEnum):
    """The kinds of promises."""

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"


class BreachCursor(NamedTuple):
    """The position of a breach in the list of all. The time alone is not unique."""

    found_at: float
    job_id: str
    kind: str

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> BreachCursor | None:
        """Parse what `str` returned; return None for any other text."""
        found_at, _, rest = text.partition("/")
        job_id, _, kind = rest.partition("/")
        try:
            at = float(found_at)
        except ValueError:
            return None
        return (
            cls(at, job_id, kind)
            if math.isfinite(at) and job_id.isprintable() and kind in tuple(Kind)
            else None
        )


NEWEST = BreachCursor(1e18, "", "")


class Breach(NamedTuple):
    """A broken promise."""

    job_id: str
    kind: str
    owner: str
    account: str
    tier: str
    due_at: float
    found_at: float
    credits: int
    compensated_at: float | None

    @property
    def cursor(self) -> BreachCursor:
        return BreachCursor(self.found_at, self.job_id, self.kind)

    def as_json(self) -> dict[str, Any]:
        moments = {
            name: None if at is None else _moment(at)
            for name, at in (
                ("dueAt", self.due_at),
                ("foundAt", self.found_at),
                ("compensatedAt", self.compensated_at),
            )
        }
        return {
            "jobId": self.job_id,
            "kind": self.kind,
            "owner": self.owner,
            "account": self.account,
            "tier": self.tier,
            "credits": self.credits,
            **moments,
        }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def kept_success(row: JobRow | None, due_at: float) -> bool:
    """Return whether the picture was ready by *due_at*, which has passed, or the job was cancelled.

    A missing job was removed by retention, long after its end, and counts as kept.
    """
    if row is None or row.state is State.CANCELLED:
        return True
    return (
        row.state is State.COMPLETE and row.finished_at is not None and row.finished_at.timestamp() <= due_at
    )


def page_refused(row: JobRow) -> bool:
    """Return whether the page itself answered with an error."""
    status = row.result.get("pageStatus") if isinstance(row.result, dict) else None
    return isinstance(status, int) and status >= 400


def caused_by_customer(events: list[Event]) -> bool:
    """Return whether an attempt failed because of the page or request, or the page's host was held.

    This reads the events and not the books, which may be behind.
    """
    return any(event.kind == "snoozed" or event.meta.get("error_code") in BY_CUSTOMER for event in events)


def kept_retry(events: list[Event], retry_id: int, due_at: float) -> bool:
    """Return whether the retry of the event *retry_id* started, or the job was cancelled, by *due_at*."""
    after = [event for event in events if event.id > retry_id and event.kind in ("processing", "cancelled")]
    return bool(after) and after[0].at.timestamp() <= due_at


class Sla:
    """Checks promises, and lists and compensates breaches."""

    def __init__(self, app: Holdfast, books: Books, promises: Promises) -> None:
        self._app, self._books, self._promises = app, books, promises

    async def judge(self, now: float | None = None) -> int:
        """Check all promises due at *now*, compensate broken ones, and return the number of new breaches.

        *now* defaults to the database's time, because the clock of a worker may be ahead and break promises
        early.
        """
        at = await self._books.database.now() if now is None else now
        found = 0
        while (some := await self._judge_successes(at)) is not None:
            found += some
        while (some := await self._judge_retries(at)) is not None:
            found += some
        await self._compensate(at)
        return found

    async def breaches(self, *, limit: int = 50, after: BreachCursor | None = None) -> list[Breach]:
        """Return breaches, newest first, starting after the cursor of the last one of the page before."""
        rows = await self._books.run(
            f"SELECT {', '.join(Breach._fields)} FROM screenshots_breach"
            " WHERE found_at < $1 OR (found_at = $1 AND (job_id, kind) > ($2, $3))"
            " ORDER BY found_at DESC, job_id, kind LIMIT $4",
            *(after or NEWEST),
            limit,
        )
        return [Breach(*row) for row in rows]

    async def _judge_successes(self, now: float) -> int | None:
        due = await self._books.run(
            "SELECT job_id, due_at FROM screenshots_job WHERE judged = 0 AND due_at < $1 ORDER BY due_at LIMIT $2",
            now,
            _AT_A_TIME,
        )
        if not due:
            return None
        rows = {row.id: row for row in await rows_of(self._app, [job_id for job_id, _ in due])}
        found = 0
        for job_id, due_at in due:
            row = rows.get(job_id)
            if not kept_success(row, due_at) and not await self._is_excused(row):
                found += await self._record_breach(job_id, Kind.SUCCESS, due_at, now)
            await self._books.run("UPDATE screenshots_job SET judged = 1 WHERE job_id = $1", job_id)
        return found

    async def _judge_retries(self, now: float) -> int | None:
        due = await self._books.run(
            "SELECT job_id, event, due_at FROM screenshots_retry WHERE judged = 0 AND due_at < $1"
            " ORDER BY due_at LIMIT $2",
            now,
            _AT_A_TIME,
        )
        if not due:
            return None
        found = 0
        for job_id, event, due_at in due:
            if not kept_retry(await self._app.events.list(job_id=job_id), event, due_at):
                found += await self._record_breach(job_id, Kind.RETRY, due_at, now)
            await self._books.run(
                "UPDATE screenshots_retry SET judged = 1 WHERE job_id = $1 AND event = $2", job_id, event
            )
        return found

    async def _record_breach(self, job_id: str, kind: Kind, due_at: float, now: float) -> int:
        inserted = await self._books.run(
            "INSERT INTO screenshots_breach (job_id, kind, owner, account, tier, due_at, found_at, credits)"
            " SELECT job_id, CAST($2 AS text), owner, account, tier, CAST($3 AS double precision),"
            "   CAST($4 AS double precision), credits FROM screenshots_job WHERE job_id = $1"
            " ON CONFLICT DO NOTHING RETURNING tier, credits",
            job_id,
            kind.value,
            due_at,
            now,
        )
        for tier, owed in inserted:
            log.warning("sla.breached", job_id=job_id, kind=kind.value, late_by_s=round(now - due_at, 1))
            await self._note_breach(job_id, kind.value, tier, due_at, int(owed))
        return len(inserted)

    async def _is_excused(self, row: JobRow | None) -> bool:
        """Return whether the job is gone or was cancelled, or the customer or the page caused its failure."""
        if row is None or row.state is State.CANCELLED or page_refused(row):
            return True
        return caused_by_customer(await self._app.events.list(job_id=row.id))

    async def _compensate(self, now: float) -> None:
        """Settle breaches whose jobs have ended. If too many are open, a random selection is checked."""
        open_breaches = await self._books.run(
            "SELECT b.job_id, b.kind, b.account, b.credits, coalesce(j.price, 0), b.tier, b.due_at"
            " FROM screenshots_breach b LEFT JOIN screenshots_job j ON j.job_id = b.job_id"
            " WHERE b.compensated_at IS NULL ORDER BY random() LIMIT $1",
            _MOST_OPEN,
        )
        rows = {row.id: row for row in await rows_of(self._app, sorted({one[0] for one in open_breaches}))}
        for job_id, kind, account, promised, price, tier, due_at in open_breaches:
            row = rows.get(job_id)
            if row is not None and row.state in _OPEN:
                continue
            # Again, in case the process that found the breach was killed before it recorded the event.
            await self._note_breach(job_id, kind, tier, due_at, int(promised))
            most = self._promises.most_per_month(tier)
            await self._settle(Claim(job_id, kind, account, int(promised), int(price), most), tier, row, now)

    async def _settle(self, claim: Claim, tier: str, row: JobRow | None, now: float) -> None:
        """Compensate a breach whose job has ended, unless it is excused."""
        excused = await self._is_excused(row)
        amount = 0 if excused else await decide(self._app, self._books, claim, now)
        if amount:
            await Credits.of(self._app).grant(
                claim.account,
                amount,
                source="compensation",
                id=f"sla:{claim.job_id}:{claim.kind}",
                by="sla",
                note=f"{claim.kind} of {claim.job_id}, promised to {tier}",
            )
            await self._note(claim.job_id, "compensated", claim.kind, account=claim.account, credits=amount)
        log.info(
            "sla.compensated",
            job_id=claim.job_id,
            kind=claim.kind,
            account=claim.account,
            credits=amount,
            excused=excused,
        )
        await self._books.run(
            "UPDATE screenshots_breach SET compensated_at = $3, credits = $4 WHERE job_id = $1 AND kind = $2",
            claim.job_id,
            claim.kind,
            now,
            amount,
        )

    async def _note_breach(self, job_id: str, kind: str, tier: str, due_at: float, owed: int) -> None:
        await self._note(job_id, "breached", kind, tier=tier, due_at=_moment(due_at), credits=owed)

    async def _note(self, job_id: str, event: str, kind: str, **meta: Any) -> None:
        try:
            await self._app.events.note(job_id, event, name=kind, **meta)
        except UnknownJob:  # retention has removed the job; the breach and the ledger entry stay
            log.info("sla.event_dropped", job_id=job_id, kind=kind, job_event=event)
