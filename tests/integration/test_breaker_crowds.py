"""A crowd of workers behind one breaker, in one process and on one database: none resets it, and few try.

What real processes do there, and what becomes of the trial of one that is killed, is shown in `tests/e2e/faults/test_breakers.py`
with fewer of them; the numbers are here.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.jobs.job import Session
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import Breaker, BreakerPolicy, BreakerState
from holdfast.worker.admission import AdmittedJob, LaneAdmission
from holdfast.worker.dependencies import Dependencies
from tests.apps import new_app

GATEWAY = Dependency("gateway")
TRIALS = 3


class Worker:
    """As much of one as stands between a job and the breaker."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine, self.session = engine, session
        self.guards = Dependencies(engine, lambda: None)
        self._admitting = LaneAdmission(engine, self.guards, lambda *_: None, engine.store)

    @classmethod
    async def start(cls, engine: Engine, number: int) -> Worker:
        worker = cls(engine, await engine.store.open_session(f"w{number}", timedelta(minutes=5)))
        await worker._admitting.refresh([task.lane for task in engine.tasks.values()])
        return worker

    async def beat(self) -> None:
        await self.guards.sync(self.session)

    async def claim(self) -> list[AdmittedJob]:
        return await self._admitting.claim(self.session, 500)


@pytest.fixture
def app(store_url: str) -> Holdfast:
    app = new_app(store_url)
    policy = BreakerPolicy(trials=TRIALS, trials_to_close=TRIALS, cooldown="1h")
    app.dependency("gateway", breaker=policy)
    app.task(name="call", depends_on="gateway")(call)
    return app


async def call(number: int) -> None: ...


async def crowd(app: Holdfast, size: int) -> list[Worker]:
    engine = await app.runtime.engine()
    return await asyncio.gather(*(Worker.start(engine, number) for number in range(size)))


async def breaker(app: Holdfast) -> Breaker:
    [state_of_dependency] = await app.breakers.list()
    return state_of_dependency.breaker


async def test_thirty_two_workers_that_start_while_it_is_open_change_nothing(app: Holdfast) -> None:  # E20
    async with app:
        await app.tasks["call"].enqueue_many([(number,) for number in range(50)])
        opened = await app.breakers.open("gateway", duration="1h", reason="by hand")
        workers = await crowd(app, 32)
        for _ in range(2):
            await asyncio.gather(*(worker.beat() for worker in workers))
        found = await asyncio.gather(*(worker.claim() for worker in workers))
        assert not any(found)
        assert await breaker(app) == opened  # as it was: its version, when it opened, and when it is tried


async def test_of_sixteen_workers_with_five_hundred_jobs_three_try_when_it_is_half_open(
    app: Holdfast,
) -> None:  # E20 E22
    async with app:
        await app.tasks["call"].enqueue_many([(number,) for number in range(500)])
        workers = await crowd(app, 16)
        await app.breakers.try_("gateway")
        await asyncio.gather(*(worker.beat() for worker in workers))
        assert (await breaker(app)).state is BreakerState.HALF_OPEN
        trying: list[tuple[Worker, AdmittedJob]] = []
        for _ in range(2):
            await asyncio.gather(*(worker.beat() for worker in workers))
            found = await asyncio.gather(*(worker.claim() for worker in workers))
            trying += [
                (worker, one) for worker, claimed in zip(workers, found, strict=True) for one in claimed
            ]
        assert len(trying) == TRIALS
        assert len({one.permit.trial for _, one in trying if one.permit}) == TRIALS
        for worker, one in trying:
            assert one.permit is not None
            await worker.guards.leave(one.permit, None)
        assert (await breaker(app)).state is BreakerState.CLOSED
        await asyncio.gather(*(worker.beat() for worker in workers))
        assert sum(map(len, await asyncio.gather(*(worker.claim() for worker in workers)))) >= 16
