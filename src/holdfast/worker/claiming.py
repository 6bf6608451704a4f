"""The two claim loops of a worker: claim jobs for the free slots, and wait when there are none.

The first loop always runs. The second joins it while the backlog is deep.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from enum import Enum, auto

from holdfast.engine.engine import Engine
from holdfast.errors import StoreError
from holdfast.jobs.job import JobFilter, Lane, Session
from holdfast.jobs.moves import State
from holdfast.logging import Log
from holdfast.worker.admission import AdmittedJob, LaneAdmission
from holdfast.worker.dispatched import JobSource
from holdfast.worker.running import RunningAttempts
from holdfast.worker.served_lanes import ServedLanes
from holdfast.worker.session import WorkerSession
from holdfast.worker.settlements import SettlementWriter
from holdfast.worker.slots import Slots

log = Log("holdfast.worker")

#: How often, in seconds, a worker looks for new queues that its tasks were sent to.
REFRESH_EVERY = 5.0


class ClaimResult(Enum):
    """The result of a claim, compared with the number of jobs that were asked for."""

    NO_ROOM = auto()
    EMPTY = auto()
    SHORT = auto()  # fewer than were asked for: the next claim tells whether more are due
    FULL = auto()


class Wakeup:
    """Wakes the two claim loops of a worker."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()

    def set(self) -> None:
        """Wake both loops: a slot is free, or the jobs that may be claimed have changed."""
        self.first.set()
        self.second.set()


class Claimer:
    """Claims jobs for the free slots and starts their attempts.

    *idle*, if given, is called when no job is left that could run here, now or later.
    """

    def __init__(
        self,
        engine: Engine,
        worker_session: WorkerSession,
        slots: Slots,
        served_lanes: ServedLanes,
        admission: LaneAdmission,
        source: JobSource,
        running: RunningAttempts,
        settlements: SettlementWriter,
        wakeup: Wakeup,
        *,
        idle: Callable[[], None] | None,
    ) -> None:
        self._engine, self._worker_session, self._slots = engine, worker_session, slots
        self._served_lanes, self._admission, self._running = served_lanes, admission, running
        self._source, self._settlements, self._idle = source, settlements, idle
        self.newest_claim = 0  #: claims are numbered
        self.unanswered: set[int] = set()  #: the numbers of the claims that the store has not answered yet
        self.answer_lost_at = -math.inf  #: when the answer to a claim was last lost
        self._requested = 0  #: jobs asked for by claims that are not answered yet
        self._wakeup = wakeup
        self._deep_backlog = asyncio.Event()  #: one loop cannot claim all that is due
        self._stopping = asyncio.Event()
        self._refreshing: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End both loops."""
        self._stopping.set()
        self._deep_backlog.set()
        self._wakeup.set()

    async def run(self, attempts: asyncio.TaskGroup) -> None:
        """Claim jobs and start their attempts in the group *attempts* until `stop` is called."""
        second = attempts.create_task(self._claim_beside(attempts), name="second claim loop")
        await self._claim_until_stopped(attempts)
        await second
        if self._refreshing is not None:
            self._refreshing.cancel()

    async def _claim_until_stopped(self, attempts: asyncio.TaskGroup) -> None:
        poll = self._engine.settings.poll.total_seconds()
        refreshed_at = -math.inf
        while not self._stopping.is_set():
            self._wakeup.first.clear()
            if self._engine.clock.monotonic() > refreshed_at + REFRESH_EVERY:
                if refreshed_at == -math.inf:
                    await self._refresh_lanes()
                # Later refreshes run beside the claims, because there may be very many lanes.
                elif self._refreshing is None or self._refreshing.done():
                    self._refreshing = attempts.create_task(self._refresh_lanes(), name="lanes")
                refreshed_at = self._engine.clock.monotonic()
            if self._worker_session.session is None:  # checked last: it may end while the lanes are read
                await self._begin_again()
                continue
            claimed = await self._claim_half(attempts, self._worker_session.session)
            if claimed in (ClaimResult.EMPTY, ClaimResult.SHORT) and await self._reclaim():
                continue  # reclaimed jobs can be claimed
            match claimed:
                case ClaimResult.NO_ROOM:
                    await self._wakeup.first.wait()
                case ClaimResult.FULL:
                    self._deep_backlog.set()
                case ClaimResult.EMPTY if self._idle is not None and await self._is_idle():
                    self._idle()
                case ClaimResult.EMPTY if self._worker_session.session is not None:
                    await self._wait_for_work(self._admission.lanes, poll)

    async def _claim_beside(self, attempts: asyncio.TaskGroup) -> None:
        """Claim beside the first loop while the backlog is deep: one claims, the other starts attempts."""
        while not self._stopping.is_set():  # the `clear` below may have undone the `set` of `stop`
            await self._deep_backlog.wait()
            # Checked before the event is cleared: `stop` sets it only once.
            if self._stopping.is_set():
                return
            self._wakeup.second.clear()
            session = self._worker_session.session
            match await self._claim_half(attempts, session) if session is not None else ClaimResult.EMPTY:
                case ClaimResult.NO_ROOM:
                    await self._wakeup.second.wait()
                case ClaimResult.SHORT | ClaimResult.EMPTY:
                    self._deep_backlog.clear()
                    # the first loop may have found no room because this one had requested it
                    self._wakeup.first.set()

    async def _claim_half(self, attempts: asyncio.TaskGroup, session: Session) -> ClaimResult:
        """Claim for the free slots, but for at most half of all slots, and start the claimed jobs."""
        slots = self._slots.count
        room = slots - self._running.count - self._requested
        # Unsettled attempts bound the claims too: a store that cannot keep up with settlements must not be
        # asked for more jobs.
        if room <= 0 or self._settlements.backlog > 2 * slots:
            return ClaimResult.NO_ROOM
        wanted = min(room, (slots + 1) // 2)
        self._requested += wanted
        try:
            admitted = await self._claim(session, wanted)
        finally:
            self._requested -= wanted
        if not admitted and not self._is_busy():
            self._slots.idle(self._engine.clock.monotonic())
        if self._stopping.is_set():  # `stop` was called during the claim
            for one in admitted:
                self._settlements.give_back(one.claimed)
        else:
            self._running.start(admitted, attempts)
        return (
            ClaimResult.FULL
            if len(admitted) == wanted
            else ClaimResult.SHORT
            if admitted
            else ClaimResult.EMPTY
        )

    async def _claim(self, session: Session, wanted: int) -> list[AdmittedJob]:
        self.newest_claim += 1
        number = self.newest_claim
        self.unanswered.add(number)
        try:
            return await self._admission.claim(session, wanted)
        except StoreError as error:
            self._answer_lost()
            log.warning("claim.retrying", reason=str(error))
        except Exception:  # a hook refused it, or it is a bug here: neither may end the worker
            self._answer_lost()  # one group of lanes may have given jobs before another was refused
            log.exception("claim.failed")
        finally:
            self.unanswered.discard(number)
        await self._pause(1.0)
        return []

    def _answer_lost(self) -> None:
        self.answer_lost_at = self._engine.clock.monotonic()

    async def _reclaim(self) -> bool:
        """Reclaim the jobs of lost workers if the next check of this process is due.

        Return whether there were any.
        """
        if self._engine.clock.monotonic() < self._engine.recovery.reclaim_due or self._stopping.is_set():
            return False
        try:
            return await self._engine.recovery.reclaim() > 0
        except StoreError as error:
            log.warning("reclaim.retrying", reason=str(error))
        except Exception:  # a hook refused it
            log.exception("reclaim.failed")
        return False

    async def _is_idle(self) -> bool:
        # Checked before the depths: a job that is reclaimed in between is queued by then.
        if self._is_busy() or await self._runs_anywhere():
            return False
        waiting = await self._engine.store.lanes.depths(await self._served_lanes.all_lanes())
        return not any(waiting.values()) and not self._is_busy()

    async def _runs_anywhere(self) -> bool:
        """Return whether any worker runs a job.

        This reads one row; a count would read every job that ever ended.
        """
        running = JobFilter(states=(State.PROCESSING,))
        return bool((await self._engine.store.queries.jobs(running, after=None, limit=1)).rows)

    def _is_busy(self) -> bool:
        return bool(self._running.running or self._requested or self._settlements.backlog)

    async def _refresh_lanes(self) -> None:
        try:
            await self._admission.refresh(await self._served_lanes.lanes())
            self._wakeup.first.set()  # a wait for work must now include the new lanes
        except StoreError as error:
            log.warning("lane_refresh.retrying", reason=str(error))

    async def _begin_again(self) -> None:
        """Open a new session after one was lost. If the store does not answer, return after a pause."""
        await self._settlements.flushed()
        try:
            await self._worker_session.renew_session()
        except StoreError as error:
            log.warning("session.retrying", reason=str(error))
            await self._pause(1.0)

    async def _wait_for_work(self, lanes: list[Lane], poll: float) -> None:
        """Wait until work may have arrived, a slot is free or the worker stops."""
        wakeup = asyncio.ensure_future(self._wakeup.first.wait())
        work = asyncio.ensure_future(self._source.wait_for_work(lanes, poll))
        done, waiting = await asyncio.wait((wakeup, work), return_when=asyncio.FIRST_COMPLETED)
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if work in done and (error := work.exception()) is not None:
            log.warning("claim.wait_failed", reason=str(error))
            await self._pause(1.0)

    async def _pause(self, seconds: float) -> None:
        """Wait for *seconds*, or less if the worker stops."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
