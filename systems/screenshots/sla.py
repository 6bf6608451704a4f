"""Promises that are due are judged, once each; what was broken is written down and compensated, once each (E76).

SUCCESS  the picture was not there in time: late, failed, or still waited for. Not counted: what the customer has cancelled, and
         pages that no attempt could have taken.
RETRY    a retry by hand did not begin in time.

Both are told like everything that happens to a job, by its events `breached` and `compensated`: in its history, to streams and to
webhooks of its owner.

Each step may be done twice, by anybody, at any time: a breach is one row for job and kind, its events have the kind for a name, and its
credits are a grant whose id is made of both.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast import Event, Holdfast, JobRow, State, UnknownJob
from holdfast.logs import Log
from systems.screenshots.codes import CODES
from systems.screenshots.records import Books
from systems.screenshots.records.following import rows_of

log = Log("screenshots.sla")

_AT_A_TIME = 200
#: What fails for reasons of the page or the request; nobody could have promised otherwise.
_EXCUSED = frozenset(code.value for code, known in CODES.items() if not known.again)


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
    """Whether the promise of a picture by *due_at*, which has passed, was kept. A job that is gone was removed by retention."""
    if row is None:
        return True
    match row.state:
        case State.COMPLETE:
            return row.finished_at is not None and row.finished_at.timestamp() <= due_at
        case State.CANCELLED:
            return True
        case State.FAILED:
            return row.error_code in _EXCUSED
    return False


def kept_retry(events: list[Event], asked: int, due_at: float) -> bool:
    """Whether anything became of the retry that is the event *asked* by *due_at*, which has passed."""
    after = [event for event in events if event.id > asked and event.kind in ("processing", "cancelled")]
    return bool(after) and after[0].at.timestamp() <= due_at


class Sla:
    def __init__(self, app: Holdfast, books: Books) -> None:
        self._app, self._books = app, books

    async def judge(self, now: float | None = None) -> int:
        """Look at all promises that are due at *now*, compensate what was broken; how many breaches were found."""
        at = time.time() if now is None else now
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
            if not kept_success(rows.get(job_id), due_at):
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
            " ON CONFLICT DO NOTHING RETURNING job_id",
            job_id,
            kind.value,
            due_at,
            now,
        )
        if new:
            log.warning("sla.broken", job_id=job_id, kind=kind.value, late_by=round(now - due_at, 1))
        return len(new)

    async def _compensate(self, now: float) -> None:
        owed = await self._books.run(
            "SELECT job_id, kind, account, tier, due_at, credits FROM screenshots_breach"
            " WHERE compensated_at IS NULL"
        )
        for job_id, kind, account, tier, due_at, promised in owed:
            owes = int(promised)
            await self._tell(job_id, "breached", kind, tier=tier, due_at=_moment(due_at), credits=owes)
            if owes:
                await self._app.credits.grant(
                    account,
                    owes,
                    source="compensation",
                    id=f"sla:{job_id}:{kind}",
                    by="sla",
                    note=f"{kind} of {job_id}, promised to {tier}",
                )
                await self._tell(job_id, "compensated", kind, account=account, credits=owes)
            log.info("sla.compensated", job_id=job_id, kind=kind, account=account, credits=owes)
            await self._books.run(
                "UPDATE screenshots_breach SET compensated_at = $3 WHERE job_id = $1 AND kind = $2",
                job_id,
                kind,
                now,
            )

    async def _tell(self, job_id: str, event: str, kind: str, **meta: Any) -> None:
        try:
            await self._app.note(job_id, event, name=kind, **meta)
        except (
            UnknownJob
        ):  # retention was first: the breach and the ledger stay, there is no job to tell it of
            log.info("sla.not_told", job_id=job_id, kind=kind, told=event)
