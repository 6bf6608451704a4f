"""The two claim loops of a worker: neither may leave the other waiting for a slot that is already free."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from holdfast import Holdfast
from holdfast.jobs.job import Claimed, Lane, Session
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.wiring import SystemClock
from holdfast.worker.admission import LaneAdmission
from holdfast.worker.dependencies import Dependencies


class SlowSecondLoop(MemoryStore):
    """Answers the first claim of the second loop, without jobs, only when the test says so."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.has_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def claim(
        self, session: Session, lanes: Sequence[Lane], limit: int, **options: Any
    ) -> list[Claimed]:
        loop = getattr(asyncio.current_task().get_coro(), "__name__", "")  # type: ignore[union-attr]
        if loop == "_claim_beside" and not self.has_asked.is_set():
            self.has_asked.set()
            await self.go_on.wait()
            return []
        return await super().claim(session, lanes, limit, **options)


async def test_a_worker_with_one_slot_goes_on_after_its_second_hand_came_back_empty() -> None:  # E46
    store = SlowSecondLoop()
    app = Holdfast("memory://", store=store)

    @app.task
    async def echo(value: int) -> int:
        return value

    async with app:
        first = await echo.enqueue(1)
        working = asyncio.create_task(app.run_worker(concurrency=1))
        async with asyncio.timeout(30):
            assert await first.result() == 1
            await store.has_asked.wait()
            second = await echo.enqueue(2)
            for _ in range(100):  # the first loop wakes and finds no room: the second one has requested it
                await asyncio.sleep(0)
            store.go_on.set()
            assert await second.result() == 2
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


class Counting(MemoryStore):
    """Counts the claims that brought nothing, and takes a millisecond for each."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock, self.in_vain = clock, 0

    async def claim(
        self, session: Session, lanes: Sequence[Lane], limit: int, **options: Any
    ) -> list[Claimed]:
        claimed = await super().claim(session, lanes, limit, **options)
        self.clock.advance("1ms")
        self.in_vain += not claimed
        return claimed


async def test_lanes_without_work_are_left_alone_while_others_have_plenty() -> None:  # E46
    clock = ManualClock()
    store = Counting(clock)
    app = Holdfast("memory://", store=store, clock=clock)

    @app.task
    async def plain() -> None: ...

    @app.task(depends_on="gateway")
    async def guarded() -> None: ...

    async with app:
        engine = await app.runtime.engine()
        session = await store.open_session("w1", timedelta(hours=1))
        admitting = LaneAdmission(engine, Dependencies(engine, lambda: None), lambda *_: None, store)
        await admitting.refresh([task.lane for task in (plain, guarded)])
        await plain.enqueue_many([()] * 40)
        for _ in range(30):
            assert len(await admitting.claim(session, 1)) == 1
        assert store.in_vain == 1  # asked once: its rest is longer than all this took
        clock.advance("1s")
        await guarded.enqueue()
        found = [await admitting.claim(session, 1) for _ in range(2)]
        assert {one.claimed.lane.task for one in found[0] + found[1]} == {"plain", "guarded"}
        await admitting.claim(session, 10)
        clock.advance("1s")
        before = store.in_vain
        assert await admitting.claim(session, 1) == []
        assert store.in_vain == before + 2  # each of the two was asked once
        await guarded.enqueue()
        assert len(await admitting.claim(session, 1)) == 1  # nobody else has anything: it is asked
