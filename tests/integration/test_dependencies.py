"""A worker in front of a dependency that fails, comes back, throttles: what it calls, what it holds, what it burns."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from holdfast import THIS_JOB, Fatal, Holdfast, Job, JobFailed, Retry, Retryable, State
from holdfast.resilience.breaker import BreakerPolicy, BreakerState
from holdfast.resilience.limits import Limit, Limits
from holdfast.worker import admission
from tests.apps import new_app, until, working

QUICK = BreakerPolicy(window=10, min_calls=5, cooldown="300ms", max_cooldown="300ms", votes=1)
PATIENT = Retry(10, base="10ms", jitter="none", cap="50ms")


@pytest.fixture
def app(store_url: str) -> Holdfast:
    return new_app(store_url)


class Service:
    """The dependency: up or down as the test says."""

    def __init__(self) -> None:
        self.is_up, self.calls, self.refused = False, 0, 0

    def answer(self) -> str:
        self.calls += 1
        if not self.is_up:
            self.refused += 1
            raise ConnectionRefusedError("nobody listens")
        return "ok"


async def until_refused(service: Service, calls: int) -> None:
    async def enough() -> bool:
        return service.refused >= calls

    await until(enough)


async def test_a_line_that_is_empty_is_not_asked_as_often_as_one_that_is_full(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E20
    app.dependency("gateway", breaker=QUICK)
    asked: list[str] = []

    @app.task(depends_on="gateway")
    async def convert() -> None: ...

    @app.task
    async def sweep() -> None: ...

    async with app:
        await convert.enqueue_many([{}] * 100)
        store = (await app.runtime.engine()).store
        claim = store.claim

        async def claim_and_note(session: Any, lanes: Any, *args: Any, **more: Any) -> Any:
            asked.extend({lane.task for lane in lanes})
            return await claim(session, lanes, *args, **more)

        monkeypatch.setattr(store, "claim", claim_and_note)
        monkeypatch.setattr(admission, "PATIENCE", 1e9)  # however quickly it is asked here
        began = time.monotonic()
        await app.run_worker(concurrency=1, until_idle=True)
        moments = (time.monotonic() - began) / admission.LONGEST_REST
        assert asked.count("convert") >= 100
        assert asked.count("sweep") <= 5 + 2 * moments
        await sweep.enqueue()
        await app.run_worker(until_idle=True)
        assert (await app.jobs.counts())["complete"] == 101


async def test_an_outage_costs_few_calls_and_no_attempt_and_ends_by_itself(
    app: Holdfast,
) -> None:  # E9 E20 E22 E24
    service = Service()
    app.dependency("gateway", breaker=QUICK)

    @app.task(depends_on="gateway", retry=PATIENT)
    async def convert(number: int) -> str:
        return service.answer()

    async with app:
        handles = await convert.enqueue_many([{"number": number} for number in range(60)])
        async with working(app, concurrency=10):
            await until_refused(service, 5)
            await until_state(app, BreakerState.OPEN)
            await until_refused(service, service.refused + 3)  # it stays down through trials
            wasted = service.refused
            service.is_up = True
            for handle in handles:
                assert await handle.result("20s") == "ok"
        rows = [await app.jobs.get(handle.id) for handle in handles]
    assert wasted < 45
    assert max(row.attempt for row in rows) <= 4
    assert service.calls - service.refused == 60


async def until_state(app: Holdfast, state: BreakerState) -> None:
    async def reached() -> bool:
        return [state_of_dependency.breaker.state for state_of_dependency in await app.breakers.list()] == [
            state
        ]

    await until(reached)


async def until_state_of(app: Holdfast, name: str, state: BreakerState) -> None:
    async def reached() -> bool:
        return state in {o.breaker.state for o in await app.breakers.list() if o.dependency.name == name}

    await until(reached)


async def test_breakers_tell_of_themselves_in_events(app: Holdfast) -> None:  # E60
    service = Service()
    app.dependency("gateway", breaker=QUICK)

    @app.task(depends_on="gateway", retry=PATIENT)
    async def convert(number: int) -> str:
        return service.answer()

    async with app:
        handles = await convert.enqueue_many([{"number": number} for number in range(10)])
        async with working(app, concurrency=5):
            await until_state(app, BreakerState.OPEN)
            service.is_up = True
            for handle in handles:
                await handle.result("20s")
            await until_state(app, BreakerState.CLOSED)
        told = [event for event in await app.events.list(limit=10_000) if event.kind.startswith("breaker")]
    assert [event.kind for event in told][:1] == ["breaker_opened"]
    assert [event.kind for event in told][-1] == "breaker_closed"
    assert {event.meta["dependency"] for event in told} == {"gateway"}


@pytest.mark.parametrize("declared", ["The gateway is down; come back later.", ""])
async def test_fail_fast_ends_jobs_without_a_call(app: Holdfast, declared: str) -> None:  # E21
    service = Service()
    if declared:
        app.error_code("GATEWAY_DOWN", declared, error_class="transient")
    app.dependency(
        "gateway",
        breaker=BreakerPolicy(
            window=10, min_calls=5, cooldown="1m", votes=1, mode="fail_fast", fail_code="GATEWAY_DOWN"
        ),
    )

    @app.task(depends_on="gateway", retry=PATIENT)
    async def convert(number: int) -> str:
        return service.answer()

    async with app:
        await convert.enqueue_many([{"number": number} for number in range(20)])
        async with working(app, concurrency=5):
            await until_state(app, BreakerState.OPEN)
            before = service.calls
            late = await convert.enqueue(100)
            with pytest.raises(JobFailed):
                await late.result("30s")
        row = await app.jobs.get(late.id)
        assert (row.error_code, service.calls) == ("GATEWAY_DOWN", before)
        said = declared or "A service that the job needs is down; calls to it are stopped for now."
        assert row.error_message == said  # and not that something unexpected went wrong


async def test_answers_of_a_healthy_service_never_open_it(app: Holdfast) -> None:  # E20
    app.dependency("gateway", breaker=QUICK)

    @app.task(depends_on="gateway")
    async def convert(number: int) -> str:
        raise Fatal("no such mapping", code="GW_4XX")

    async with app:
        handles = await convert.enqueue_many([{"number": number} for number in range(30)])
        await app.run_worker(until_idle=True)
        assert {(await app.jobs.get(handle.id)).state for handle in handles} == {State.FAILED}
        assert [state_of_dependency.breaker.state for state_of_dependency in await app.breakers.list()] in (
            [],
            [BreakerState.CLOSED],
        )


async def test_retry_after_holds_the_lane_and_not_one_job_only(app: Holdfast) -> None:  # E12
    calls = 0

    class TooMany(Exception):
        """As a client library raises it."""

        def __init__(self) -> None:
            super().__init__("429 Too Many Requests")
            self.response = type("Response", (), {"status_code": 429, "headers": {"Retry-After": "1000"}})()

    @app.task(depends_on="gateway", retry=Retry(3, max_retry_after="2s"))
    async def convert(number: int) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise TooMany
        return "ok"

    async with app:
        first = await convert.enqueue(0)
        async with working(app, concurrency=5):
            await until(app.queues.holds)
            held = await app.queues.holds()
            second = await convert.enqueue(1)
            assert (str(held[0].scope), held[0].cause) == ("dependency gateway", "retry_after")
            assert calls == 1
            assert [await handle.result("30s") for handle in (first, second)] == ["ok", "ok"]
        assert (await app.jobs.get(second.id)).attempt == 1
        assert (await app.jobs.get(first.id)).last_attempt_at > held[0].until  # type: ignore[operator]


async def test_a_task_that_calls_two_services_is_held_by_the_one_that_is_down(app: Holdfast) -> None:  # E20
    bank, mail = Service(), Service()
    mail.is_up = True
    app.dependency("bank", breaker=QUICK)

    @app.task(retry=PATIENT)
    async def pay(number: int, *, job: Job = THIS_JOB) -> str:
        async with job.dependency("mail"):
            mail.answer()
        async with job.dependency("bank"):
            return bank.answer()

    async with app:
        handles = await pay.enqueue_many([{"number": number} for number in range(10)])
        async with working(app, concurrency=5):
            await until_refused(bank, 5)
            await until_state_of(app, "bank", BreakerState.OPEN)
            await until_refused(bank, bank.refused + 2)
            wasted = bank.refused
            bank.is_up = True
            for handle in handles:
                assert await handle.result("20s") == "ok"
        states = {o.dependency.name: o.breaker.state for o in await app.breakers.list()}
    assert wasted <= 25
    assert states.get("mail", BreakerState.CLOSED) is BreakerState.CLOSED


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(app: Holdfast) -> None:  # E27
    @app.task
    async def echo(value: int) -> int:
        return value

    async with app:
        first = await echo.enqueue(1)
        async with working(app):
            assert await first.result("30s") == 1
            await app.queues.pause("default", reason="deploy", by="ann")
            second = await echo.enqueue(2)
            await asyncio.sleep(0.3)
            assert (await app.jobs.get(second.id)).state is State.QUEUED
            assert await app.queues.resume("default")
            assert await second.result("30s") == 2


async def test_a_limit_of_a_task_holds_over_two_workers(app: Holdfast) -> None:  # E26
    running = most = 0

    @app.task(limits=Limits(concurrency=2))
    async def convert(number: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    async with app:
        handles = await convert.enqueue_many([{"number": number} for number in range(20)])
        async with working(app, concurrency=5), working(app, concurrency=5):
            for handle in handles:
                await handle.result("20s")
    assert most == 2


async def test_a_rate_of_an_owner_puts_jobs_off_without_burning_attempts(app: Holdfast) -> None:  # E9 E26
    @app.task(limits=Limits(per_owner=Limit(rate="2/1s")))
    async def convert(number: int) -> None: ...

    async with app:
        handles = await convert.options(owner="ann").enqueue_many([{"number": number} for number in range(4)])
        async with working(app):
            for handle in handles:
                await handle.result("20s")
        rows = [await app.jobs.get(handle.id) for handle in handles]
    assert {row.attempt for row in rows} == {1}
    started = sorted(row.last_attempt_at for row in rows if row.last_attempt_at)
    assert started[-1] - started[0] >= timedelta(seconds=0.4)


async def test_an_exception_of_our_own_is_no_failure_of_the_dependency(app: Holdfast) -> None:  # E20
    app.dependency("gateway", breaker=QUICK)

    @app.task(depends_on="gateway", retry=Retry(2, base="1ms", jitter="none"))
    async def convert(number: int) -> str:
        raise KeyError("a bug")

    async with app:
        await convert.enqueue_many([{"number": number} for number in range(20)])
        await app.run_worker(until_idle=True)
        assert [state_of_dependency.breaker.state for state_of_dependency in await app.breakers.list()] in (
            [],
            [BreakerState.CLOSED],
        )


async def test_retryable_counts_as_a_failure_of_the_dependency(app: Holdfast) -> None:  # E20
    app.dependency("gateway", breaker=QUICK)

    @app.task(depends_on="gateway", retry=PATIENT)
    async def convert(number: int) -> str:
        raise Retryable("not yet")

    async with app:
        await convert.enqueue_many([{"number": number} for number in range(20)])
        async with working(app, concurrency=5):
            await until_state(app, BreakerState.OPEN)
