"""So many jobs of one owner or one key at a time, with real workers on both stores."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict

import pytest

from holdfast import Holdfast, Limits, UsageError
from holdfast.jobs.job import JobSpec, Lane, NewJob, Settlement
from holdfast.jobs.verdict import Complete, Release
from holdfast.policies import Limit
from holdfast.stores.postgres import PostgresStore
from holdfast.wiring import SystemIds
from tests.apps import Database, new_app, work
from tests.stores.postgres.lanes import session, stores

pytestmark = pytest.mark.anyio


class Meter:
    """How many ran at once, by name. Those of a name wait until *together* of them do: where they may, they meet."""

    def __init__(self, **together: int) -> None:
        self._together = together
        self._met: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def run(self, name: str) -> None:
        self.running[name] += 1
        self.most[name] = max(self.most[name], self.running[name])
        if self.most[name] >= self._together.get(name, 1):
            self._met[name].set()
        await self._met[name].wait()
        await asyncio.sleep(0.02)
        self.running[name] -= 1


async def test_of_one_owner_so_many_run_at_a_time(db: Database, app: Holdfast) -> None:  # E26
    meter = Meter(ann=2, bob=2, nobody=3)

    @app.task(limits=Limits(per_owner=Limit(concurrency=2)))
    async def report(owner_name: str) -> None:
        await meter.run(owner_name)

    async with app:
        for owner in ("ann", "bob"):
            await report.options(owner=owner).enqueue_many([(owner,)] * 10)
        free = await report.enqueue_many([("nobody",)] * 10)
        await work(app, concurrency=20)
        assert (await app.jobs.counts())["complete"] == 30
        assert (await free[0].job()).key is None
    assert (meter.most["ann"], meter.most["bob"]) == (2, 2)
    assert meter.most["nobody"] > 2


async def test_of_one_key_so_many_run_at_a_time(db: Database, app: Holdfast) -> None:  # E26
    meter = Meter(a=3, b=3)

    @app.task(limits=Limits(per_key=Limit(concurrency=3)))
    async def sync(account: str) -> None:
        await meter.run(account)

    @app.task
    async def post(account: str) -> None:
        await meter.run(f"post {account}")

    async with app:
        await sync.options(key="a").enqueue_many([("a",)] * 9)
        await sync.options(key="b", owner="ann").enqueue_many([("b",)] * 9)
        await post.options(key="c").enqueue_many([("c",)] * 3)
        await work(app, concurrency=20)
        assert (await app.jobs.counts())["complete"] == 21
    assert dict(meter.most) == {"a": 3, "b": 3, "post c": 1}


async def test_many_workers_never_run_more_of_a_key_than_it_has_slots(postgres_url: str) -> None:  # E26
    lane, ids = Lane("mail", "send"), SystemIds()
    async with stores(postgres_url, 4) as several:
        spec = JobSpec(lane=lane, key="k", key_slots=4, max_attempts=100)
        await several[0].enqueue([NewJob(ids.job_id(), "{}", spec) for _ in range(200)])
        seen: list[int] = []
        done = 0

        async def work(store: PostgresStore) -> None:
            nonlocal done
            holder = await session(store)
            while done < 200:
                claimed = await store.claim(holder, [lane], 2)
                seen.append((await store.queries.counts())["processing"])
                ends = [Settlement(one.lease, Complete("1"), one.attempt) for one in claimed]
                if len(ends) == 2:
                    ends[0] = Settlement(claimed[0].lease, Release(), claimed[0].attempt)
                await store.settle(ends)
                await store.promote(100)
                done += sum(isinstance(end.verdict, Complete) for end in ends)

        async with asyncio.timeout(50), asyncio.TaskGroup() as group:
            for store in several:
                group.create_task(work(store))
        assert 1 < max(seen) <= 4


async def test_a_key_of_its_own_and_a_limit_per_owner_do_not_go_together(
    db: Database, app: Holdfast
) -> None:  # E26
    @app.task(limits=Limits(per_owner=Limit(concurrency=2)))
    async def report() -> None: ...

    async with app:
        with pytest.raises(
            UsageError, match="limit of 2 at a time per owner, so its jobs cannot have a key="
        ):
            await report.options(owner="ann", key="k").enqueue()
        assert (await (await report.options(key="k").enqueue()).job()).key == "k"
        assert (await (await report.options(owner="ann").enqueue()).job()).key is None


def test_a_queue_has_no_limit_of_so_many_per_owner() -> None:  # E26
    app = new_app("memory://")
    with pytest.raises(
        UsageError, match=r"per_owner\.concurrency cannot be set on a queue; set it on the task"
    ):
        app.queue("mail", Limits(per_owner=Limit(concurrency=2)))
