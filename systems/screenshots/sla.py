"""Promises that are due are judged, once each; a broken one is recorded and compensated, once each (E76).

SUCCESS  the picture was not there in time: late, failed, or still open.
RETRY    a retry by hand did not begin in time. It has the highest priority (`records.following.retry_priority`), so something
         held it: a pause, a bound on what runs at once, or the lack of a free worker.

A promise is kept or excused where the customer is the cause: the job was cancelled, an attempt failed for a reason of the page or
the request (`codes.BY_CUSTOMER`), the page's host was held for it (`hosts`), or the page answered with an error. Compensation waits until the job has ended, because only then
the cause is known, and it is bounded (`payouts`).

Both are events of the job, `breached` and `compensated`: in its history, in streams and in webhooks of its owner.

Each step may be done twice, by any process, at any time: a breach is one row for job and kind, its events have the kind for a name,
its amount is decided once, and its credits are a grant whose id is made of both.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast import Event, Holdfast, JobRow, State, UnknownJob
from holdfast.logs import Log
from systems.screenshots.codes import BY_CUSTOMER
from systems.screenshots.payouts import Claim, decide
from systems.screenshots.promises import Promises
from systems.screenshots.records import Books
from systems.screenshots.records.following import rows_of

log = Log("screenshots.sla")

_AT_A_TIME = 200
#: The number of breaches that are looked at each time for whether their jobs have ended.
_LOOKED_AT = 1_000
_OPEN = (State.QUEUED, State.PROCESSING)


class Kind(StrEnum):
    SUCCESS = "SUCCESS"
    RETRY = "RETRY"


class Place(NamedTuple):
    """Of a breach in the list of all; many are found at one moment."""

    found_at: float
    job_id: str
    kind: str

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Place | None:
        """What `str` wrote; None for anything else."""
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


NEWEST = Place(1e18, "", "")


class Breach(NamedTuple):
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
    def place(self) -> Place:
        return Place(self.found_at, self.job_id, self.kind)

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
    """Return whether the picture was there by *due_at*, which has passed, or is not wanted any more.

    A job that is gone was removed by retention, long after its end.
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
    """Return whether an attempt failed for a reason of the page or the request, or the page's host was held for its customer.

    The events are asked and not our own tables, which may be a moment behind the end of the job.
    """
    return any(event.kind == "snoozed" or event.meta.get("error_code") in BY_CUSTOMER for event in events)


def kept_retry(events: list[Event], asked: int, due_at: float) -> bool:
    """Whether anything became of the retry that is the event *asked* by *due_at*, which has passed."""
    after = [event for event in events if event.id > asked and event.kind in ("processing", "cancelled")]
    return bool(after) and after[0].at.timestamp() <= due_at


class Sla:
    def __init__(self, app: Holdfast, books: Books, promises: Promises) -> None:
        self._app, self._books, self._promises = app, books, promises

    async def judge(self, now: float | None = None) -> int:
        """Judge all promises that are due at *now*, compensate broken ones, and return how many breaches were found.

        *now* is the database's time unless it is given: by the clock of a worker that is ahead, promises would be broken early.
        """
        at = await self._books.database.now() if now is None else now
        found = 0
        while (some := await self._judge_successes(at)) is not None:
            found += some
        while (some := await self._judge_retries(at)) is not None:
            found += some
        await self._compensate(at)
        return found

    async def breaches(self, *, limit: int = 50, after: Place | None = None) -> list[Breach]:
        """Newest first; *after* is the place of the last one before."""
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
                found += await self._break(job_id, Kind.SUCCESS, due_at, now)
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
            if not kept_retry(await self._app.events(job_id=job_id), event, due_at):
                found += await self._break(job_id, Kind.RETRY, due_at, now)
            await self._books.run(
                "UPDATE screenshots_retry SET judged = 1 WHERE job_id = $1 AND event = $2", job_id, event
            )
        return found

    async def _break(self, job_id: str, kind: Kind, due_at: float, now: float) -> int:
        new = await self._books.run(
            "INSERT INTO screenshots_breach (job_id, kind, owner, account, tier, due_at, found_at, credits)"
            " SELECT job_id, CAST($2 AS text), owner, account, tier, CAST($3 AS double precision),"
            "   CAST($4 AS double precision), credits FROM screenshots_job WHERE job_id = $1"
            " ON CONFLICT DO NOTHING RETURNING tier, credits",
            job_id,
            kind.value,
            due_at,
            now,
        )
        for tier, owes in new:
            log.warning("sla.breached", job_id=job_id, kind=kind.value, late_by_s=round(now - due_at, 1))
            await self._tell_breach(job_id, kind.value, tier, due_at, int(owes))
        return len(new)

    async def _is_excused(self, row: JobRow | None) -> bool:
        """Return whether the customer is the cause: of a job that is gone, of its cancellation, or by its page."""
        if row is None or row.state is State.CANCELLED or page_refused(row):
            return True
        return caused_by_customer(await self._app.events(job_id=row.id))

    async def _compensate(self, now: float) -> None:
        """Settle breaches whose jobs have ended; of very many that are open, some each time, in no order."""
        owed = await self._books.run(
            "SELECT b.job_id, b.kind, b.account, b.credits, coalesce(j.price, 0), b.tier, b.due_at"
            " FROM screenshots_breach b LEFT JOIN screenshots_job j ON j.job_id = b.job_id"
            " WHERE b.compensated_at IS NULL ORDER BY random() LIMIT $1",
            _LOOKED_AT,
        )
        rows = {row.id: row for row in await rows_of(self._app, sorted({one[0] for one in owed}))}
        for job_id, kind, account, promised, price, tier, due_at in owed:
            row = rows.get(job_id)
            if row is not None and row.state in _OPEN:
                continue
            # Again, in case the judge that found it was killed before it recorded the event.
            await self._tell_breach(job_id, kind, tier, due_at, int(promised))
            most = self._promises.most_per_month(tier)
            await self._settle(Claim(job_id, kind, account, int(promised), int(price), most), tier, row, now)

    async def _settle(self, claim: Claim, tier: str, row: JobRow | None, now: float) -> None:
        """Pay what a breach is worth, now that its job has ended."""
        excused = await self._is_excused(row)
        pays = 0 if excused else await decide(self._app, self._books, claim, now)
        if pays:
            await self._app.credits.grant(
                claim.account,
                pays,
                source="compensation",
                id=f"sla:{claim.job_id}:{claim.kind}",
                by="sla",
                note=f"{claim.kind} of {claim.job_id}, promised to {tier}",
            )
            await self._tell(claim.job_id, "compensated", claim.kind, account=claim.account, credits=pays)
        log.info(
            "sla.compensated",
            job_id=claim.job_id,
            kind=claim.kind,
            account=claim.account,
            credits=pays,
            excused=excused,
        )
        await self._books.run(
            "UPDATE screenshots_breach SET compensated_at = $3, credits = $4 WHERE job_id = $1 AND kind = $2",
            claim.job_id,
            claim.kind,
            now,
            pays,
        )

    async def _tell_breach(self, job_id: str, kind: str, tier: str, due_at: float, owes: int) -> None:
        await self._tell(job_id, "breached", kind, tier=tier, due_at=_moment(due_at), credits=owes)

    async def _tell(self, job_id: str, event: str, kind: str, **meta: Any) -> None:
        try:
            await self._app.note(job_id, event, name=kind, **meta)
        except (
            UnknownJob
        ):  # retention was first: the breach and the ledger stay, there is no job to tell it of
            log.info("sla.event_dropped", job_id=job_id, kind=kind, job_event=event)
