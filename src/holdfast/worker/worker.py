"""The worker's loop: claim what there is room for, run it, settle it, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from holdfast.domain.job import Claimed, Lane, Lease, Session, Settlement
from holdfast.domain.verdict import Bury, Complete, Failure, Release, RetryAfter, Verdict
from holdfast.engine.attempt_log import AttemptLog
from holdfast.engine.context import Job
from holdfast.engine.engine import Engine
from holdfast.engine.log import Log
from holdfast.engine.ports import Threads
from holdfast.errors import StoreError
from holdfast.worker.admitting import Admitted, Admitting
from holdfast.worker.attempts import Executors, Middleware, Running
from holdfast.worker.dependencies import BEAT_EVERY, Dependencies, Pass, after_trial
from holdfast.worker.heart import Heartbeat
from holdfast.worker.listening import listening
from holdfast.worker.processes import ProcessPool
from holdfast.worker.serving import Serving
from holdfast.worker.settler import Settler
from holdfast.worker.sizing import Slots

log = Log("holdfast.worker")

#: An attempt that runs longer than this is worth asking the store about: was it cancelled?
WATCH_EVERY = 1.0
#: The local fence looks when the lease would end, but so often at the least, and not more often than that.
FENCE_AT_MOST, FENCE_AT_LEAST = 0.5, 0.02
#: How long, after the grace, a handler may go on swallowing its cancellation; how often it is cancelled again.
LAST_WORDS, INSIST_EVERY = 5.0, 0.25
#: The name of the task that holds the attempts. It outlives the worker when a handler does not stop.
ATTEMPTS = "holdfast-attempts"
#: How often a worker learns of queues that its tasks were sent to.
REFRESH_EVERY = 5.0


class Catch(Enum):
    """What a claim brought."""

    NO_ROOM = auto()
    EMPTY = auto()
    SHORT = auto()  # less than was asked for: there is no more
    FULL = auto()


class Worker:
    """One worker process. `run()` returns when `stop()` was called and everything is settled or given back."""

    def __init__(
        self,
        engine: Engine,
        threads: Threads,
        pool: Executor,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        middleware: Sequence[Middleware] = (),
        resources: Any = None,
        until_idle: bool = False,
        expect: Callable[[timedelta], None] = lambda delay: None,
    ) -> None:
        self.name = engine.ids.worker_name()
        self._engine, self._threads = engine, threads
        self._slots = Slots(
            concurrency or engine.settings.concurrency,
            engine.settings.min_concurrency,
            engine.clock.monotonic(),
        )
        self._queues = frozenset(queues) if queues else None
        self._resources = resources
        self._keep_logs = engine.settings.keep_logs
        self._processes = ProcessPool(pool, keep_logs=self._keep_logs != "never")
        self._executors = Executors(engine, pool, self._processes, list(middleware))
        self._until_idle = until_idle
        self._expect = expect  #: told how soon something that was requeued here will be due
        self._running: dict[Lease, Running] = {}
        self._leftovers: set[asyncio.Future[Any]] = set()
        self._in_doubt = False  #: a claim's answer was lost: leases may be ours that we do not know
        self._suspects: set[Lease] = set()
        self._serving = Serving(engine, self._queues)
        self._asked = 0  #: how many were asked for and not answered yet
        self._bell = asyncio.Event()
        self._second_bell = asyncio.Event()
        self._flood = asyncio.Event()  #: there is more than one hand can claim
        self._stopping = asyncio.Event()
        self._leaving = asyncio.Event()  #: what still runs does not stop, and is left behind
        self._hurry = False
        self._settler = Settler(engine.store, engine.clock, self._ring, self._refused)
        self._dependencies = Dependencies(engine, self._ring)
        self._admitting = Admitting(engine, self._dependencies, self._settler.put)
        self._session: Session | None = None
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life -------------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Stop claiming and let what runs finish within the grace; a second call ends at once, safely."""
        self._hurry = self._stopping.is_set()
        self._stopping.set()
        self._flood.set()
        self._ring()

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._begin_session()
        settling = asyncio.create_task(self._settler.run(), name="settler")
        watching = asyncio.create_task(self._watch(), name="watch")
        fencing = asyncio.create_task(self._fence(), name="fence")
        tending = asyncio.create_task(self._tend(), name="dependencies")
        try:
            with listening(self._keep_logs != "never"):
                await self._until_left(asyncio.create_task(self._work(), name=ATTEMPTS))
        finally:
            watching.cancel()
            fencing.cancel()
            tending.cancel()
            await self._settle_last(settling)
            await asyncio.gather(settling, watching, fencing, return_exceptions=True)
            self._processes.close()
            await self._end_session()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            along = attempts.create_task(self._claim_along(attempts), name="second hand")
            await self._claim_until_stopped(attempts)
            await along
            await self._drain()

    async def _until_left(self, working: asyncio.Task[None]) -> None:
        """Until every attempt has ended, or only those are left that do not stop: their jobs were given back."""
        leaving = asyncio.create_task(self._leaving.wait())
        try:
            await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            working.cancel()
            await asyncio.wait((working,))
            raise
        finally:
            leaving.cancel()
        if working.done():
            working.result()

    async def _begin_session(self) -> None:
        """A new session: a name the store has never seen, so that an old one cannot be mistaken for it."""
        settings = self._engine.settings
        leases = [task.policy.lease for task in self._tasks() if task.policy.lease]
        ttl = min([settings.lease, *leases])
        every = min(settings.beat_every, ttl / 3)
        self._session = await self._engine.store.open_session(self.name, ttl, self._queues)
        loop, session = self._loop, self._session
        assert loop is not None
        self._heartbeat = Heartbeat(
            self._engine.store.heart(),
            session,
            every.total_seconds(),
            self._engine.clock,
            lambda: loop.call_soon_threadsafe(self._lost, session),
        )
        self._heartbeat.start(self._threads)
        self._settler.renew()
        log.info(
            "worker.started", worker=self.name, queues=sorted(self._queues or ()), slots=self._slots.most
        )

    async def _end_session(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._session is not None:
            try:
                async with asyncio.timeout(5):
                    await self._engine.store.close_session(self._session)
            except (StoreError, TimeoutError) as error:
                log.warning("session.not_closed", reason=str(error))
        log.info("worker.stopped", worker=self.name)

    async def _tend(self) -> None:
        """Keep in touch with the other workers about the dependencies. Whatever fails, the guards know what they know."""
        while True:
            await self._engine.clock.sleep(BEAT_EVERY * (0.8 + 0.4 * self._engine.rng.random()))
            session = self._session
            if session is None:
                continue
            try:
                await self._dependencies.tend(session)
            except StoreError as error:
                log.info("dependencies.waits", reason=str(error))
            except Exception:  # a bug of ours must not end the watch
                log.exception("dependencies.failed")

    async def _fence(self) -> None:
        """Give the work up in time, by our own clock, even while a beat hangs in a network that does not answer."""
        while True:
            heart, session = self._heartbeat, self._session
            left = heart.left if heart is not None and session is not None else FENCE_AT_MOST
            if left <= 0 and heart is not None:
                heart.give_up()
            await self._engine.clock.sleep(min(max(left, FENCE_AT_LEAST), FENCE_AT_MOST))

    def _lost(self, session: Session) -> None:
        """The session ended under us: the work is no longer ours. Drop it, write nothing, begin again."""
        if session is not self._session:
            return
        self._session = None
        self._settler.abandon()
        for running in list(self._running.values()):
            running.end("lost")
        self._ring()

    # -- claiming ---------------------------------------------------------------------------------------------------
    def _tasks(self) -> list[Any]:
        tasks = self._engine.tasks.values()
        return [task for task in tasks if self._queues is None or task.policy.queue in self._queues]

    async def _claim_until_stopped(self, attempts: asyncio.TaskGroup) -> None:
        poll = self._engine.settings.poll.total_seconds()
        refreshed_at = -math.inf
        while not self._stopping.is_set():
            self._bell.clear()
            if self._session is None:
                await self._new_session()
                continue
            if self._engine.clock.monotonic() > refreshed_at + REFRESH_EVERY:
                await self._refresh_lanes()
                refreshed_at = self._engine.clock.monotonic()
            caught = await self._claim_half(attempts)
            if caught in (Catch.EMPTY, Catch.SHORT) and await self._reclaim():
                continue  # there is something again
            match caught:
                case Catch.NO_ROOM:
                    await self._bell.wait()
                case Catch.FULL:
                    self._flood.set()
                case Catch.EMPTY if self._until_idle and await self._is_idle():
                    self.stop()
                case Catch.EMPTY if self._session is not None:
                    await self._wait_for_work(self._admitting.lanes, poll)

    async def _claim_along(self, attempts: asyncio.TaskGroup) -> None:
        """The second hand, for a deep backlog: asks for one half while the other runs, so that neither waits."""
        while not self._stopping.is_set():
            await self._flood.wait()
            self._second_bell.clear()
            match await self._claim_half(attempts) if self._session is not None else Catch.EMPTY:
                case Catch.NO_ROOM:
                    await self._second_bell.wait()
                case Catch.SHORT | Catch.EMPTY:
                    self._flood.clear()
                    self._bell.set()  # the first hand may have found no room because this one was asking for it

    async def _claim_half(self, attempts: asyncio.TaskGroup) -> Catch:
        """Claim for the slots that are free, half of all at the most, and start what came."""
        slots = self._slots.count
        room = slots - len(self._running) - len(self._leftovers) - self._asked
        # Finished attempts that still travel to the store bound the claims too: a store that cannot keep up
        # with the settling must not be asked for more.
        if room <= 0 or self._settler.backlog > 2 * slots:
            return Catch.NO_ROOM
        wanted = min(room, (slots + 1) // 2)
        self._asked += wanted
        try:
            admitted = await self._claim(wanted)
        finally:
            self._asked -= wanted
        if self._stopping.is_set():
            self._give_back([one.claimed for one in admitted])  # told to stop while the claim was on its way
        else:
            self._start(admitted, attempts)
        return Catch.FULL if len(admitted) == wanted else Catch.SHORT if admitted else Catch.EMPTY

    def _ring(self) -> None:
        """A slot is free, or something else that a claimer waits for has happened."""
        self._bell.set()
        self._second_bell.set()

    async def _is_idle(self) -> bool:
        """Nothing is left that could be run here, now or later."""
        if self._is_busy() or (await self._engine.counts())["processing"]:
            return (
                False  # asked before the lines: what is taken back from a lost worker is in line after that
            )
        waiting = await self._engine.store.depths(await self._serving.lanes())
        return not any(waiting.values()) and not self._is_busy()

    def _is_busy(self) -> bool:
        return bool(self._running or self._asked or self._settler.backlog)

    async def _refresh_lanes(self) -> None:
        try:
            await self._admitting.refresh(await self._serving.lanes())
        except StoreError as error:
            log.warning("lanes.waits", reason=str(error))

    async def _claim(self, wanted: int) -> list[Admitted]:
        assert self._session is not None
        try:
            return await self._admitting.claim(self._session, wanted)
        except StoreError as error:
            self._in_doubt = True
            log.warning("claim.waits", reason=str(error))
            await self._pause(1.0)
            return []
        except Exception:  # a hook has refused it, or it is a bug of ours: neither may end the worker
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
            log.warning("reclaim.waits", reason=str(error))
        except Exception:  # a hook has refused it
            log.exception("reclaim.failed")
        return False

    async def _wait_for_work(self, lanes: list[Lane], poll: float) -> None:
        """Until work may have arrived, or a slot is free, or it is time to stop."""
        bell = asyncio.ensure_future(self._bell.wait())
        work = asyncio.ensure_future(self._engine.store.wait_for_work(lanes, poll))
        done, waiting = await asyncio.wait((bell, work), return_when=asyncio.FIRST_COMPLETED)
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if work in done and (error := work.exception()) is not None:
            log.warning("wait.failed", reason=str(error))
            await self._pause(1.0)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _new_session(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop(wait=0)  # it may hang in a beat: the loop must not hang with it
        await self._settler.flushed()
        try:
            self.name = self._engine.ids.worker_name()
            await self._begin_session()
        except StoreError as error:
            log.warning("session.waits", reason=str(error))
            await self._pause(1.0)

    def _give_back(self, claimed: list[Claimed]) -> None:
        for one in claimed:
            self._settler.put(Settlement(one.lease, Release(), one.attempt))

    # -- running ----------------------------------------------------------------------------------------------------
    def _start(self, admitted: list[Admitted], attempts: asyncio.TaskGroup) -> None:
        store, clock, keeper = self._engine.store, self._engine.clock, self._engine.keeper
        now = clock.monotonic()
        for one, given in admitted:
            job = Job(one, store, clock, now, self._resources, keeper)
            job.calls = self._dependencies
            running = Running(one, job, now, given)
            self._running[one.lease] = running
            self._slots.started(now)
            running.task = attempts.create_task(self._execute(running))

    async def _execute(self, running: Running) -> None:
        """One attempt from its start to the hand-over of its verdict. No exception leaves it."""
        claimed, running.begun = running.claimed, True
        if running.given is not None:  # how long it stood here in line is not the dependency's doing
            running.given = running.given.begun_at(self._engine.clock.monotonic())
        try:
            verdict = await self._executors.attempt(running)
        finally:
            self._running.pop(claimed.lease, None)
            now = self._engine.clock.monotonic()
            self._slots.ended(claimed.lane.task, now - running.started, now)
            if running.leftover is not None:
                self._mind(running.leftover)
            self._ring()
        if running.given is not None:
            verdict = await self._leave(running, running.given, verdict)
        if verdict is not None:
            spent = timedelta(seconds=self._engine.clock.monotonic() - running.started)
            logs = () if running.job.said is None else self._logs_of(running.job.said, verdict)
            self._settler.put(Settlement(claimed.lease, verdict, claimed.attempt, spent, logs), claimed)
            # A completion is not logged: the event log has it, and a line for each would cost more than the job.
            if not isinstance(verdict, Complete):
                self._tell(claimed, verdict, spent)
            if isinstance(verdict, RetryAfter) and verdict.failure.retry_after is not None:
                await self._dependencies.hold_back(claimed.lane, verdict.failure)
        elif running.job.completed and running.job.said is not None:
            logs = self._logs_of(running.job.said, Complete(None))
            if logs:  # its end is written already: sent again it changes nothing, but brings them along
                self._settler.put(Settlement(claimed.lease, Complete(None), claimed.attempt, logs=logs))

    async def _leave(self, running: Running, given: Pass, verdict: Verdict | None) -> Verdict | None:
        """The attempt's end tells how its dependency is, unless the handler has marked its calls itself."""
        spent = self._engine.clock.monotonic() - running.started
        match verdict:
            case Complete() if given.dependency not in running.job.judged:
                await self._dependencies.leave(given, None, spent)
            case RetryAfter(_, failure) | Bury(failure) if given.dependency not in running.job.judged:
                outcome = await self._dependencies.leave(given, failure, spent)
                if given.trial is not None:
                    return after_trial(verdict, outcome, given.dependency)
            case _:
                await self._dependencies.abandon(given)
        return verdict

    def _logs_of(self, said: AttemptLog, verdict: Verdict) -> tuple[str, ...]:
        """What is to be kept of it: that of failed attempts, unless the settings say otherwise."""
        match self._keep_logs:
            case "always":
                return said.lines()
            case "failed" if isinstance(verdict, (RetryAfter, Bury)):
                return said.lines()
        return ()

    def _refused(self, claimed: Claimed, reason: str) -> Verdict:
        """What becomes of a job whose end was refused. The reason may be what could not be stored: plain letters only."""
        plain = reason[:500].encode("ascii", "backslashreplace").decode().replace("\x00", "")
        return self._engine.judge_failure(claimed, Failure.of("END_REFUSED", plain), timedelta())

    def _mind(self, thread: asyncio.Future[Any]) -> None:
        """A thread that outlives its attempt keeps its slot until it ends: it still uses what a slot stands for."""
        if not thread.done():
            self._leftovers.add(thread)
            thread.add_done_callback(self._forget)

    def _forget(self, thread: asyncio.Future[Any]) -> None:
        self._leftovers.discard(thread)
        if not thread.cancelled():
            thread.exception()  # asked for: its verdict has been given long ago
        self._ring()

    def _tell(self, claimed: Claimed, verdict: Verdict, spent: timedelta) -> None:
        match verdict:
            case RetryAfter(delay, failure):
                self._expect(delay)
                if log.hears(logging.DEBUG):
                    log.debug(
                        "job.retry", **_facts(claimed, spent), error_code=failure.code, reason=failure.detail
                    )
            case Bury(failure):
                log.warning(
                    "job.failed", **_facts(claimed, spent), error_code=failure.code, reason=failure.detail
                )
            case Release(delay, why):
                self._expect(delay)
                log.info("job.released", **_facts(claimed, spent), why=why)

    async def _watch(self) -> None:
        """Ask the store, every so often, what is still ours: tell handlers whose attempts were taken away, and give
        back leases that we hold without knowing, because the answer to the claim was lost."""
        while True:
            await self._engine.clock.sleep(WATCH_EVERY)
            now, session = self._engine.clock.monotonic(), self._session
            old = [r for r in self._running.values() if now - r.started > WATCH_EVERY]
            if session is None or not (old or self._in_doubt):
                continue
            try:
                held = await self._engine.store.held(session)
            except StoreError:
                continue  # the heartbeat decides whether we may go on
            except Exception:  # a bug of ours must not end the watch
                log.exception("watch.failed")
                continue
            for running in old:
                if running.claimed.lease not in held and not running.job.completed:
                    log.info("job.taken_away", job_id=running.job.id, epoch=running.job.epoch)
                    running.end("lost")
            self._give_back_unknown(held)

    def _give_back_unknown(self, held: set[Lease]) -> None:
        unknown = held - self._running.keys() - self._settler.leases
        for lease in unknown & self._suspects:  # seen twice: no claim can be that long on its way
            log.warning("claim.answer_lost", job_id=lease.job_id, epoch=lease.epoch)
            self._settler.put(Settlement(lease, Release(why="the answer to the claim was lost")))
        self._in_doubt = bool(unknown)
        self._suspects = unknown

    # -- stopping ---------------------------------------------------------------------------------------------------
    async def _drain(self) -> None:
        """Let attempts finish within the grace, then give back what is left."""
        grace = self._engine.settings.grace.total_seconds()
        until = self._engine.clock.monotonic() + grace
        while self._running and not self._hurry and (left := until - self._engine.clock.monotonic()) > 0:
            self._bell.clear()
            try:
                async with asyncio.timeout(left):
                    await self._bell.wait()
            except TimeoutError:
                break
        for running in list(self._running.values()):
            running.end("shutdown")
        await self._insist()

    async def _insist(self) -> None:
        """Cancel again what swallowed it. In the end its job is given back, and it is left behind."""
        until = self._engine.clock.monotonic() + LAST_WORDS
        while self._running and (left := until - self._engine.clock.monotonic()) > 0:
            self._bell.clear()
            try:
                async with asyncio.timeout(min(left, INSIST_EVERY)):
                    await self._bell.wait()
            except TimeoutError:
                for running in self._running.values():
                    running.insist()
        for running in list(self._running.values()):
            log.warning("job.will_not_stop", job_id=running.job.id, task=running.job.task)
            running.why = "lost"  # whatever it answers later is nobody's
            self._give_back([self._running.pop(running.claimed.lease).claimed])
            self._leaving.set()

    async def _settle_last(self, settling: asyncio.Task[None]) -> None:
        """The last write is awaited, but not for ever."""
        try:
            async with asyncio.timeout(5):
                await self._settler.flushed()
        except TimeoutError:
            log.warning(
                "settle.given_up", jobs=self._settler.backlog, reason="the store did not answer in time"
            )
        settling.cancel()


def _facts(claimed: Claimed, spent: timedelta) -> dict[str, Any]:
    return {
        "job_id": claimed.lease.job_id,
        "task": claimed.lane.task,
        "attempt": claimed.attempt,
        "duration_ms": round(spent / timedelta(milliseconds=1)),
    }
