"""Scheduled tasks with real workers: one job a tick, however many processes watch the clock."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, UsageError
from holdfast.engine.tables import ticks as schedule_ticks
from holdfast.jobs.schedule import Every, tick_id
from holdfast.maintenance.schedules import Scheduler
from tests.apps import Database, new_app


def ticking(db: Database, every: str = "1s") -> Holdfast:
    app = new_app(db.url)

    @app.schedule(Every(every), name="tick")
    @app.task
    async def tick() -> None: ...

    return app


async def test_two_workers_enqueue_each_tick_once(db: Database) -> None:  # E39
    one, two = ticking(db), ticking(db)
    async with one, two:
        workers = [asyncio.create_task(app.run_worker()) for app in (one, two)]
        async with asyncio.timeout(20):
            while (await one.jobs.counts())["complete"] < 3:  # noqa: ASYNC110 - asks as a user would
                await asyncio.sleep(0.05)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        page = await one.jobs.list(task="tick", limit=100)
    first, last = min(row.created_at for row in page.rows), max(row.created_at for row in page.rows)
    possible = Every("1s").ticks_between(first - timedelta(seconds=2), last + timedelta(seconds=2))
    assert {row.id for row in page.rows} <= {tick_id("tick", moment) for moment in possible}
    assert len(page.rows) <= (last - first) / timedelta(seconds=1) + 2
    assert {row.tags for row in page.rows} == {("schedule:tick",)}


async def test_a_process_that_died_before_its_note_leaves_no_second_job(db: Database) -> None:  # E39 E6
    app = ticking(db, "1h")
    async with app:
        engine = await app.runtime.engine()
        now = await engine.store.now()
        await schedule_ticks.move(engine.store, "tick", before=None, last=now - timedelta(hours=1), due=now)
        duty = Scheduler(engine, app.runtime.declared.schedules)
        await duty.run()
        [kept] = await schedule_ticks.every(engine.store)
        # As if it had enqueued and died: its note is undone, and another process comes along.
        assert await schedule_ticks.forget(engine.store, "tick")
        await schedule_ticks.move(engine.store, "tick", before=None, last=now - timedelta(hours=1), due=now)
        await Scheduler(engine, app.runtime.declared.schedules).run()
        assert (await app.jobs.counts())["queued"] == 1
        [row] = (await app.jobs.list(task="tick")).rows
        [moment] = Every("1h").ticks_between(now - timedelta(hours=1), now)
        assert row.id == tick_id("tick", moment)
        assert kept.due > now


async def test_a_schedule_that_was_only_seen_has_no_last_tick(db: Database) -> None:  # E39
    app = ticking(db, "1h")
    async with app:
        engine = await app.runtime.engine()
        await Scheduler(engine, app.runtime.declared.schedules).run()
        [kept] = await schedule_ticks.every(engine.store)
        assert kept.last is not None
        assert kept.ticked is None
        now = await engine.store.now()
        assert await schedule_ticks.forget(engine.store, "tick")
        await schedule_ticks.move(engine.store, "tick", before=None, last=now - timedelta(hours=1), due=now)
        await Scheduler(engine, app.runtime.declared.schedules).run()
        [kept] = await schedule_ticks.every(engine.store)
        assert [kept.ticked] == Every("1h").ticks_between(now - timedelta(hours=1), now)


async def test_a_paused_schedule_does_not_tick_and_resumes(db: Database) -> None:  # E27 E39
    app = ticking(db, "1h")
    async with app:
        engine = await app.runtime.engine()
        now = await engine.store.now()
        await app.queues.pause("tick", kind="schedule", reason="holiday")  # before anybody has seen to it
        await schedule_ticks.move(engine.store, "tick", before=None, last=now - timedelta(hours=1), due=now)
        await Scheduler(engine, app.runtime.declared.schedules).run()
        assert (await app.jobs.counts())["queued"] == 0
        await app.queues.resume("tick", kind="schedule")
        await Scheduler(engine, app.runtime.declared.schedules).run()
        assert (await app.jobs.counts())["queued"] == 1


async def test_an_unknown_name_is_answered_with_the_near_ones(db: Database) -> None:  # E27
    app = ticking(db)
    async with app:
        await app.tasks["tick"].enqueue()
        with pytest.raises(UsageError, match=r"no queue named 'defalt'; did you mean default\?"):
            await app.queues.pause("defalt")
        with pytest.raises(UsageError, match="kind is 'line'; it is one of queue, task, lane"):
            await app.queues.pause("default", kind="line")


def test_ids_of_ticks_grow_with_time() -> None:  # E39
    start = datetime(2026, 1, 1, tzinfo=UTC)
    ids = [tick_id("a", start + timedelta(hours=hour)) for hour in range(5)]
    assert ids == sorted(ids)
