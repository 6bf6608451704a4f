"""The sweeps of the source document: how often they come and how many they take, on a clock that moves when told (S4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.maintenance.tasks import Maintenance
from holdfast.testing import ManualClock, app_in_memory
from systems.screenshots.settings import Settings
from systems.screenshots.tasks import SCREENSHOT, build
from systems.screenshots.web.scheduler import scheduler_status
from tests.systems.screenshots.api.world import PAGE

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)


def made(folder: Path, **knobs: Any) -> Holdfast:
    """With pictures that may take hours: their own timeout would be first otherwise."""
    patient: dict[str, Any] = {
        "database_url": f"sqlite:///{folder / 'a.db'}",
        "screenshot_price": 0,
        "shot_seconds": 7_200.0,
    }
    return build(Settings(**(patient | knobs))).app


async def hold(engine: Engine, jobs: int) -> None:
    """So many pictures that never end, at a worker that lives."""
    task = engine.tasks[SCREENSHOT]
    await task.enqueue_many([({"url": f"{PAGE}/{n}"},) for n in range(jobs)])
    session = await engine.store.open_session("slow", timedelta(days=1))
    assert len(await engine.store.claim(session, [task.lane], jobs)) == jobs


async def test_a_sweep_takes_back_a_hundred_stuck_jobs_and_comes_every_five_minutes(
    tmp_path: Path,
) -> None:  # S4 E30
    clock = ManualClock()
    with app_in_memory(made(tmp_path), clock=clock) as app:
        engine = await app.runtime.engine()
        maintenance = Maintenance(engine)
        await maintenance.turn()  # as its worker starts: from here on every five minutes
        await hold(engine, 250)
        seen = []
        for _ in range(46):
            clock.advance(MINUTE)
            await maintenance.turn()
            seen.append(len(await app.jobs.stuck(limit=500)))
    # Stuck after 30 minutes: the sweep of minute 30 is a moment too early, the next are those of minute 35, 40 and 45.
    assert seen[:30] == [0] * 30
    assert seen[30:34] == [250] * 4
    assert seen[34:39] == [150] * 5
    assert seen[39:44] == [50] * 5
    assert seen[44:] == [0, 0]


async def test_interval_and_batch_of_the_sweep_are_settings(tmp_path: Path) -> None:  # S4
    clock = ManualClock()
    given = {"STUCK_AFTER_SEC": "60", "STUCK_JOBS_EVERY_SEC": "120", "STUCK_JOBS_BATCH": "3"}
    knobs = Settings.read(given)
    app = made(
        tmp_path,
        stuck_after_sec=knobs.stuck_after_sec,
        stuck_jobs_every_sec=knobs.stuck_jobs_every_sec,
        stuck_jobs_batch=knobs.stuck_jobs_batch,
    )
    with app_in_memory(app, clock=clock):
        engine = await app.runtime.engine()
        maintenance = Maintenance(engine)
        await maintenance.turn()
        await hold(engine, 5)
        clock.advance(timedelta(seconds=119))
        await maintenance.turn()
        assert len(await app.jobs.stuck()) == 5
        clock.advance(timedelta(seconds=1))
        await maintenance.turn()
        assert len(await app.jobs.stuck()) == 2


async def test_jobs_that_are_due_later_are_looked_for_each_second(tmp_path: Path) -> None:  # S4
    """Sooner than this system promises, so that a retry whose worker has died is not late either."""
    clock = ManualClock()
    with app_in_memory(made(tmp_path), clock=clock) as app:
        engine = await app.runtime.engine()
        looks: list[float] = []
        promote = engine.store.promote

        async def look(limit: int) -> timedelta | None:
            looks.append(round(clock.monotonic() - began))
            return await promote(limit)

        engine.store.promote = look  # type: ignore[method-assign]
        began, maintenance = clock.monotonic(), Maintenance(engine)
        for _ in range(5):
            await maintenance.turn()
            clock.advance(timedelta(seconds=1))
        assert looks == [0, 1, 2, 3, 4]


async def test_what_is_due_and_not_in_line_after_its_interval_is_told(tmp_path: Path) -> None:  # S4
    clock, settings = ManualClock(), Settings(failed_jobs_every_sec=40, delayed_jobs_every_sec=20)
    with app_in_memory(made(tmp_path), clock=clock) as app:

        async def late() -> list[bool]:
            return [one["late"] for one in (await scheduler_status(app, settings))["types"] if "late" in one]

        await app.tasks[SCREENSHOT].options(delay="1s").enqueue({"url": PAGE})
        told = []
        for seconds in (19, 3, 20):
            clock.advance(timedelta(seconds=seconds))
            told.append(await late())
        assert told == [[False, False], [False, True], [True, True]]
        await app.queues.pause("retries", kind="maintenance")
        assert await late() == [False, False]  # somebody wants it so
        await app.queues.resume("retries", kind="maintenance")
        await Maintenance(await app.runtime.engine()).turn()
        assert await late() == [False, False]
