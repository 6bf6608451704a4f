"""Stories that are too rare for every batch of seeds, told by hand on the same loop."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from holdfast import Holdfast
from holdfast.engine.engine import Engine
from holdfast.engine.ports import Store
from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.errors import StoreUnavailable
from holdfast.jobs.lanes import Dependency
from holdfast.resilience.breaker import Breaker, BreakerState, Trial
from holdfast.stores.memory import MemoryStore
from holdfast.tasks.settings import Settings
from holdfast.worker import dependencies as worker_dependencies
from holdfast.worker.worker import Worker
from tests.simulation.loop import SimLoop, SimThreads
from tests.simulation.simulate import quiet
from tests.simulation.world import NumberedIds, SimClock


class Unreliable:
    """A store with something wrong; see those below. *breaker*: that of the service which the jobs call."""

    breaker: Breaker | None = None

    def __init__(self, store: MemoryStore) -> None:
        self._store, self._brought = store, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class SlowClaims(Unreliable):
    """The answer to the first claim is lost; that to the second takes ten seconds."""

    async def claim(self, *args: Any, **options: Any) -> Any:
        claimed = await self._store.claim(*args, **options)
        self._brought += bool(claimed)
        if claimed and self._brought == 1:
            raise StoreUnavailable("the answer was lost")
        if claimed and self._brought == 2:
            await asyncio.sleep(10)
        return claimed


class LateLook(Unreliable):
    """The first claim never arrives, so the worker looks what it holds. While the answer to that is on its way, it is given a
    job and is not told."""

    async def claim(self, *args: Any, **options: Any) -> Any:
        self._brought += 1
        if self._brought == 1:
            raise StoreUnavailable("the store is away")
        if self._brought == 2:
            return []
        claimed = await self._store.claim(*args, **options)
        if self._brought == 3:
            raise StoreUnavailable("the answer was lost")
        return claimed

    async def held(self, session: Any) -> Any:
        held = await self._store.held(session)
        if not held:
            await asyncio.sleep(3)
        return held


class HalfRefused(Unreliable):
    """The first claim brings a job, and then it is refused by something that is not the store: a hook, for another lane."""

    async def claim(self, *args: Any, **options: Any) -> Any:
        claimed = await self._store.claim(*args, **options)
        self._brought += bool(claimed)
        if claimed and self._brought == 1:
            raise RuntimeError("not today")
        return claimed


class LostSettlements(Unreliable):
    """The first three times nothing arrives; the fourth time only the answer is lost."""

    async def settle(self, settlements: Any) -> Any:
        self._brought += 1
        if self._brought <= 3:
            raise StoreUnavailable("the store is away")
        answers = await self._store.settle(settlements)
        if self._brought == 4:
            raise StoreUnavailable("the answer was lost")
        return answers


class Silent(Unreliable):
    """Nobody is ever told that there is work."""

    async def wait_for_work(self, lanes: Any, timeout: float) -> None:
        await asyncio.sleep(timeout)


class SlowTrials(Unreliable):
    """The breaker is half-open, and the worker is in doubt after its first claim."""

    breaker = Breaker(state=BreakerState.HALF_OPEN, version=1, trials=(Trial(), Trial()))

    async def claim(self, *args: Any, **options: Any) -> Any:
        self._brought += 1
        if self._brought == 1:
            raise StoreUnavailable("the store is away")
        return await self._store.claim(*args, **options)


async def story(loop: SimLoop, kind: type[Unreliable], runs: list[str]) -> list[str]:
    """Two jobs, one after the other, at one worker; the events of it."""
    clock, ids, app = SimClock(loop), NumberedIds(), Holdfast("memory://")
    store = MemoryStore(clock)
    app.runtime.new_id = ids.job_id

    if kind.breaker is not None:
        await swap_breaker(store, Dependency("gateway", ""), kind.breaker, holds=True)

    @app.task(depends_on="gateway" if kind.breaker else None)
    async def work(name: str) -> None:
        runs.append(name)

    engine = Engine(cast(Store, kind(store)), app.tasks, Settings(concurrency=2), clock, Random(0), ids)
    worker = Worker(engine, SimThreads(loop), cast(Any, None))
    working = loop.create_task(worker.run())
    for name in ("first", "second"):
        await engine.enqueue(work.options()._jobs([{"name": name}]))
        await asyncio.sleep(1.5)
    await asyncio.sleep(20)
    worker.stop()
    await working
    return [event.kind for event in await store.queries.events(after=0, limit=100)]


def play(kind: type[Unreliable]) -> tuple[list[str], list[str]]:
    """What ran, and the events."""
    loop, runs = SimLoop(Random(1)), list[str]()
    with quiet():
        kinds = loop.run_until_complete(story(loop, kind, runs))
    loop.close()
    return runs, kinds


def test_a_job_is_not_given_back_while_its_claim_may_still_be_answered() -> None:  # E4 E6
    runs, kinds = play(SlowClaims)  # found by seed 655
    assert sorted(runs) == ["first", "second"]  # each ran once
    assert kinds.count("complete") == 2
    assert kinds.count("released") == 1  # the one whose answer was lost, and that one alone


def test_a_job_whose_claim_was_not_answered_is_found_however_late_a_look_is() -> None:  # E5 E6
    runs, kinds = play(LateLook)  # found by seed 24
    assert sorted(runs) == ["first", "second"]
    assert kinds.count("complete") == 2


def test_a_job_is_found_whose_claim_failed_for_whatever_reason() -> None:  # E5
    runs, kinds = play(HalfRefused)  # found by a torture of dispatch, where the driver of the broker raised
    assert sorted(runs) == ["first", "second"]
    assert kinds.count("complete") == 2


def test_a_job_is_not_given_back_while_its_trial_is_being_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E5 E22
    async def swap_slowly(store: Store, dependency: Dependency, breaker: Breaker, **facts: Any) -> bool:
        if any(trial.succeeded is not None for trial in breaker.trials):
            await asyncio.sleep(4)
        return await swap_breaker(store, dependency, breaker, **facts)

    monkeypatch.setattr(worker_dependencies, "swap_breaker", swap_slowly)
    runs, kinds = play(SlowTrials)  # found by seed 256
    assert sorted(runs) == ["first", "second"]
    assert kinds.count("complete") == 2
    assert "released" not in kinds


def test_an_end_is_sent_until_the_store_has_answered() -> None:  # E6
    runs, kinds = play(LostSettlements)
    assert runs == ["first", "second"]
    assert kinds == ["queued", "processing", "complete"] * 2


def test_work_is_found_although_nobody_tells_of_it() -> None:  # E5
    runs, kinds = play(Silent)
    assert runs == ["first", "second"]
    assert kinds.count("complete") == 2
