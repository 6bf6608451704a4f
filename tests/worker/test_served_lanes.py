"""Which lanes a worker lists: all of a few, and of very many those that have jobs or had some lately."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.jobs.job import JobId, JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.verdict import Complete
from holdfast.testing import ManualClock
from holdfast.wiring import SystemIds
from holdfast.worker.served_lanes import MANY, SERVE_FOR, ServedLanes

pytestmark = pytest.mark.anyio

STRANGE = [Lane(f"queue {number}", "work", fair=True) for number in range(MANY + 500)]
OWN = {Lane("default", "work"), Lane("default", "work", fair=True)}


async def work() -> None: ...


class House:
    async def open(self) -> House:
        self.clock = ManualClock()
        self.app = Holdfast("memory://", clock=self.clock)
        self.app.task(work)
        engine = await self.app.runtime.engine()
        self.store, self.serving = engine.store, ServedLanes(engine, None)
        return self

    async def enqueue(self, lanes: list[Lane]) -> None:
        ids = SystemIds()
        await self.store.enqueue(
            [NewJob(JobId(ids.job_id()), "{}", JobSpec(lane=lane, owner="alice")) for lane in lanes]
        )

    async def drain(self) -> None:
        session = await self.store.open_session("anna", timedelta(days=1))
        claimed = await self.store.claim(session, STRANGE, 10_000)
        await self.store.settle([Settlement(one.lease, Complete("1"), one.attempt) for one in claimed])


async def test_a_few_lanes_stay_served_when_they_are_empty() -> None:  # E24
    house = await House().open()
    await house.enqueue(STRANGE[:5])
    await house.drain()
    house.clock.advance("2h")
    assert set(await house.serving.lanes()) == OWN | set(STRANGE[:5])


async def test_of_very_many_lanes_those_without_jobs_are_dropped_after_a_while() -> None:  # E25
    house = await House().open()
    await house.enqueue(STRANGE)
    assert set(await house.serving.lanes()) == OWN | set(STRANGE)
    await house.drain()
    served = set(await house.serving.lanes())
    assert served >= OWN
    assert len(served) <= MANY + len(OWN)
    house.clock.advance(f"{SERVE_FOR + 1:.0f}s")
    assert set(await house.serving.lanes()) == OWN
    await house.enqueue(STRANGE[7:8])
    assert set(await house.serving.lanes()) == OWN | {STRANGE[7]}
    assert set(await house.serving.all_lanes()) == OWN | set(STRANGE)
