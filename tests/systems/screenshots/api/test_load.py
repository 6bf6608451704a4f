"""Load: thousands of retries, the scheduler among them, deep queues, several workers (S11). Figures are counts, not times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from systems.screenshots.web.scheduler import scheduler_status
from tests.systems.screenshots.api.racing import misplaced
from tests.systems.screenshots.api.world import Easel, World, eventually

pytestmark = [pytest.mark.anyio, pytest.mark.nightly, pytest.mark.timeout(900)]

JOBS = 3_000
#: Quick retries, and attempts that count as stuck after three seconds: on a busy machine a few that are only slow, too.
POLICIES = """
[tasks.SCREENSHOT]
max_attempts = 5
backoff = { table = ["200ms", "1s"], jitter = "full" }
stuck_after = "3s"
"""


class Crowd:
    """A world with several workers, and all that was asked for in it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ids: list[str] = []

    async def ask(self, what: str, number: int, **options: Any) -> None:
        """Enqueue *number* pictures of hosts of their own, as one customer, each paid for."""
        first = len(self.ids)
        calls = [{"shot": {"url": f"https://n{first + one}.example/{what}/x"}} for one in range(number)]
        for start in range(0, number, 500):
            handles = await self.world.screenshots.screenshot.options(owner="user:7", **options).enqueue_many(
                calls[start : start + 500]
            )
            self.ids += [handle.id for handle in handles]

    async def complete(self) -> None:
        async def all_are() -> bool:
            return await self.world.app.jobs.count(queue="screenshots", state="complete") == len(self.ids)

        await eventually(all_are, every=0.5, within=600)

    async def audit(self) -> Counter[str]:
        """Every run has a reason and every reason a run; the ledger balances. Returns how often each event was."""
        kinds: Counter[str] = Counter()
        for start in range(0, len(self.ids), 100):
            some = self.ids[start : start + 100]
            for events in await asyncio.gather(*(self.world.app.events.list(job_id=one) for one in some)):
                assert misplaced(events) == []
                kinds += Counter(event.kind for event in events)
        assert await self.world.balance() == (0, 0, len(self.ids))
        return kinds


@pytest.fixture
async def crowd(tmp_path: Path, database_url: str) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def make(credits: int, workers: int = 2) -> Crowd:  # noqa: A002
            world = World(tmp_path, database_url, Easel(), policies=POLICIES, worker_concurrency=16)
            await stack.enter_async_context(world.open(works=False, credits=credits))
            for _ in range(workers):
                await stack.enter_async_context(world.working())
            return Crowd(world)

        yield make


async def test_thousands_of_failures_are_all_retried_and_all_end(crowd: Callable[..., Any]) -> None:  # S11
    many = await crowd(JOBS)
    await many.ask("fail-1", JOBS)
    await many.complete()
    kinds = await many.audit()
    again = kinds["retry"] + kinds["reclaimed"]
    assert (kinds["complete"], kinds["processing"]) == (JOBS, JOBS + again)
    assert again >= JOBS


async def test_the_scheduler_under_load_lets_every_delayed_job_in_once(
    crowd: Callable[..., Any],
) -> None:  # S11 S4
    many = await crowd(JOBS + 200)
    world = many.world
    await many.ask("page", JOBS // 2, delay="2s")  # due at one moment …
    await many.ask("fail-2", JOBS // 2)  # … while others are retried
    await many.ask("hang", 200)
    swept = 0
    for _ in range(100):  # stuck ones are reclaimed meanwhile, by a person too
        answer = await world.ask("operator", "POST", "/api/v1/admin/jobs/process-stuck", {"limit": 100})
        assert answer.status_code == 200
        swept += answer.json()["processed"]
        if swept:
            break
        await asyncio.sleep(0.2)
    assert swept > 0
    world.browser.free.set()
    await many.complete()
    kinds = await many.audit()
    again = kinds["retry"] + kinds["reclaimed"]
    assert (kinds["complete"], kinds["processing"]) == (JOBS + 200, JOBS + 200 + again)
    assert again >= JOBS
    assert kinds["reclaimed"] >= swept
    status = await scheduler_status(world.app, world.settings)
    assert (status["running"], status["overdue"], [one.get("late") for one in status["types"]]) == (
        True,
        0,
        [None, False, False],
    )


async def test_a_deep_queue_is_counted_and_shared_by_workers_that_come_later(
    crowd: Callable[..., Any],
) -> None:  # S11
    many = await crowd(JOBS, workers=0)
    world = many.world
    await many.ask("page", JOBS)
    [queue] = [one for one in await world.app.queues.list() if one.name == "screenshots"]
    assert queue.waiting == JOBS
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(world.working())
        await many.complete()
    begun = [await world.app.events.list(job_id=one) for one in many.ids]
    shares = Counter(
        event.meta["worker"] for events in begun for event in events if event.kind == "processing"
    )
    assert (len(shares), shares.total()) == (4, JOBS)
    assert await many.audit() == Counter(queued=JOBS, processing=JOBS, complete=JOBS)
