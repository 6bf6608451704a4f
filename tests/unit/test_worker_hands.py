"""The worker's two claiming hands: neither may leave the other waiting for room that nobody gives back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast
from holdfast.domain.job import Claimed, Lane, Session
from holdfast.stores.memory import MemoryStore
from holdfast.wiring import SystemClock


class SlowSecondHand(MemoryStore):
    """The second hand's first claim is answered, with nothing, only when the test says so."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.has_asked, self.go_on = asyncio.Event(), asyncio.Event()

    async def claim(
        self, session: Session, lanes: Sequence[Lane], limit: int, **options: Any
    ) -> list[Claimed]:
        hand = getattr(asyncio.current_task().get_coro(), "__name__", "")  # type: ignore[union-attr]
        if hand == "_claim_along" and not self.has_asked.is_set():
            self.has_asked.set()
            await self.go_on.wait()
            return []
        return await super().claim(session, lanes, limit, **options)


async def test_a_worker_with_one_slot_goes_on_after_its_second_hand_came_back_empty() -> None:  # E46
    store = SlowSecondHand()
    app = Holdfast("memory://", store=store)

    @app.task
    async def echo(value: int) -> int:
        return value

    async with app:
        first = await echo.enqueue(1)
        working = asyncio.create_task(app.run_worker(concurrency=1))
        async with asyncio.timeout(10):
            assert await first.result() == 1
            await store.has_asked.wait()
            second = await echo.enqueue(2)
            for _ in range(100):  # the first hand wakes and finds no room: the second one is asking for it
                await asyncio.sleep(0)
            store.go_on.set()
            assert await second.result() == 2
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
