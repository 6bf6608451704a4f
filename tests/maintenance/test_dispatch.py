"""The duty that tells a broker of jobs: what it reads of the store is a moment old when it acts on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from holdfast import Holdfast
from holdfast.engine.dispatch import DispatchEntry, Sizes
from holdfast.engine.dispatcher import Dispatcher
from holdfast.jobs.job import JobId, Lane
from holdfast.maintenance.dispatch import DispatchFeed
from holdfast.testing import ManualClock


class NoTime:
    """A broker that keeps no time, and whose every answer takes a second."""

    is_available, delays = True, False

    def __init__(self, app: Holdfast, clock: ManualClock) -> None:
        self.app, self.clock = app, clock
        self.offered: list[JobId] = []

    async def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        answer = await call(self)
        self.clock.advance("1s")
        await (await self.app.runtime.engine()).store.promote(100)
        return answer

    def hands_out(self, lane: Lane) -> bool:
        return True

    async def ping(self) -> None: ...

    async def built(self) -> None: ...

    async def sizes(self, lanes: Sequence[Lane]) -> Sizes:
        return Sizes(built=False, ready=dict.fromkeys(lanes, 0), later=0)

    async def offer(self, entries: Sequence[DispatchEntry]) -> None:
        self.offered += [entry.job_id for entry in entries if not entry.delay]


async def test_a_job_that_comes_due_while_all_is_offered_anew_is_offered() -> None:  # E45
    clock = ManualClock()
    app = Holdfast("memory://", clock=clock)

    @app.task
    async def note() -> None: ...

    async with app:
        handle = await note.options(delay="2500ms").enqueue()
        broker = NoTime(app, clock)
        duty = DispatchFeed(await app.runtime.engine(), cast(Dispatcher, broker))
        await duty.run()
        await duty.run()
        assert broker.offered == [handle.id]
