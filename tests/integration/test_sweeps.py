"""When due jobs are let into line, where the sweep for them comes seldom: what a process knows of is not late."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, current_job
from tests.apps import SOON, Database, new_app, until, working

pytestmark = pytest.mark.anyio


@pytest.fixture
def seldom(db: Database) -> Holdfast:
    app = new_app(db.url, promote_every="1h", stuck_every="100ms")

    @app.task(retry=SOON)
    async def flaky() -> int:
        attempt = current_job().attempt
        if attempt == 1:
            raise RuntimeError("not yet")
        return attempt

    return app


async def test_a_retry_is_let_in_at_its_time_and_not_with_the_next_sweep(seldom: Holdfast) -> None:  # S4 E30
    async with seldom as app, working(seldom):
        handles = [await app.tasks["flaky"].enqueue() for _ in range(20)]
        assert [await handle.result("30s") for handle in handles] == [2] * 20


async def test_a_job_that_was_reclaimed_is_let_in_at_its_time(seldom: Holdfast) -> None:  # S4 E30
    async with seldom as app:
        store = (await app.runtime.engine()).store
        lost = await store.open_session("lost", (await app.runtime.engine()).settings.lease)
        handle = await app.tasks["flaky"].enqueue()
        while not await store.claim(lost, [app.tasks["flaky"].lane], 1):
            continue
        await store.close_session(lost)
        async with working(app):
            assert await handle.result("30s") == 2


async def test_what_a_pause_kept_out_is_let_in_when_it_ends(seldom: Holdfast) -> None:  # S4 E27
    async with seldom as app, working(seldom):
        await app.queues.pause("retries", kind="maintenance")
        handle = await app.tasks["flaky"].enqueue()

        async def waits() -> bool:
            row = await handle.job()
            return row.state == "queued" and row.attempt == 1

        await until(waits)
        await app.queues.resume(
            "retries", kind="maintenance"
        )  # before or after the worker has seen that there is a pause
        assert await handle.result("30s") == 2
