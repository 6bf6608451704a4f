"""Calls of a dependency that are guarded by its breaker in processes that run no worker."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast import DependencyHeld, Fatal, Holdfast, Retry, StoreUnavailable
from holdfast.engine.tables.dependencies import dependency_states
from holdfast.resilience.breaker import BreakerPolicy, BreakerState
from tests.apps import new_app, until, working

QUICK = BreakerPolicy(
    window=4, threshold=0.5, strictly_above=True, cooldown="300ms", trials=2, trials_to_close=2, votes=1
)


def make_app(url: str) -> Holdfast:
    app = new_app(url)
    app.dependency("bank", breaker=QUICK, limiter=None, budget=None)
    return app


async def state_of(app: Holdfast) -> BreakerState | None:
    states = {one.dependency.name: one for one in await dependency_states((await app.runtime.engine()).store)}
    return states["bank"].breaker.state if "bank" in states else None


async def fail(app: Holdfast, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ConnectionRefusedError):
            async with app.breakers.guard("bank"):
                raise ConnectionRefusedError("it is down")


async def until_state(app: Holdfast, state: BreakerState) -> None:
    async def reached() -> bool:
        return await state_of(app) is state

    await until(reached)


async def test_calls_outside_of_a_worker_open_the_breaker_that_workers_share(
    database_url: str,
) -> None:  # E20
    app, other = make_app(database_url), make_app(database_url)

    @other.task(depends_on="bank", retry=Retry(1))
    async def pay() -> str:
        return "paid"

    async with app, other:
        await fail(app, 4)
        with pytest.raises(DependencyHeld) as held:  # at once, before the store has heard of it
            async with app.breakers.guard("bank"):
                pytest.fail("an open breaker lets nothing through")
        assert isinstance(held.value.after, timedelta)
        assert held.value.name == "bank"
        await until_state(app, BreakerState.OPEN)
        with pytest.raises(DependencyHeld):  # another process, which never called it
            async with other.breakers.guard("bank"):
                pytest.fail("an open breaker lets nothing through")
        # A worker of that dependency takes the trials and closes it, for all of them.
        job = await pay.enqueue()
        async with working(other):
            assert await job.result(timeout=10) == "paid"
        kinds = [event.kind for event in await app.events.list(limit=100)]
        assert "breaker_opened" in kinds


async def test_good_trials_close_the_breaker_without_any_worker(store_url: str) -> None:  # E21
    app = make_app(store_url)
    async with app:
        await fail(app, 4)
        await until_state(app, BreakerState.OPEN)
        good = 0

        async def closed() -> bool:
            nonlocal good
            try:
                async with app.breakers.guard("bank"):
                    good += 1
            except DependencyHeld:
                pass
            return await state_of(app) is BreakerState.CLOSED

        await until(closed)
        assert good == 2


async def test_a_bad_trial_opens_it_again(store_url: str) -> None:  # E21
    app = make_app(store_url)
    async with app:
        await fail(app, 4)
        await until_state(app, BreakerState.HALF_OPEN)

        async def tried() -> bool:
            try:
                async with app.breakers.guard("bank"):
                    raise ConnectionRefusedError("it is down")
            except DependencyHeld:
                return False
            except ConnectionRefusedError:
                return True

        await until(tried)
        await until_state(app, BreakerState.OPEN)


async def test_what_the_dependency_answers_on_purpose_opens_nothing(store_url: str) -> None:  # E20
    app = make_app(store_url)
    async with app:
        for _ in range(10):
            with pytest.raises(Fatal):
                async with app.breakers.guard("bank"):
                    raise Fatal("no such account", code="NO_ACCOUNT")
        async with app.breakers.guard("bank"):
            pass


async def test_a_cancelled_call_tells_nothing_and_gives_its_trial_back(store_url: str) -> None:  # E21
    app = make_app(store_url)
    async with app:
        await fail(app, 4)
        await until_state(app, BreakerState.HALF_OPEN)
        inside = asyncio.Event()

        async def hang() -> None:
            while not inside.is_set():
                try:
                    async with app.breakers.guard("bank"):
                        inside.set()
                        await asyncio.Event().wait()
                except DependencyHeld:
                    await asyncio.sleep(0.02)

        hanging = asyncio.create_task(hang())
        await inside.wait()
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        [state_of_dependency] = await dependency_states((await app.runtime.engine()).store)
        assert state_of_dependency.breaker.state is BreakerState.HALF_OPEN
        assert state_of_dependency.breaker.free_trials(state_of_dependency.now) == 2


def test_threads_without_an_event_loop_share_one_guard(store_url: str) -> None:  # E20
    app = make_app(store_url)

    def call(_: int) -> str:
        try:
            with app.breakers.guard("bank"):
                raise ConnectionRefusedError("it is down")
        except DependencyHeld:
            return "held"
        except ConnectionRefusedError:
            return "called"

    with ThreadPoolExecutor(4) as pool:
        first = list(pool.map(call, range(40)))
    assert 4 <= first.count("called") <= 7  # four threads may be inside when the fourth call fails
    app.sync.close()


def test_a_database_that_is_away_delays_no_call(tmp_path: Any) -> None:  # E20
    app = make_app("postgresql://user:password@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable):
        app.sync.jobs.list()
    with app.breakers.guard("bank") as call:
        assert call.dependency.name == "bank"
    with pytest.raises(ConnectionRefusedError), app.breakers.guard("bank"):
        raise ConnectionRefusedError("it is down")
    app.sync.close()


def test_nothing_is_left_running_when_the_app_is_closed(store_url: str) -> None:
    app = make_app(store_url)

    async def use() -> set[str]:
        async with app:
            async with app.breakers.guard("bank"):
                pass
            during = {task.get_name() for task in asyncio.all_tasks()}
        assert "dependencies" in during
        return {task.get_name() for task in asyncio.all_tasks()} & {"dependencies"}

    assert asyncio.run(use()) == set()
    with app.breakers.guard("bank"):
        loop = app.runtime.portal._loop
    assert "dependencies" in {task.get_name() for task in asyncio.all_tasks(loop)}
    app.sync.close()
    assert asyncio.all_tasks(loop) == set()
