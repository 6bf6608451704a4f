"""What a claim costs among ten thousand lanes on SQLite, counted in steps of its virtual machine and in statements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob, Session, Settlement
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.jobs.verdict import Complete
from holdfast.resilience.breaker import Breaker, BreakerState
from holdfast.stores.sqlite import SqliteStore
from holdfast.wiring import SystemClock, SystemIds

pytestmark = pytest.mark.anyio

MANY, FEW, LIMIT = 10_000, 100, 50
HOUR = timedelta(hours=1)
BOBS = Lane("default", "work", fair=True)
_ids = SystemIds()


@dataclass
class Cost:
    """Steps of SQLite's machine, in tens, and statements."""

    steps: int = 0
    statements: int = 0


@dataclass
class Bench:
    store: SqliteStore
    session: Session

    @contextmanager
    def counted(self) -> Iterator[Cost]:
        """Count what the store's connections do inside the block: its writer's, its reader's and the one that looks for work."""
        cost = Cost()

        def step() -> int:
            cost.steps += 1
            return 0

        def statement(_: str) -> None:
            cost.statements += 1

        assert self.store._database.writer is not None
        assert self.store._database.notifier is not None
        assert self.store._database.reader is not None
        connections = [
            self.store._database.writer._connection,
            self.store._database.reader,
            self.store._database.notifier._connection,
        ]
        for connection in connections:
            connection.set_progress_handler(step, 10)
            connection.set_trace_callback(statement)
        try:
            yield cost
        finally:
            for connection in connections:
                connection.set_progress_handler(None, 0)
                connection.set_trace_callback(None)

    async def fill(self, lanes: list[Lane], owner: str | None = None) -> list[JobId]:
        jobs = [NewJob(_ids.job_id(), "{}", JobSpec(lane=lane, owner=owner)) for lane in lanes]
        return [answer.id for answer in await self.store.enqueue(jobs)]

    async def claim(self, lanes: list[Lane], limit: int = LIMIT) -> list[Claimed]:
        return await self.store.claim(self.session, lanes, limit)

    async def settle_down(self, lanes: list[Lane]) -> None:
        """Claim until the walk has come round and rests."""
        for _ in range(len(lanes) // 500 + 2):
            await self.claim(lanes)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = SqliteStore(str(tmp_path / "jobs.db"), SystemClock(), None)
    await store.open()
    yield Bench(store, await store.open_session("anna", HOUR))
    await store.close()


def lanes_of(count: int, *, fair: bool = False, kind: str = "queue") -> list[Lane]:
    return [Lane(f"{kind} {number}", "work", fair=fair) for number in range(count)]


async def cost_of_a_claim(bench: Bench, lanes: list[Lane], owner: str | None) -> Cost:
    await bench.fill(lanes, owner)
    await bench.settle_down(lanes)
    await bench.fill(lanes, owner)
    for _ in range(len(lanes) // 1000 + 1):  # the new ones are seen once
        await bench.claim(lanes, 1)
    with bench.counted() as cost:
        claimed = await bench.claim(lanes)
    assert len(claimed) == LIMIT
    return cost


@pytest.mark.parametrize("owner", [None, "alice"])
async def test_a_claim_costs_the_same_among_ten_thousand_lanes_as_among_a_hundred(
    bench: Bench, owner: str | None
) -> None:  # E25
    few = await cost_of_a_claim(bench, lanes_of(FEW, fair=owner is not None, kind="few"), owner)
    many = await cost_of_a_claim(bench, lanes_of(MANY, fair=owner is not None), owner)
    assert many.statements <= 1.2 * few.statements
    assert many.steps <= 2 * few.steps


async def test_a_drain_of_many_lanes_takes_a_few_times_the_steps_of_one(bench: Bench) -> None:  # E25
    async def drain(lanes: list[Lane]) -> Cost:
        with bench.counted() as cost:
            while claimed := await bench.claim(lanes):
                await bench.store.settle(
                    [Settlement(one.lease, Complete("1"), one.attempt) for one in claimed]
                )
        return cost

    await bench.fill([Lane("one", "work", fair=True)] * MANY, "alice")
    one = await drain([Lane("one", "work", fair=True)])
    many = lanes_of(MANY, fair=True)
    await bench.fill(many, "alice")
    assert (await drain(many)).steps <= 3 * one.steps


async def test_another_owners_job_is_in_the_next_claim(bench: Bench) -> None:  # E25
    lanes = [*lanes_of(MANY, fair=True), BOBS]
    await bench.fill(lanes[:-1], "alice")
    await bench.claim(lanes, 5)
    [first] = await bench.fill([BOBS], "bob")
    assert first in [one.lease.job_id for one in await bench.claim(lanes, 5)]
    await bench.settle_down(lanes)  # they have been there for a while
    [second] = await bench.fill([BOBS], "bob")
    assert second in [one.lease.job_id for one in await bench.claim(lanes, 5)]


@pytest.mark.parametrize("how", ["queue", "task", "breaker"])
async def test_held_lanes_cost_a_claim_nothing(bench: Bench, how: str) -> None:  # E24 E27
    held = (
        [Lane("default", "convert", "gateway", f"shard {number}") for number in range(MANY)]
        if how == "breaker"
        else [lane._replace(task="held") for lane in lanes_of(MANY)]
    )
    free = lanes_of(FEW, kind="free")
    alone = await cost_of_a_claim(bench, free, None)
    await bench.fill(held)
    opened = Breaker(state=BreakerState.OPEN, version=1)
    for lane in held[: 1 if how == "task" else MANY]:
        if how == "breaker":
            await swap_breaker(bench.store, Dependency("gateway", lane.shard), opened, holds=True)
        else:
            scope = Scope(ScopeKind(how), lane.queue if how == "queue" else "held")
            await bench.store.lanes.hold(scope, Cause.PAUSE, span=None, reason="", by="ann")
    lanes = [*held, *free]
    for _ in range(MANY // 1000 + 5):  # they are seen once, and put aside
        await bench.claim(lanes, 1)
    await bench.fill(free)
    with bench.counted() as beside:
        claimed = await bench.claim(lanes)
    assert {one.lane.task for one in claimed} == {"work"}
    assert len(claimed) == LIMIT
    assert beside.statements <= alone.statements + 10
    assert beside.steps <= 3 * alone.steps


async def test_lanes_that_are_empty_cost_nothing(bench: Bench) -> None:  # E25
    lanes = lanes_of(MANY)
    await bench.fill(lanes)
    while claimed := await bench.claim(lanes, 1000):
        await bench.store.settle([Settlement(one.lease, Complete("1"), one.attempt) for one in claimed])
    with bench.counted() as vain:
        assert await bench.claim(lanes) == []
    assert vain.steps <= 100  # a thousand steps of the machine: no look at each lane
    [late] = await bench.fill([lanes[77]])
    with bench.counted() as cost:
        assert [one.lease.job_id for one in await bench.claim(lanes)] == [late]
    assert cost.steps <= 500


async def test_making_lanes_reads_none_that_are_known(bench: Bench) -> None:  # E25
    await bench.fill(lanes_of(MANY))
    await bench.fill([Lane("new 0", "work")])
    with bench.counted() as cost:
        await bench.fill([Lane("new 1", "work")])
    assert cost.steps <= 100
    assert cost.statements <= 12
