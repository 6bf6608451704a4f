"""Operations with real workers on both stores: done while they work, by several processes at once, each job once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast, Retry
from holdfast.engine.operation import Progress
from holdfast.maintenance.operations import OperationRunner
from tests.apps import ONCE, Database, new_app, until, work, working

pytestmark = pytest.mark.anyio


async def test_a_worker_redrives_what_an_operation_says(db: Database, app: Holdfast) -> None:  # E33 E66
    broken = True

    @app.task(retry=ONCE)
    async def shoot(number: int) -> int:
        if broken:
            raise ValueError("no film")
        return number

    async with app:
        handles = await shoot.enqueue_many(range(70))
        await work(app)
        assert await app.dead_letters.count(task="shoot") == 70
        broken = False
        begun = await app.operations.begin(
            "redrive", task="shoot", ids=[handle.id for handle in handles[:60]]
        )
        async with working(app):
            await until(lambda: app.jobs.count(state="complete"))
            await until(lambda: _is(app, begun.id, Progress.DONE))
            assert await handles[0].result("30s") == 0
        ended = await app.operations.get(begun.id)
        assert (ended.matched, ended.done, ended.refused) == (60, 60, 0)
        assert await app.dead_letters.count() == 10


async def _is(app: Holdfast, operation_id: str, progress: Progress) -> bool:
    return (await app.operations.get(operation_id)).progress is progress


@pytest.mark.parametrize("fails", [False, True])
async def test_workers_redrive_a_canary_and_go_on_if_it_ends_well(
    db: Database, app: Holdfast, fails: bool
) -> None:  # E32 E66
    broken = True

    @app.task(retry=ONCE)
    async def shoot(number: int, film: str = "color") -> str:
        if broken:
            raise ValueError("no film")
        return film

    async with app:
        handles = await shoot.enqueue_many(range(20))
        await work(app)
        broken = fails
        options: dict[str, Any] = {"task": "shoot", "patch": {"film": "gray"}, "to_queue": "studio"}
        preview = await app.operations.preview("redrive", **options)
        assert (preview.matched, preview.skipped, preview.queues) == (20, {}, ["studio"])
        assert (preview.sample[0].before, preview.sample[0].after) == ({}, {"film": "gray"})
        begun = await app.operations.begin("redrive", **options, canary=5, ramp_from=50, rate=500)
        async with working(app, queues=["default", "studio"]):
            ended = Progress.STOPPED if fails else Progress.DONE
            await until(lambda: _is(app, begun.id, ended))
        now = await app.operations.get(begun.id)
        # A worker may end more than the two failures that the bound needs before the operation looks.
        assert (now.done, now.refused) == ((5, 0) if fails else (20, 0))
        assert (now.failed_again >= 2, now.ended) == ((True, now.ended) if fails else (False, 20))
        rows = [await handle.job() for handle in handles]
        assert [row.generation for row in rows].count(2) == now.done
        if not fails:
            assert {row.result for row in rows} == {"gray"}
            assert {row.queue for row in rows} == {"studio"}


async def test_processes_that_share_a_ramp_move_each_job_once(db: Database) -> None:  # E32 E66
    apps = [new_app(db.url) for _ in range(3)]
    for app in apps:

        @app.task(name="shoot", retry=ONCE)
        async def shoot(number: int) -> None:
            raise ValueError("no film")

    async with apps[0], apps[1], apps[2]:
        await apps[0].tasks["shoot"].enqueue_many(range(60))
        await work(apps[0])
        begun = await apps[0].operations.begin("redrive", canary=3, stop_above=1.0)
        maintenance = [OperationRunner(await app.runtime.engine()) for app in apps]

        async def look() -> bool:
            await asyncio.gather(*(one.run() for one in maintenance))
            # A worker's own maintenance could take the plan and stop in mid-step. The next process would then wait for its span.
            await work(apps[1], maintenance=False)
            return await _is(apps[0], begun.id, Progress.DONE)

        await until(look)
        ended = await apps[0].operations.get(begun.id)
        assert (ended.done, ended.ended, ended.failed_again) == (60, 60, 60)
        events = await apps[0].events.list(limit=10_000)
        redriven = [event.job_id for event in events if event.kind == "redriven"]
        assert len(redriven) == len(set(redriven)) == 60
        assert [e.meta["progress"] for e in events if e.kind == "operation_ended"] == ["done"]


async def test_several_processes_at_once_do_each_job_once(db: Database) -> None:  # E66
    apps = [new_app(db.url) for _ in range(3)]
    for app in apps:

        @app.task(name="shoot", retry=Retry(1))
        async def shoot(number: int) -> None: ...

        async with app:
            if app is apps[0]:
                await shoot.enqueue_many(range(200))
    async with apps[0], apps[1], apps[2]:
        begun = [
            await apps[0].operations.begin("cancel", ids=None, task="shoot", by=name) for name in ("a", "b")
        ]
        maintenance = [OperationRunner(await app.runtime.engine()) for app in apps]
        async with asyncio.timeout(30):
            while not all([await _is(apps[0], one.id, Progress.DONE) for one in begun]):
                await asyncio.gather(*(duty.run() for duty in maintenance))
        ended = [await apps[0].operations.get(one.id) for one in begun]
        assert sum(one.done for one in ended) == 200
        events = await apps[0].events.list(limit=10_000)
        assert sorted(e.job_id for e in events if e.kind == "cancelled") == sorted(
            e.job_id for e in events if e.kind == "queued"
        )


async def test_a_paused_duty_lets_operations_wait(db: Database, app: Holdfast) -> None:  # E27 E66
    @app.task
    async def shoot() -> None: ...

    async with app:
        await shoot.options(delay="1h").enqueue()
        await app.queues.pause("operations", kind="maintenance")
        begun = await app.operations.begin("cancel")
        async with working(app):
            await asyncio.sleep(1.2)  # two turns of the duty
            assert await _is(app, begun.id, Progress.RUNNING)
            await app.queues.resume("operations", kind="maintenance")
            await until(lambda: _is(app, begun.id, Progress.DONE))
