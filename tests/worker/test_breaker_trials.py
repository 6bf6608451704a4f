"""A trial of a half-open breaker is its worker's for as long as that lives and its call may take, and no longer."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.testing import ManualClock
from holdfast.worker.dependencies import TRIAL_LOAN, TRIAL_MARGIN, Dependencies

GATEWAY = Dependency("gateway", "")
CALL = timedelta(minutes=5)


class World:
    """Two workers in front of a half-open breaker with one trial, on a clock that stands still."""

    async def begin(self) -> None:
        self.clock = ManualClock()
        self.app = Holdfast("memory://", clock=self.clock)
        self.app.dependency("gateway", breaker=BreakerPolicy(trials=1, trials_to_close=1))
        self.app.task(name="convert", depends_on="gateway")(convert)
        self.engine = await self.app.runtime.engine()
        self.session = await self.engine.store.open_session("w1", timedelta(hours=1))
        self.one, self.other = (Dependencies(self.engine, lambda: None) for _ in range(2))
        for worker in (self.one, self.other):
            await worker.serve([GATEWAY])
        await self.app.breakers.try_("gateway")
        await self.pass_time(timedelta(seconds=1), self.one, self.other)

    async def pass_time(self, span: timedelta, *alive: Dependencies) -> None:
        for _ in range(int(span.total_seconds())):
            self.clock.advance("1s")
            for worker in alive:
                await worker.sync(self.session)


async def convert() -> None: ...


@pytest.fixture
async def world() -> World:
    world = World()
    await world.begin()
    return world


async def test_the_trial_of_a_worker_that_was_killed_is_soon_the_next_ones(world: World) -> None:  # E22
    assert await world.one.take_trial(GATEWAY, CALL)
    await world.pass_time(TRIAL_LOAN - timedelta(seconds=2), world.other)
    assert await world.other.take_trial(GATEWAY, CALL) is None
    await world.pass_time(timedelta(seconds=3), world.other)
    assert await world.other.take_trial(GATEWAY, CALL)


async def test_a_long_call_keeps_its_trial(world: World) -> None:  # E22
    assert await world.one.take_trial(GATEWAY, CALL)
    for _ in range(int(CALL / timedelta(seconds=20))):
        await world.pass_time(timedelta(seconds=20), world.one, world.other)
        assert await world.other.take_trial(GATEWAY, CALL) is None


async def test_a_call_that_nobody_tells_of_loses_its_trial_in_the_end(world: World) -> None:  # E22
    assert await world.one.take_trial(GATEWAY, CALL)
    await world.pass_time(CALL + TRIAL_MARGIN + TRIAL_LOAN, world.one, world.other)
    assert await world.other.take_trial(GATEWAY, CALL)


async def test_a_trial_that_was_returned_is_not_renewed(world: World) -> None:  # E22
    holder = await world.one.take_trial(GATEWAY, CALL)
    assert holder is not None
    await world.one.return_trial(GATEWAY, holder)
    await world.pass_time(timedelta(seconds=1), world.other)
    assert await world.other.take_trial(GATEWAY, CALL)
    await world.pass_time(CALL / 2, world.one, world.other)
    assert await world.one.take_trial(GATEWAY, CALL) is None
