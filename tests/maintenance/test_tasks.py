"""When the duties look for jobs that are due, on a clock that moves when told: seldom, and at once for what is known of."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Every, Holdfast, JobFailed, Retention, Retry
from holdfast.engine.engine import Engine
from holdfast.errors import StoreUnavailable
from holdfast.maintenance.tasks import Maintenance
from holdfast.processes import make_maintenance
from holdfast.testing import ManualClock, app_in_memory, drain

pytestmark = pytest.mark.anyio

SECOND = timedelta(seconds=1)


class Watch:
    """Duties that sweep once an hour, and the seconds at which they looked for jobs that are due."""

    def __init__(self, app: Holdfast, engine: Engine, clock: ManualClock) -> None:
        self.app, self.engine, self.clock, self.maintenance = app, engine, clock, Maintenance(engine)
        engine.recovery.promoters.append(self.maintenance.expect)  # as while they run
        self.looks: list[int] = []
        self.away = False
        self._promote, self._began = engine.store.promote, clock.monotonic()
        engine.store.promote = self._look  # type: ignore[method-assign]

    async def _look(self, limit: int) -> timedelta | None:
        self.looks.append(round(self.clock.monotonic() - self._began))
        if self.away:
            raise StoreUnavailable("away")
        return await self._promote(limit)

    async def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.maintenance.turn()
            self.clock.advance(SECOND)


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    app, clock = Holdfast("memory://", promote_every="1h"), ManualClock()

    @app.task(retry=Retry(3, base="10s", jitter="none"))
    async def shoot() -> None: ...

    with app_in_memory(app, clock=clock):
        yield Watch(app, await app.runtime.engine(), clock)


async def test_without_a_word_they_look_at_their_interval(watch: Watch) -> None:  # S4
    await watch.pass_by(3_700)
    assert watch.looks == [0, 3600]


async def test_what_they_were_told_of_is_looked_for_at_its_time_and_once_more(watch: Watch) -> None:  # S4
    await watch.pass_by(5)
    watch.maintenance.expect(timedelta(seconds=10))
    watch.maintenance.expect(timedelta(seconds=20))
    await watch.pass_by(60)
    assert watch.looks == [0, 15, 16]


async def test_the_retry_of_a_job_that_was_reclaimed_is_expected(watch: Watch) -> None:  # S4 E30
    await watch.pass_by(5)
    task = watch.app.tasks["shoot"]
    await task.enqueue()
    store = watch.engine.store
    session = await store.open_session("lost", SECOND)
    assert await store.claim(session, [task.lane], 1)
    await watch.pass_by(30)
    # Lost after a second, found at the next look for such, and due at once: it was not the job's fault.
    assert watch.looks[:2] == [0, 7]


async def test_the_end_of_a_pause_is_seen_soon(watch: Watch) -> None:  # S4 E27
    for duty in ("retries", "delayed"):
        await watch.app.queues.pause(duty, kind="maintenance", duration="60s")
    await watch.pass_by(58)
    assert watch.looks == [0]
    await watch.pass_by(10)
    assert watch.looks[1:] == [60] or watch.looks[1:] == [61]


async def test_a_store_that_was_away_is_asked_again_for_what_is_expected(watch: Watch) -> None:  # S4
    await watch.pass_by(5)
    watch.maintenance.expect(timedelta(seconds=2))
    watch.away = True
    await watch.pass_by(10)
    assert watch.looks == [0, *range(7, 15)]
    watch.away = False
    await watch.pass_by(10)
    assert watch.looks[9:] == [15, 16]


async def test_all_duties_of_an_engine_are_told_as_long_as_they_run(watch: Watch) -> None:  # S4
    """Two workers of one app: the one that ends does not leave the other without a word."""
    first, second = Maintenance(watch.engine), Maintenance(watch.engine)
    told: list[str] = []
    first.expect = lambda delay: told.append("first")  # type: ignore[method-assign]
    second.expect = lambda delay: told.append("second")  # type: ignore[method-assign]
    running = [asyncio.create_task(maintenance.run()) for maintenance in (first, second)]
    await asyncio.sleep(0)
    watch.engine.recovery.expect(SECOND)
    assert told == ["first", "second"]
    running[1].cancel()
    await asyncio.gather(running[1], return_exceptions=True)
    watch.engine.recovery.expect(SECOND)
    assert told == ["first", "second", "first"]
    running[0].cancel()
    await asyncio.gather(running[0], return_exceptions=True)
    watch.engine.recovery.expect(SECOND)
    assert told == ["first", "second", "first"]


@pytest.mark.parametrize(
    "name", ["deadlines", "notifiers", "operations", "retention", "schedules", "stuck", "webhooks"]
)
async def test_a_duty_that_is_paused_rests_until_it_is_resumed_and_the_others_go_on(
    watch: Watch, name: str
) -> None:  # E27
    watch.app.schedule(watch.app.tasks["shoot"], Every("1h"))
    watch.app.runtime.retention = Retention(jobs=timedelta(days=1))
    maintenance = make_maintenance(watch.app.runtime, watch.engine)
    maintenance.add("other", 1.0, watch.engine.store.now)
    await watch.app.queues.pause(name, kind="maintenance", reason="a repair", by="ann")

    async def runs() -> Counter[str]:
        before = Counter({duty.name: duty.runs for duty in maintenance.all})
        for _ in range(3):
            watch.clock.advance("61s")
            await maintenance.turn()
            await asyncio.sleep(0)  # a duty that runs apart has its turn
        return Counter({duty.name: duty.runs for duty in maintenance.all}) - before

    done = await runs()
    assert done[name] == 0
    assert all(done[duty.name] for duty in maintenance.all if duty.name != name)
    await watch.app.queues.resume(name, kind="maintenance")
    assert (await runs())[name] > 0


async def test_each_task_is_kept_as_it_says_and_the_others_as_the_app_does() -> None:  # E38
    app = Holdfast("memory://", retention=Retention(jobs=timedelta(hours=2)))

    @app.task(retention=Retention(results=timedelta(minutes=30)))
    async def brief() -> int:
        return 1

    @app.task(retention=Retention(jobs=timedelta(days=1)))
    async def long() -> int:
        return 1

    @app.task
    async def plain() -> int:
        return 1

    clock = ManualClock()
    with app_in_memory(app, clock=clock):
        await brief.enqueue()
        await long.enqueue()
        await plain.enqueue()
        await drain(app)
        maintenance = Maintenance(await app.runtime.engine(), app.runtime.retention)

        async def left() -> list[tuple[str, bool]]:
            await maintenance.turn()
            return sorted((row.task, row.expired_at is None) for row in (await app.jobs.list()).rows)

        assert await left() == [("brief", True), ("long", True), ("plain", True)]
        clock.advance(timedelta(hours=1))
        assert await left() == [("brief", False), ("long", True), ("plain", True)]
        clock.advance(timedelta(hours=2))
        assert await left() == [("brief", False), ("long", True)]
        clock.advance(timedelta(days=1))
        assert await left() == [("brief", False)]


@pytest.mark.parametrize(("given", "seconds"), [({}, 1), ({"deadlines_every": "60s"}, 60)])
async def test_deadlines_are_looked_for_as_often_as_the_setting_says(
    given: dict[str, str], seconds: int
) -> None:  # G5
    app, clock, looks = Holdfast("memory://", **given), ManualClock(), list[int]()  # type: ignore[arg-type]
    with app_in_memory(app, clock=clock):
        engine, began = await app.runtime.engine(), clock.monotonic()

        async def time_out() -> int:
            looks.append(round(clock.monotonic() - began))
            return 0

        engine.recovery.time_out = time_out  # type: ignore[method-assign]
        maintenance = Maintenance(engine)
        for _ in range(121):
            await maintenance.turn()
            clock.advance(SECOND)
    assert looks == list(range(0, 121, seconds))


async def test_the_duties_are_done_without_a_worker() -> None:  # E67 E34
    app = Holdfast("memory://", reclaim_every="20ms")

    @app.task
    async def send() -> None: ...

    async with app:
        late, other = await send.options(deadline="1ms").enqueue(), await send.enqueue()
        doing = asyncio.create_task(app.run_maintenance())
        with pytest.raises(JobFailed, match="TIMEOUT"):
            await late.result("10s")
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        assert (await other.job()).state == "queued"
