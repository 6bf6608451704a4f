"""The two hands of a worker that claim: they ask for as many jobs as there is room for, and wait when there is nothing."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum, auto

from holdfast.domain.job import JobFilter, Lane, Session
from holdfast.domain.moves import State
from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.logs import Log
from holdfast.worker.admission import AdmittedJob, LaneAdmission
from holdfast.worker.dispatched import JobSource
from holdfast.worker.lease_reconciler import LeaseReconciler
from holdfast.worker.running import RunningAttempts
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

#: How often a worker learns of queues that its tasks were sent to.
REFRESH_EVERY = 5.0


class ClaimResult(Enum):
    """What a claim brought."""

    NO_ROOM = auto()
    EMPTY = auto()
    SHORT = auto()  # less than was asked for: there is no more
    FULL = auto()


class Claimer:
    def __init__(
        self,
        engine: Engine,
        tenure: WorkerSession,
        slots: Slots,
        serving: ServedLanes,
        admitting: LaneAdmission,
        source: JobSource,
        under_way: RunningAttempts,
        settler: SettlementWriter,
        watch: LeaseReconciler,
        *,
        idle: Callable[[], None] | None,
    ) -> None:
        """*idle*, where it is given, is called when nothing is left that could be run here, now or later."""
        self._engine, self._tenure, self._slots = engine, tenure, slots
        self._serving, self._admitting, self._under_way = serving, admitting, under_way
        self._source, self._settler, self._watch, self._idle = source, settler, watch, idle
        self._asked = 0  #: how many were asked for and not answered yet
        self._bell = asyncio.Event()
        self._second_bell = asyncio.Event()
        self._flood = asyncio.Event()  #: there is more than one hand can claim
        self._stopping = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None

    def ring(self) -> None:
        """A slot is free, or something else that a claimer waits for has happened."""
        self._bell.set()
        self._second_bell.set()

    def stop(self) -> None:
        self._stopping.set()
        self._flood.set()
        self.ring()

    async def run(self, attempts: asyncio.TaskGroup) -> None:
        """Claim and start, until told to stop."""
        along = attempts.create_task(self._claim_along(attempts), name="second hand")
        await self._claim_until_stopped(attempts)
        await along
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _claim_until_stopped(self, attempts: asyncio.TaskGroup) -> None:
        poll = self._engine.settings.poll.total_seconds()
        refreshed_at = -math.inf
        while not self._stopping.is_set():
            self._bell.clear()
            if self._engine.clock.monotonic() > refreshed_at + REFRESH_EVERY:
                if refreshed_at == -math.inf:
                    await self._refresh_lanes()
                elif (
                    self._refreshing is None or self._refreshing.done()
                ):  # beside the claims: lanes may be very many
                    self._refreshing = attempts.create_task(self._refresh_lanes(), name="lanes")
                refreshed_at = self._engine.clock.monotonic()
            if self._tenure.session is None:  # looked at last: it may end while the lanes are asked for
                await self._begin_again()
                continue
            caught = await self._claim_half(attempts, self._tenure.session)
            if caught in (ClaimResult.EMPTY, ClaimResult.SHORT) and await self._reclaim():
                continue  # there is something again
            match caught:
                case ClaimResult.NO_ROOM:
                    await self._bell.wait()
                case ClaimResult.FULL:
                    self._flood.set()
                case ClaimResult.EMPTY if self._idle is not None and await self._is_idle():
                    self._idle()
                case ClaimResult.EMPTY if self._tenure.session is not None:
                    await self._wait_for_work(self._admitting.lanes, poll)

    async def _claim_along(self, attempts: asyncio.TaskGroup) -> None:
        """The second hand, for a deep backlog: asks for one half while the other runs, so that neither waits."""
        while not self._stopping.is_set():  # a flood that is over clears what the stop has set
            await self._flood.wait()
            # Asked before the bell is cleared: the stop has rung it, and nobody rings again.
            if self._stopping.is_set():
                return
            self._second_bell.clear()
            session = self._tenure.session
            match await self._claim_half(attempts, session) if session is not None else ClaimResult.EMPTY:
                case ClaimResult.NO_ROOM:
                    await self._second_bell.wait()
                case ClaimResult.SHORT | ClaimResult.EMPTY:
                    self._flood.clear()
                    self._bell.set()  # the first hand may have found no room because this one was asking for it

    async def _claim_half(self, attempts: asyncio.TaskGroup, session: Session) -> ClaimResult:
        """Claim for the slots that are free, half of all at the most, and start what came."""
        slots = self._slots.count
        room = slots - self._under_way.count - self._asked
        # Finished attempts that still travel to the store bound the claims too: a store that cannot keep up
        # with the settling must not be asked for more.
        if room <= 0 or self._settler.backlog > 2 * slots:
            return ClaimResult.NO_ROOM
        wanted = min(room, (slots + 1) // 2)
        self._asked += wanted
        try:
            admitted = await self._claim(session, wanted)
        finally:
            self._asked -= wanted
        if not admitted and not self._is_busy():
            self._slots.idle(self._engine.clock.monotonic())
        if self._stopping.is_set():  # told to stop while the claim was on its way
            for one in admitted:
                self._settler.give_back(one.claimed)
        else:
            self._under_way.start(admitted, attempts)
        return (
            ClaimResult.FULL
            if len(admitted) == wanted
            else ClaimResult.SHORT
            if admitted
            else ClaimResult.EMPTY
        )

    async def _claim(self, session: Session, wanted: int) -> list[AdmittedJob]:
        try:
            with self._watch.claiming():
                return await self._admitting.claim(session, wanted)
        except StoreError as error:
            self._watch.doubt()
            log.warning("claim.retrying", reason=str(error))
            await self._pause(1.0)
            return []
        except Exception:  # a hook has refused it, or it is a bug of ours: neither may end the worker
            self._watch.doubt()  # of several lanes one may have given jobs before the other was refused
            log.exception("claim.failed")
            await self._pause(1.0)
            return []

    async def _reclaim(self) -> bool:
        """Take back what lost workers hold, unless this process has looked lately: a worker that has room is all it takes."""
        if self._engine.clock.monotonic() < self._engine.reclaim_due or self._stopping.is_set():
            return False
        try:
            return await self._engine.reclaim() > 0
        except StoreError as error:
            log.warning("reclaim.retrying", reason=str(error))
        except Exception:  # a hook has refused it
            log.exception("reclaim.failed")
        return False

    async def _is_idle(self) -> bool:
        # Asked before the lines: what is reclaimed from a lost worker is in line after that.
        if self._is_busy() or await self._runs_anywhere():
            return False
        waiting = await self._engine.store.depths(await self._serving.all_lanes())
        return not any(waiting.values()) and not self._is_busy()

    async def _runs_anywhere(self) -> bool:
        """Whether any worker runs a job. One row answers it; counting would read every job that ever ended."""
        running = JobFilter(states=(State.PROCESSING,))
        return bool((await self._engine.store.jobs(running, after=None, limit=1)).rows)

    def _is_busy(self) -> bool:
        return bool(self._under_way.running or self._asked or self._settler.backlog)

    async def _refresh_lanes(self) -> None:
        try:
            await self._admitting.refresh(await self._serving.lanes())
            self._bell.set()  # who waits for work may wait for it in other lanes
        except StoreError as error:
            log.warning("lane_refresh.retrying", reason=str(error))

    async def _begin_again(self) -> None:
        """The session ended under us: the store may not answer yet."""
        await self._settler.flushed()
        try:
            await self._tenure.renew_session()
        except StoreError as error:
            log.warning("session.retrying", reason=str(error))
            await self._pause(1.0)

    async def _wait_for_work(self, lanes: list[Lane], poll: float) -> None:
        """Until work may have arrived, or a slot is free, or it is time to stop."""
        bell = asyncio.ensure_future(self._bell.wait())
        work = asyncio.ensure_future(self._source.wait_for_work(lanes, poll))
        done, waiting = await asyncio.wait((bell, work), return_when=asyncio.FIRST_COMPLETED)
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if work in done and (error := work.exception()) is not None:
            log.warning("claim.wait_failed", reason=str(error))
            await self._pause(1.0)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
