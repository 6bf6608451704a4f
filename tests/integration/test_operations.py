"""Operations with real workers on both stores: done while they work, by several processes at once, each job once."""

from __future__ import annotations

import asyncio

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
