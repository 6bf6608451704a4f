"""A store, the way to move its clock, and short words for what the tests do most."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

from holdfast.engine.ports import SettlementStatus, Store
from holdfast.jobs.job import Claimed, JobId, JobRow, JobSpec, Lane, NewJob, Session, Settlement
from holdfast.jobs.machine import Clock
from holdfast.jobs.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.values.duration import Duration, duration
from holdfast.wiring import SystemIds

MINUTE = timedelta(minutes=1)
LANE = Lane("default", "email")
_ids = SystemIds()
_numbers = count(1)


@dataclass
class World:
    store: Store
    clock: Clock
    advance: Callable[[Duration], Awaitable[None]]

    async def enqueue(
        self, payload: str = "{}", *, job_id: JobId | None = None, lane: Lane = LANE, **spec: Any
    ) -> JobId:
        spec = {"max_attempts": 3, **spec}
        [answer] = await self.store.enqueue(
            [NewJob(job_id or _ids.job_id(), payload, JobSpec(lane=lane, **spec))]
        )
        return answer.id

    async def session(self, ttl: timedelta = MINUTE) -> Session:
        return await self.store.open_session(f"worker-{next(_numbers)}", ttl)

    async def claim(self, session: Session | None = None, limit: int = 1, lane: Lane = LANE) -> list[Claimed]:
        await self.store.promote(1000)
        return await self.store.claim(session or await self.session(), [lane], limit)

    async def claim_one(self, session: Session | None = None) -> Claimed:
        [claimed] = await self.claim(session)
        return claimed

    async def settle(self, claimed: Claimed, verdict: Verdict) -> SettlementStatus:
        [answer] = await self.store.settle([Settlement(claimed.lease, verdict, claimed.attempt)])
        return answer

    async def row(self, job_id: JobId) -> JobRow:
        row = await self.store.queries.job(job_id)
        assert row is not None
        return row

    async def kinds(self, job_id: JobId) -> list[str]:
        """The kinds of the job's events, oldest first."""
        return [event.kind for event in await self.store.queries.events(after=0, limit=1000, job_id=job_id)]


def done(result: str = "null") -> Complete:
    return Complete(result)


def failed(code: str = "BOOM") -> Failure:
    return Failure(code, f"{code} happened", fingerprint="cafe", detail="RuntimeError: boom")


def retry(after: Duration = 0, code: str = "BOOM") -> RetryAfter:
    return RetryAfter(duration(after), failed(code))


def bury(code: str = "BOOM") -> Bury:
    return Bury(failed(code))


def release(after: Duration = 0) -> Release:
    return Release(duration(after))
