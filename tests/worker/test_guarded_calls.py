"""A worker's leave to call a dependency: who pays for a retry, and whose it is when the handler marks its calls itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast import THIS_JOB, Holdfast, Job, State
from holdfast.errors import DependencyHeld, StoreUnavailable
from holdfast.jobs.job import Claimed, Lane
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import BreakerPolicy, BreakerState
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.guard import CallPermit
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.testing import ManualClock
from holdfast.wiring import SystemThreads
from holdfast.worker.dependencies import HURRY, Dependencies
from holdfast.worker.worker import Worker
from tests.apps import until, working
from tests.claimed import claimed_job

GATEWAY = Dependency("gateway")


class World:
    """One worker in front of one dependency, on a clock that stands still."""

    async def begin(self) -> None:
        self.clock = ManualClock()
        self.app = Holdfast("memory://", clock=self.clock)
        self.app.dependency(
            "gateway",
            breaker=BreakerPolicy(trials=1, trials_to_close=1),
            limiter=LimiterPolicy(start=4),
            budget=BudgetPolicy(capacity=20, cost=8, reserve=0.5, floor="1h"),
        )
        self.app.task(name="convert", depends_on="gateway")(convert)
        self.engine = await self.app.runtime.engine()
        self.session = await self.engine.store.open_session("w1", timedelta(hours=1))
        self.worker = Dependencies(self.engine, lambda: None)
        await self.worker.serve([GATEWAY])

    def given(self, *, attempt: int = 1, trial: str | None = None) -> CallPermit:
        """Leave for a job's attempt."""
        [given] = self.worker.enter(GATEWAY, [job(attempt=attempt)], trial)
        assert isinstance(given, CallPermit)
        return given

    @property
    def in_flight(self) -> int:
        limiter = self.worker._guard(GATEWAY).limiter
        assert limiter is not None
        return limiter.in_flight

    @property
    def tokens(self) -> float:
        budget = self.worker._guard(GATEWAY).budget
        assert budget is not None
        return budget.tokens

    async def half_open(self) -> None:
        await self.app.breakers.try_("gateway")
        self.clock.advance("1s")
        await self.worker.sync(self.session)
        assert self.worker._guard(GATEWAY).shared.state is BreakerState.HALF_OPEN


async def convert() -> None: ...


def job(*, attempt: int = 2, priority: int = 0, until_deadline: timedelta | None = None) -> Claimed:
    lane = Lane("default", "convert", "gateway")
    return claimed_job(lane, attempt=attempt, priority=priority, until_deadline=until_deadline)


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


# -- who pays ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("urgent", [job(priority=1), job(until_deadline=HURRY - timedelta(seconds=1))])
async def test_an_urgent_retry_is_paid_from_the_reserve(world: World, urgent: Claimed) -> None:  # E17
    patient = job(until_deadline=HURRY)
    answers = world.worker.enter(GATEWAY, [patient, patient, urgent])  # 8 of 20 each, 10 are the reserve
    assert [isinstance(answer, CallPermit) for answer in answers] == [True, False, True]


async def test_first_tries_begin_together_and_end_one_by_one(world: World) -> None:  # E23
    assert world.worker.enter(GATEWAY, []) == []  # all of a claim were refused before
    calls = world.worker.enter(GATEWAY, [job(attempt=1), job(attempt=1), job(attempt=1)])
    assert (world.in_flight, world.worker.room(GATEWAY), world.tokens) == (3, 1, 20)
    for call in calls:
        assert isinstance(call, CallPermit)
        await world.worker.leave(call, None)
    assert (world.in_flight, world.worker.room(GATEWAY)) == (0, 4)


# -- what it costs ----------------------------------------------------------------------------------------------------
async def test_a_worker_sends_a_statement_a_second_about_its_dependencies(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20
    """However many it calls, and however often."""
    sent = 0

    class Counting:
        """The store, as its callers see it: what it does within a verb is not counted."""

        def __init__(self, part: object) -> None:
            self._part = part

        def __getattr__(self, verb: str) -> Any:
            nonlocal sent
            sent += verb in ("transact", "report")
            found = getattr(self._part, verb)
            return Counting(found) if verb == "lanes" else found

    store = world.engine.store
    worker = Worker(world.engine, SystemThreads(), ThreadPoolExecutor(1))
    monkeypatch.setattr(worker._worker_session, "session", world.session)
    services = [GATEWAY, Dependency("mail"), Dependency("bank", "eu")]
    await worker._dependencies.serve(services)
    monkeypatch.setattr(world.engine, "store", Counting(store))
    tending = asyncio.create_task(worker._sync_dependencies())
    for _ in range(600):
        await asyncio.sleep(0)
        world.clock.advance("100ms")
        await asyncio.sleep(0)
        for service in services:
            for call in worker._dependencies.enter(service, [job(attempt=1)]):
                assert isinstance(call, CallPermit)
                worker._dependencies.answered(call, world.clock.monotonic())
    tending.cancel()
    await asyncio.gather(tending, return_exceptions=True)
    assert 50 <= sent <= 65  # in a minute; each beat is a fifth longer or shorter, by chance


# -- calls that a handler marks itself ----------------------------------------------------------------------------------
async def test_a_call_that_is_marked_is_under_way_once(world: World) -> None:  # E23
    given = world.given()
    first = await world.worker.enter_call(GATEWAY, given)
    assert world.in_flight == 1
    second = await world.worker.enter_call(GATEWAY, given)  # beside the first
    assert world.in_flight == 2
    for call in (first, second):
        await world.worker.leave_call(call, None, "convert")
    assert world.in_flight == 0
    third = await world.worker.enter_call(GATEWAY, given)
    assert world.in_flight == 1
    await world.worker.leave_call(third, None, "convert")
    assert (world.in_flight, given.guard.calls) == (0, 3)


async def test_a_retry_that_is_marked_gets_its_cost_back(world: World) -> None:  # E17
    given = world.given(attempt=2)
    assert world.tokens == 12
    call = await world.worker.enter_call(GATEWAY, given)
    await world.worker.leave_call(call, None, "convert")
    assert world.tokens == 20


async def test_a_trial_is_that_of_the_call_that_is_marked(world: World) -> None:  # E22
    await world.half_open()
    trial = await world.worker.take_trial(GATEWAY)  # the only one
    given = world.given(trial=trial)
    call = await world.worker.enter_call(GATEWAY, given)
    assert call.trial == trial
    await world.worker.leave_call(call, None, "convert")
    assert given.guard.shared.state is BreakerState.CLOSED


async def test_an_attempt_whose_call_was_held_tells_nothing_of_the_service(world: World) -> None:  # E20
    given = world.given()
    await world.app.breakers.open("gateway", duration="1h", reason="by hand")
    world.clock.advance("1s")
    await world.worker.sync(world.session)
    with pytest.raises(DependencyHeld):
        await world.worker.enter_call(GATEWAY, given)
    assert (given.successor is None, world.in_flight) == (False, 0)


async def test_without_the_store_a_call_is_held_and_not_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20 E22
    await world.half_open()
    given = world.given(trial="somebody's")
    first = await world.worker.enter_call(GATEWAY, given)
    lose(world, monkeypatch)
    with pytest.raises(DependencyHeld):
        await world.worker.enter_call(GATEWAY, given)  # it would need a trial of its own
    assert world.in_flight == 1
    await world.worker.leave_call(first, None, "convert")


async def test_without_the_store_a_worker_decides_by_what_it_sees(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20 E22
    lose(world, monkeypatch)
    for _ in range(10):
        call = await world.worker.enter_call(GATEWAY, None)
        await world.worker.leave_call(call, ConnectionRefusedError("nobody listens"), "convert")
    with pytest.raises(StoreUnavailable):
        await world.worker.sync(world.session)
    assert world.worker.room(GATEWAY) == 0
    with pytest.raises(DependencyHeld):
        await world.worker.enter_call(GATEWAY, None)
    world.clock.advance("30s")
    assert world.worker.room(GATEWAY) == 1
    await world.worker.leave_call(await world.worker.enter_call(GATEWAY, None), None, "convert")
    assert world.worker.room(GATEWAY) > 1


def lose(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is away."""

    async def nothing(*asked: object, **more: object) -> None:
        raise StoreUnavailable("nobody answers")

    monkeypatch.setattr(world.engine.store, "transact", nothing)
    monkeypatch.setattr(world.engine.store.lanes, "report", nothing)


@pytest.mark.parametrize("marks", [True, False])
async def test_a_failed_trial_gives_the_attempt_back_whoever_tells_of_it(marks: bool) -> None:  # E22 E9
    app = Holdfast("memory://")
    app.dependency("gateway", breaker=BreakerPolicy(trials=1, trials_to_close=1, cooldown="1h"))

    @app.task(depends_on="gateway")
    async def call(*, job: Job = THIS_JOB) -> None:
        if not marks:
            raise ConnectionRefusedError("nobody listens")
        async with job.dependency("gateway"):
            raise ConnectionRefusedError("nobody listens")

    async with app:
        handle = await call.enqueue()
        await app.breakers.try_("gateway")

        async def is_given_back() -> bool:
            row = await app.jobs.get(handle.id)
            return row.epoch > 0 and row.state is State.QUEUED

        async with working(app):
            await until(is_given_back)
        row = await app.jobs.get(handle.id)
        [state_of_dependency] = await app.breakers.list()
    assert (row.attempt, state_of_dependency.breaker.state) == (0, BreakerState.OPEN)
