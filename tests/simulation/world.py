"""A cluster in one event loop: worker processes with their duties, a client, people who click, and the weather.

Everything that decides is the production code: Engine, Worker, Duties, heartbeat, stores. Everything around it is drawn from
the seed: so the seed is the whole story.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Executor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any, cast

from holdfast.engine.engine import Engine
from holdfast.engine.jobs import Jobs
from holdfast.engine.namespace import OpenEngine
from holdfast.engine.ports import Store
from holdfast.errors import Conflict, StoreError
from holdfast.jobs.job import JobId
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.jobs.machine import Clock
from holdfast.jobs.moves import Kind
from holdfast.maintenance.tasks import Maintenance
from holdfast.processes import _run_together
from holdfast.tasks.settings import Settings
from holdfast.worker.worker import Worker
from tests.simulation.auditor import Auditor
from tests.simulation.diary import Diary
from tests.simulation.door import Door, Weather
from tests.simulation.loop import Actor, SimLoop, SimThreads
from tests.simulation.places import Place
from tests.simulation.tasks import Work

_START = datetime(2026, 1, 1, tzinfo=UTC)
#: So long do the troubles last, and so long may the cluster need afterwards to bring everything to its end.
TROUBLES, AFTERWARDS = 40.0, 300.0


class SimClock:
    """Virtual time. *skew* is how wrong this process's idea of the time of day is."""

    def __init__(self, loop: SimLoop, skew: float = 0.0, ahead: SimClock | None = None) -> None:
        self._loop, self.skew, self._ahead = loop, skew, ahead

    def now(self) -> datetime:
        jumped = 0.0 if self._ahead is None else self._ahead.skew
        return _START + timedelta(seconds=self._loop.time() + self.skew + jumped)

    def monotonic(self) -> float:
        return 1000.0 + self._loop.time()

    def boot_id(self) -> str:
        return "simulated"

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class NumberedIds:
    def __init__(self) -> None:
        self._numbers = count(1)

    def job_id(self) -> JobId:
        return JobId(f"00000000-0000-7000-8000-{next(self._numbers):012x}")

    def worker_name(self) -> str:
        return f"worker-{next(self._numbers)}"

    def secret(self) -> bytes:
        return next(self._numbers).to_bytes(32, "big")


class _NoPool(Executor):
    """Nothing here runs in a thread."""


class Process:
    """A worker process: its actor, its way to the store, and the worker while it runs."""

    def __init__(self, actor: Actor, door: Door) -> None:
        self.actor, self.door = actor, door
        self.worker: Worker | None = None


class World:
    def __init__(self, loop: SimLoop, chance: Random, place: Place, counts: Counter[str]) -> None:
        self.loop, self.chance, self.place, self.counts = loop, chance, place, counts
        self.store_clock = SimClock(loop)
        self.store: Store = place.open(self.store_clock)
        self.diary = Diary(loop.time)
        self.auditor = Auditor(self.store, self.store_clock, counts, self.diary)
        self.weather, self.ids = Weather(), NumberedIds()
        self.doors: list[Door] = []
        self.processes: list[Process] = []
        self.actors: list[Actor] = []
        self._names = count(1)
        lease = chance.choice([4.0, 6.0, 10.0])
        self.settings = Settings(
            lease=timedelta(seconds=lease),
            reclaim_every=timedelta(seconds=chance.choice([1.0, 2.0])),
            concurrency=chance.choice([1, 2, 4]),
            grace=timedelta(seconds=chance.choice([0.0, 2.0])),
        )
        self.work = Work(chance, counts, chance.choice([1.0, 5.0, 15.0]), self.ids.job_id, self.auditor.fail)
        self.calm = False  #: the troubles are over

    # -- processes ----------------------------------------------------------------------------------------------------
    def start_process(self) -> None:
        actor = Actor(f"process-{next(self._names)}")
        # What a process takes for the time of day matters to no other, where the store has a clock of its own.
        skew = self.chance.choice([0.0, 0.0, -3600.0, 3600.0]) if self.place.own_clock else 0.0
        clock = SimClock(self.loop, skew, self.store_clock)
        process = Process(actor, self._door(self.place.open(self.store_clock)))
        self.processes.append(process)
        self.actors.append(actor)
        self.diary.note(f"{actor} starts")
        _ = self.loop.start(actor, self._run_process(process, clock))

    def _door(self, store: Store) -> Door:
        given = self.loop, self.weather, self.chance, self.auditor, self.counts, self.doors
        return Door(store, *given)

    async def _run_process(self, process: Process, clock: Clock) -> None:
        """Started again whenever it has come to an end, as a supervisor would."""
        while not process.door.ghost:
            engine = Engine(
                cast(Store, process.door),
                self.work.app.tasks,
                self.settings,
                clock,
                self.chance,
                self.ids,
                admission=self.work.app.runtime.declared.admission,
            )
            maintenance = Maintenance(engine)
            process.worker = Worker(engine, SimThreads(self.loop), _NoPool())
            with suppress(StoreError):  # the store was away when it started
                await _run_together(process.worker, maintenance)
            await asyncio.sleep(1 + self.chance.random())

    def kill(self, process: Process) -> None:
        """SIGKILL: not one step more."""
        self.diary.note(f"{process.actor} is killed")
        self.loop.freeze(process.actor, float("inf"))
        self.processes.remove(process)

    # -- whoever uses it ----------------------------------------------------------------------------------------------
    async def enqueue(self, jobs: int) -> None:
        """A client that sends each job until it was acknowledged."""
        door = self._door(self.place.open(self.store_clock))
        engine = self._engine(door)
        for number in range(jobs):
            job, key = self.work.new_job(number)
            if key is not None:
                self.auditor.keys[job.id] = key
            while True:
                try:
                    await engine.enqueue([job])
                    break
                except StoreError:
                    await asyncio.sleep(0.2)
            self.auditor.acknowledged.add(job.id)
            await asyncio.sleep(self.chance.random() ** 3 * 4)

    async def click(self) -> None:
        """A person who retries, cancels, discards and pauses what they see; two of them may see the same."""
        door = self._door(self.place.open(self.store_clock))
        engine, chance = self._engine(door), self.chance
        while not self.calm:
            await asyncio.sleep(chance.random() * 4)
            known = list(self.auditor.lives)
            if not known or self.calm:
                continue
            job_id = chance.choice(known)
            try:
                await self._click_once(engine, job_id)
                self.counts["clicks"] += 1
            except Conflict:
                self.counts["clicks refused"] += 1
            except StoreError:
                self.counts["clicks without an answer"] += 1

    async def _click_once(self, engine: Engine, job_id: JobId) -> None:
        match self.chance.choice(["retry", "retry", "retry", "cancel", "redrive", "discard", "pause"]):
            case "retry":
                await Jobs(OpenEngine(engine)).retry(job_id, by="ann")
            case "cancel":
                await Jobs(OpenEngine(engine)).cancel(job_id, by="ann")
            case "redrive":
                await engine.store.retry(job_id, "ann", kind=Kind.redriven)
            case "discard":
                await engine.store.discard(job_id, "ann", "seen")
            case "pause":
                scope = Scope(ScopeKind.TASK, self.chance.choice(["plain", "timed", "calling"]))
                span = timedelta(seconds=1 + self.chance.random() * 5)
                await engine.store.lanes.hold(scope, Cause.PAUSE, span=span, reason="", by="ann")

    def _engine(self, door: Door) -> Engine:
        tasks, clock = self.work.app.tasks, SimClock(self.loop, 0.0, self.store_clock)
        return Engine(cast(Store, door), tasks, self.settings, clock, self.chance, self.ids)

    # -- the end ------------------------------------------------------------------------------------------------------
    async def wait_for_the_end(self) -> None:
        until = self.loop.time() + AFTERWARDS
        while self.auditor.unfinished or len(self.auditor.lives) < len(self.auditor.acknowledged):
            if self.loop.time() > until or self.auditor.over.is_set():
                return
            await asyncio.sleep(0.5)

    async def bury_the_dead(self) -> None:
        """Let every task come to its end, cut off from the store: what is garbage-collected unfinished would run later."""
        for door in self.doors:
            door.ghost = True
        self.loop.thaw_all(self.actors)
        for _ in range(20):
            left = self.loop.unfinished()
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=30)
        raise AssertionError(f"does not stop: {self.loop.unfinished()}")


def people(world: World, number: int) -> list[Any]:
    return [world.loop.start(Actor(f"person-{place}"), world.click()) for place in range(number)]
