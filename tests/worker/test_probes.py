"""A health check that is asked before calls are tried again: a function, or a URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import PROBE_AGAIN, Breaker, BreakerPolicy, BreakerState
from holdfast.testing import ManualClock
from holdfast.worker.dependencies import PROBE_EVERY, Dependencies
from tests.endpoint import Endpoint, Message

GATEWAY = Dependency("gateway")


class World:
    """A worker in front of a breaker that opens for a cooldown of 30 s, and for longer when trials were in vain."""

    def __init__(self) -> None:
        self.asked, self.status = 0, "503 Service Unavailable"

    async def begin(self, probe: str | Callable[[], Awaitable[bool]]) -> None:
        self.clock = ManualClock()
        self.app = Holdfast("memory://", clock=self.clock)
        self.app.dependency("gateway", breaker=BreakerPolicy(max_cooldown="5m"), probe=probe)
        self.app.task(name="convert", depends_on="gateway")(convert)
        self.engine = await self.app.runtime.engine()
        self.session = await self.engine.store.open_session("w1", timedelta(hours=1))
        self.worker = Dependencies(self.engine, lambda: None)
        await self.worker.serve([GATEWAY])

    def answer(self, message: Message) -> str:
        self.asked += 1
        return self.status

    async def is_well(self) -> bool:
        self.asked += 1
        if self.status.startswith("503"):
            raise ConnectionRefusedError("nobody listens")
        return True

    async def open(self, *, reopens: int, seconds: int) -> None:
        now, before = self.clock.now(), self.worker._guard(GATEWAY).shared
        until = now + timedelta(seconds=seconds)
        opened = Breaker(BreakerState.OPEN, before.version + 1, now, now, until, reopens)
        assert await swap_breaker(self.engine.store, GATEWAY, opened, holds=True, kind=None, meta={})
        await self.worker.sync(self.session)

    async def after(self, seconds: float) -> tuple[BreakerState, int]:
        """The state of the breaker then, and how often the check was asked until then."""
        self.clock.advance(timedelta(seconds=seconds))
        await self.worker.sync(self.session)
        return self.worker._guard(GATEWAY).shared.state, self.asked


async def convert() -> None: ...


@pytest.fixture(params=["function", "URL"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World()
    async with Endpoint(world.answer) as endpoint:
        await world.begin(world.is_well if request.param == "function" else endpoint.url)
        yield world


async def test_a_good_answer_lets_trials_begin_when_they_are_due(world: World) -> None:  # E22
    await world.open(reopens=0, seconds=30)
    world.status = "404 Not Found"  # an answer all the same
    assert await world.after(29.5) == (BreakerState.OPEN, 0)
    assert await world.after(1) == (BreakerState.HALF_OPEN, 1)


async def test_a_bad_answer_puts_them_off_until_the_check_is_asked_again(world: World) -> None:  # E22
    await world.open(reopens=0, seconds=30)
    assert await world.after(30) == (BreakerState.OPEN, 1)
    [state_of_dependency] = await world.app.breakers.list()
    assert state_of_dependency.breaker.reopens == 0
    assert state_of_dependency.breaker.retry_at == world.clock.now() + PROBE_AGAIN
    world.status = "200 OK"
    assert await world.after(4) == (BreakerState.OPEN, 1)
    assert await world.after(1) == (BreakerState.HALF_OPEN, 2)  # and not a cooldown later


async def test_during_a_long_outage_the_check_is_asked_as_often_by_many_workers_as_by_one(
    world: World,
) -> None:  # E22
    others = [Dependencies(world.engine, lambda: None) for _ in range(4)]
    for other in others:
        await other.serve([GATEWAY])
    await world.open(reopens=0, seconds=30)
    for _ in range(130):  # 100 s beyond its cooldown, a beat a second
        await world.after(1)
        for other in others:
            await other.sync(world.session)
    assert world.asked == 21


async def test_after_vain_trials_a_good_answer_ends_the_longer_wait(world: World) -> None:  # E22
    await world.open(reopens=3, seconds=240)
    assert await world.after(29) == (BreakerState.OPEN, 0)
    assert await world.after(1) == (BreakerState.OPEN, 1)
    world.status = "200 OK"
    assert await world.after(1) == (BreakerState.OPEN, 1)
    assert await world.after(PROBE_EVERY) == (BreakerState.HALF_OPEN, 2)


async def test_what_somebody_opened_stays_open_whatever_the_check_says(world: World) -> None:  # E22
    await world.app.breakers.open("gateway", duration="1h", reason="by hand")
    world.status = "200 OK"
    await world.after(1)
    assert await world.after(3500) == (BreakerState.OPEN, 0)
