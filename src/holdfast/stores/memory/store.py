"""The memory store: the port on one side, plain dictionaries on the other. `looking` has the half that only reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from holdfast.domain.job import (
    Claimed,
    Enqueued,
    Expired,
    JobId,
    Lane,
    Lease,
    NewJob,
    Session,
    SessionId,
    Settlement,
)
from holdfast.domain.moves import Kind
from holdfast.domain.verdict import Failure
from holdfast.engine.ports import Answer, Clock, Heart, Hook, Reclaim, Retention
from holdfast.errors import UsageError
from holdfast.stores.memory import intake, people, recovering, settling
from holdfast.stores.memory.looking import Looking
from holdfast.stores.memory.tables import Tables


class MemoryStore(Looking):
    """Every method runs to its end without awaiting, so each is one transaction; only then are the hooks told."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Tables(clock))
        self.hooks: list[tuple[frozenset[Kind], Hook]] = []
        self._clock = clock
        self._bell = asyncio.Event()

    # -- life of the store ------------------------------------------------------------------------------------------
    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def migrate(self) -> list[str]:
        return []

    # -- hooks ------------------------------------------------------------------------------------------------------
    def _save(self) -> None:
        """Before moves that a hook may undo. Without hooks nothing can."""
        if self.hooks:
            self._tables.save()

    async def _committed(self) -> None:
        """Tell the hooks and ring the bell. A hook that raises undoes the moves it was told about."""
        told, self._tables.told = self._tables.told, []
        try:
            for kinds, hook in self.hooks:
                wanted = [moved for moved in told if moved.kind in kinds]
                if wanted:
                    await hook(_NoSql(), wanted)
        except BaseException:
            self._tables.restore()
            raise
        finally:
            self._tables.forget_saved()
        if told:
            bell, self._bell = self._bell, asyncio.Event()
            bell.set()

    # -- queueing ---------------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        self._save()
        answers = self.enqueue_sync(jobs)
        await self._committed()
        return answers

    def enqueue_sync(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return [intake.enqueue(self._tables, job) for job in jobs]

    async def reject(self, job: NewJob, failure: Failure) -> None:
        intake.reject(self._tables, job, failure)
        await self._committed()

    async def promote(self, limit: int) -> timedelta | None:
        return intake.promote(self._tables)

    # -- working ----------------------------------------------------------------------------------------------------
    async def open_session(self, worker: str, ttl: timedelta) -> Session:
        session = Session(id=SessionId(next(self._tables.session_ids)), worker=worker, ttl=ttl)
        self._keep(session)
        return session

    def _keep(self, session: Session) -> None:
        until = self._clock.monotonic() + session.ttl.total_seconds()
        self._tables.sessions[session.id] = session, until

    async def extend(self, session: Session) -> bool:
        return self._extend(session)

    def _extend(self, session: Session) -> bool:
        lives = self._tables.is_live(session)
        if lives:
            self._keep(session)
        return lives

    async def close_session(self, session: Session) -> None:
        self._tables.sessions.pop(session.id, None)

    async def held(self, session: Session) -> set[Lease]:
        jobs = self._tables.jobs.values()
        return {Lease(job.id, job.epoch) for job in jobs if job.live and job.live.session.id == session.id}

    async def claim(self, session: Session, lanes: Sequence[Lane], limit: int) -> list[Claimed]:
        if not self._tables.is_live(session):
            return []
        claimed = intake.claim(self._tables, session, lanes, limit)
        await self._committed()
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[Answer]:
        self._save()
        answers = [settling.settle(self._tables, s.lease, s.verdict, s.duration) for s in settlements]
        await self._committed()
        return answers

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        yield None

    async def complete_in(
        self, connection: Any, lease: Lease, result: str | None, duration: timedelta
    ) -> None:
        settling.complete_in(self._tables, lease, result)
        await self._committed()

    async def record_step(self, lease: Lease, name: str, result: str) -> None:
        settling.record_step(self._tables, lease, name, result)

    async def record_progress(self, lease: Lease, percent: float, message: str) -> None:
        settling.record_progress(self._tables, lease, percent, message)

    # -- recovering -------------------------------------------------------------------------------------------------
    async def expired(self, limit: int) -> list[Expired]:
        return recovering.expired(self._tables, limit)

    async def reclaim(self, reclaims: Sequence[Reclaim]) -> int:
        done = recovering.reclaim(self._tables, reclaims)
        await self._committed()
        return done

    async def time_out(self, limit: int) -> list[JobId]:
        passed = recovering.time_out(self._tables, limit)
        await self._committed()
        return passed

    async def purge(self, task: str | None, keep: Retention, limit: int) -> int:
        done = recovering.purge(self._tables, task, keep, limit)
        await self._committed()
        return done

    # -- people's moves ---------------------------------------------------------------------------------------------
    async def cancel(self, job_id: JobId, by: str, reason: str) -> None:
        people.cancel(self._tables, job_id, by, reason)
        await self._committed()

    async def retry(
        self,
        job_id: JobId,
        by: str,
        *,
        kind: Kind,
        forget: Collection[str] | None = None,
        queue: str | None = None,
    ) -> int:
        place = people.retry(self._tables, job_id, by, kind, forget, queue)
        await self._committed()
        return place

    async def discard(self, job_id: JobId, by: str, reason: str) -> None:
        people.discard(self._tables, job_id, by, reason)
        await self._committed()

    # -- waking -----------------------------------------------------------------------------------------------------
    async def wait_for_work(self, lanes: Sequence[Lane], timeout: float) -> None:
        await self._wait(timeout)

    async def wait_for_end(self, job_id: JobId, timeout: float) -> None:
        await self._wait(timeout)

    async def _wait(self, timeout: float) -> None:
        bell = self._bell
        try:
            await asyncio.wait_for(bell.wait(), timeout)
        except TimeoutError:
            return

    def heart(self) -> Heart:
        return _MemoryHeart(self._extend)


class _NoSql:
    """What a hook is given here: there is no SQL to run, but the moves are told."""

    async def execute(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        raise UsageError("the memory store runs no SQL; test this hook on SQLite")


class _MemoryHeart:
    """*beat* extends a session; it never waits, so any thread may call it."""

    def __init__(self, beat: Callable[[Session], bool]) -> None:
        self._beat = beat

    def beat(self, session: Session) -> bool:
        return self._beat(session)

    def close(self) -> None: ...
