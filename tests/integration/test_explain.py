"""Every reason a job can wait for, brought about on a real store, mostly by a real worker, and explained."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Fatal, Holdfast, Limits, Retry, Snooze, State, UnknownJob
from holdfast.diagnosis.explain import Explanation
from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.engine.admission import Admission
from holdfast.engine.lane_store import DependencyReport
from holdfast.engine.ports import Store
from holdfast.engine.tables.dependencies import swap_breaker
from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob, Session
from holdfast.jobs.lanes import Dependency
from holdfast.plugins import Admit, GateRequest, Hold
from holdfast.policies import Limit, Window, Windows
from holdfast.resilience.breaker import Breaker, BreakerPolicy, BreakerState, Trial
from holdfast.resilience.budget import BudgetPolicy
from tests.apps import new_app, until, working

GATEWAY = Dependency("gateway")
LATER = Retry(3, base="1h", jitter="none")
SOON = Retry(50, base="1ms", jitter="none")


@pytest.fixture
def app(store_url: str) -> Holdfast:
    return new_app(store_url, grace="100ms")


async def explained(app: Holdfast, job_id: str, reason: WaitReason) -> Explanation:
    """What is said of the job as soon as it waits for that."""
    found: list[Explanation] = []

    async def reached() -> bool:
        found.append(await app.jobs.explain(job_id))
        return found[-1].reason is reason

    try:
        await until(reached)
    except TimeoutError:
        raise AssertionError(f"it was said instead: {found[-1]}") from None
    return found[-1]


async def store_of(app: Holdfast) -> Store:
    return (await app.runtime.engine()).store


async def hire(app: Holdfast, **options: Any) -> Session:
    """A worker that lives and does nothing."""
    return await (await store_of(app)).open_session("idle", timedelta(minutes=5), **options)


# -- due later --------------------------------------------------------------------------------------------------------
async def test_a_delayed_job(app: Holdfast) -> None:  # E28
    @app.task
    async def send() -> None: ...

    async with app:
        await hire(app)
        handle = await send.options(delay="1h").enqueue()
        found = await app.jobs.explain(handle.id)
        assert found.reason is WaitReason.DUE_LATER
        assert found.expected_at == (await handle.job()).run_at
        assert found.facts["lane"] == "default/send"


async def test_a_failed_attempt_that_waits_for_its_retry(app: Holdfast) -> None:  # E28
    @app.task(retry=LATER)
    async def send() -> None:
        raise ConnectionRefusedError("nobody listens")

    async with app:
        handle = await send.enqueue()
        async with working(app):
            found = await explained(app, handle.id, WaitReason.RETRY)
        row = await app.jobs.get(handle.id)
        assert row.last_failure is not None
        assert f"Attempt 1 of 3 failed with {row.last_failure['code']}; the next is at" in found.sentence
        assert found.expected_at == row.run_at


async def test_a_retry_outside_of_its_window(app: Holdfast) -> None:  # E16 E28
    day = f"{datetime.now(UTC) + timedelta(days=3):%a}".lower()
    windows = Windows(allow=[Window(days=day)])

    @app.task(retry=Retry(3, base="1s", windows=windows))
    async def send() -> None:
        raise ConnectionRefusedError("nobody listens")

    async with app:
        handle = await send.enqueue()
        async with working(app):
            found = await explained(app, handle.id, WaitReason.RETRY_WINDOW)
    assert found.sentence.startswith("The retry window is closed and opens at ")
    assert found.expected_at is not None


async def test_a_snoozed_job(app: Holdfast) -> None:  # E28
    @app.task
    async def send() -> None:
        raise Snooze("1h")

    async with app:
        handle = await send.enqueue()
        async with working(app):
            await explained(app, handle.id, WaitReason.SNOOZED)


async def test_an_owner_whose_rate_is_used_up(app: Holdfast) -> None:  # E26 E28
    @app.task(limits=Limits(per_owner=Limit(rate="1/h")))
    async def send(number: int) -> None: ...

    async with app:
        first, second = await send.options(owner="ann").enqueue_many([1, 2])
        async with working(app):
            await first.result("10s")
            found = await explained(app, second.id, WaitReason.OWNER_RATE)
    assert "the rate of owner ann" in found.sentence
    assert found.facts["attempt"] == 0


async def test_a_quota_that_is_used_up(app: Holdfast, tmp_path: Path) -> None:  # E18 E28
    file = tmp_path / "policies.toml"
    file.write_text("[quotas.default]\nper_day = 1\n", encoding="utf-8")
    app = Holdfast(app.runtime.url, policies=file, poll="20ms")

    @app.task
    async def send(number: int) -> None: ...

    async with app:
        first, second = await send.options(owner="ann").enqueue_many([1, 2])
        async with working(app):
            await first.result("10s")
            found = await explained(app, second.id, WaitReason.QUOTA)
    assert "the day's quota of ann is used up (1 of 1)" in found.sentence


async def test_a_retry_budget_that_is_used_up(app: Holdfast) -> None:  # E17 E28
    budget = BudgetPolicy(capacity=14, cost=14, floor="1h")
    app.dependency("gateway", breaker=None, limiter=None, budget=budget)

    @app.task(depends_on="gateway", retry=SOON)
    async def send() -> None:
        raise ConnectionRefusedError("nobody listens")

    async with app:
        handle = await send.enqueue()
        async with working(app):
            found = await explained(app, handle.id, WaitReason.RETRY_BUDGET)
    assert "the retry budget of gateway is used up" in found.sentence


async def test_a_job_that_was_given_back_at_a_shutdown(app: Holdfast) -> None:  # E28 E31
    begun = asyncio.Event()

    @app.task
    async def send() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with app:
        handle = await send.enqueue()
        async with working(app):
            await asyncio.wait_for(begun.wait(), 20)
        await hire(app)
        found = await explained(app, handle.id, WaitReason.RELEASED)
    assert found.sentence.startswith(
        "It was given back (shutdown) and is due again; it is the next job in its lane"
    )


# -- held -------------------------------------------------------------------------------------------------------------
async def test_a_paused_queue_and_a_pause_that_ends_later(app: Holdfast) -> None:  # E27 E28
    @app.task
    async def send() -> None: ...

    async with app:
        await hire(app)
        handle = await send.enqueue()
        await app.queues.pause("default", duration="1h", reason="deploy", by="ann")
        found = await app.jobs.explain(handle.id)
        assert found.sentence.startswith("Queue default is paused by ann until ")
        assert found.expected_at is not None
        await app.queues.pause("send", kind="task", by="bob")
        found = await app.jobs.explain(handle.id)
        assert found.sentence == "Task send is paused by bob until it is resumed."
        assert [wait["reason"] for wait in found.facts["waits"]] == ["paused", "paused", "queued"]


async def is_queued(app: Holdfast, job_id: str) -> bool:
    return (await app.jobs.get(job_id)).state is State.QUEUED


async def test_a_service_that_asked_for_a_rest(app: Holdfast) -> None:  # E12 E28
    class TooManyRequests(Exception):
        def __init__(self) -> None:
            super().__init__("429 Too Many Requests")
            self.response = type("Response", (), {"status_code": 429, "headers": {"Retry-After": "600"}})()

    @app.task(depends_on="gateway")
    async def send(number: int) -> None:
        raise TooManyRequests

    async with app:
        first = await send.enqueue(1)
        async with working(app, concurrency=1):
            await until(app.queues.holds)
            second = await send.enqueue(2)
            found = await explained(app, second.id, WaitReason.RETRY_AFTER)
            assert "Dependency gateway asked not to be called until" in found.sentence
            await until(lambda: is_queued(app, first.id))  # the hold is written before its settlement
            reasons = [wait["reason"] for wait in (await app.jobs.explain(first.id)).facts["waits"]]
    assert reasons == ["retry_after", "retry"]


async def test_an_open_breaker(app: Holdfast) -> None:  # E20 E28
    app.dependency(
        "gateway", breaker=BreakerPolicy(window=10, min_calls=5, cooldown="1h", max_cooldown="1h", votes=1)
    )

    @app.task(depends_on="gateway", retry=SOON)
    async def send(number: int) -> None:
        raise ConnectionRefusedError("nobody listens")

    async with app:
        handles = await send.enqueue_many(range(10))
        async with working(app, concurrency=2):
            found = await explained(app, handles[-1].id, WaitReason.BREAKER_OPEN)
    assert found.expected_at is not None
    assert found.facts["dependency"]["breaker"] == "open"


async def test_a_half_open_breaker_and_a_limit_that_is_reached(app: Holdfast) -> None:  # E22 E23 E28
    @app.task(depends_on="gateway")
    async def send() -> None: ...

    async with app:
        session, store = await hire(app), await store_of(app)
        handle, now = await send.enqueue(), await store.now()
        await store.lanes.report(session, [DependencyReport(GATEWAY, 0, False, 3, 3, 0.1, 10, 0)])
        found = await app.jobs.explain(handle.id)
        assert found.reason is WaitReason.LANE_LIMIT
        assert found.sentence.startswith("3 calls to gateway are in progress")
        half_open = Breaker(BreakerState.HALF_OPEN, 1, now, now, now, trials=(Trial(), Trial()))
        assert await swap_breaker(store, GATEWAY, half_open, holds=True)
        found = await app.jobs.explain(handle.id)
        assert found.reason is WaitReason.BREAKER_HALF_OPEN
        assert "0 of 2 trial calls have succeeded" in found.sentence
        closed = replace(half_open, state=BreakerState.CLOSED, version=2, trials=())
        assert await swap_breaker(store, GATEWAY, closed, holds=False)
        assert (await app.jobs.explain(handle.id)).reason is WaitReason.LANE_LIMIT


async def test_the_trial_that_failed_stands_in_line_again(app: Holdfast) -> None:  # E22 E28
    policy = BreakerPolicy(
        window=10, min_calls=5, cooldown="100ms", max_cooldown="100ms", votes=1, trials=1, trials_to_close=1
    )
    app.dependency("gateway", breaker=policy, budget=None)

    @app.task(depends_on="gateway", retry=SOON)
    async def send(number: int) -> None:
        raise ConnectionRefusedError("nobody listens")

    async with app:
        handle = await send.enqueue(1)
        async with working(app, concurrency=2):

            async def was_tried() -> bool:
                waits = (await app.jobs.explain(handle.id)).facts.get("waits", ())
                return "trial_failed" in [wait["reason"] for wait in waits]

            await until(was_tried)


async def test_a_gate_of_a_plug_in(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:  # E19 E28
    asked: list[GateRequest] = []

    def night(asking: GateRequest) -> Admit | Hold:
        asked.append(asking)
        return Hold(asking.now + timedelta(hours=1), "only at night")

    monkeypatch.setattr(Admission, "gates", property(lambda self: (("night", night),)))

    @app.task
    async def send() -> None: ...

    async with app:
        await hire(app)
        handle = await send.options(owner="ann").enqueue()
        found = await app.jobs.explain(handle.id)
    assert found.reason is WaitReason.GATE
    assert found.sentence.startswith("Gate night holds it until ")
    assert (asked[0].owner, asked[0].attempt, asked[0].lane.task) == ("ann", 1, "send")


# -- limits and the line ----------------------------------------------------------------------------------------------
async def test_limits_of_a_queue_and_of_a_task(app: Holdfast) -> None:  # E26 E28
    app.queue("mail", Limits(concurrency=1))
    go = asyncio.Event()

    @app.task(queue="mail")
    async def send(number: int) -> None:
        await go.wait()

    @app.task(limits=Limits(rate="1/h"))
    async def sweep(number: int) -> None: ...

    async with app:
        first, second = await send.enqueue_many([1, 2])
        async with working(app):
            await explained(app, first.id, WaitReason.RUNNING)
            found = await explained(app, second.id, WaitReason.CONCURRENCY)
            assert found.sentence == "Queue mail has 1 running job, and its limit is 1 at a time."
            go.set()
            once, again = await sweep.enqueue_many([1, 2])
            await once.result("10s")
            found = await explained(app, again.id, WaitReason.RATE)
    assert found.sentence.startswith("Task sweep has used up its rate of 1/1h; the next job may start at ")
    assert found.expected_at is not None


async def test_a_busy_key(app: Holdfast) -> None:  # E28
    go = asyncio.Event()

    @app.task
    async def send(number: int) -> None:
        await go.wait()

    async with app:
        first = await send.options(key="account-7").enqueue(1)
        async with working(app):
            await explained(app, first.id, WaitReason.RUNNING)
            second = await send.options(key="account-7").enqueue(2)
            found = await explained(app, second.id, WaitReason.KEY_BUSY)
            go.set()
    assert (
        found.sentence
        == f"Job {first.id} holds its key 'account-7', and only one job with this key may run at a time."
    )
    assert found.facts["key_holder"] == first.id


async def test_a_place_in_line(app: Holdfast) -> None:  # E25 E28
    @app.task
    async def send(number: int) -> None: ...

    async with app:
        await hire(app)
        handles = await send.enqueue_many([1, 2, 3])
        found = [await app.jobs.explain(handle.id) for handle in handles]
    assert [one.facts["ahead"] for one in found] == [0, 1, 2]
    assert found[0].sentence == "It is the next job in its lane and starts when a worker has a free slot."
    assert found[2].sentence == "2 jobs are ahead of it in its lane default/send."


async def test_nobody_serves_the_queue_and_nobody_has_the_task(app: Holdfast) -> None:  # E28
    @app.task(queue="mail")
    async def send() -> None: ...

    async with app:
        handle = await send.enqueue()
        await hire(app, queues=["reports"])
        assert (await app.jobs.explain(handle.id)).reason is WaitReason.NO_WORKER
        await hire(app)
        assert (await app.jobs.explain(handle.id)).reason is WaitReason.QUEUED
        store = await store_of(app)
        await store.enqueue([NewJob(app.runtime.new_id(), "{}", JobSpec(lane=Lane("mail", "sent")))])
        ghost = (await app.jobs.list(task="sent")).rows[0].id
        found = await app.jobs.explain(ghost)
        assert found.reason is WaitReason.UNKNOWN_TASK
        assert "did you mean send?" in found.sentence


async def test_a_deadline_that_will_pass_first(app: Holdfast) -> None:  # E28 E34
    @app.task
    async def send() -> None: ...

    async with app:
        await hire(app)
        handle = await send.options(delay="2h", deadline="1h").enqueue()
        found = await app.jobs.explain(handle.id)
    assert found.reason is WaitReason.DUE_LATER
    assert "its deadline passes before that" in found.sentence


# -- those that do not wait -------------------------------------------------------------------------------------------
async def test_jobs_that_do_not_wait_say_so_and_why(app: Holdfast) -> None:  # E28
    go = asyncio.Event()

    @app.task
    async def send(what: str) -> None:
        if what == "fail":
            raise Fatal("no such address", code="NO_ADDRESS")
        await go.wait()

    async with app:
        one, other, third = await send.enqueue_many(["run", "fail", "cancel"])
        await app.jobs.cancel(third.id, by="ann", reason="a mistake")
        async with working(app):
            found = await explained(app, one.id, WaitReason.RUNNING)
            assert found.sentence.startswith("It has been running since ")
            found = await explained(app, other.id, WaitReason.FAILED)
            assert "with NO_ADDRESS: " in found.sentence
            assert (await app.jobs.explain(third.id)).sentence.startswith("It was cancelled by ann at ")
            go.set()
            found = await explained(app, one.id, WaitReason.COMPLETE)
            assert found.sentence.endswith(", in attempt 1 of 5.")


async def test_a_job_whose_worker_is_lost(app: Holdfast) -> None:  # E28 E30
    @app.task
    async def send() -> None: ...

    async with app:
        handle, store = await send.enqueue(), await store_of(app)
        claimed: list[Claimed] = []
        while not claimed:  # on a busy machine its time may be over before it asks
            session = await store.open_session("frozen", timedelta(milliseconds=200))
            claimed = await store.claim(session, [Lane("default", "send")], 1)
        assert claimed[0].lease.job_id == handle.id
        found = await explained(app, handle.id, WaitReason.WORKER_LOST)
    assert found.sentence.startswith("Worker frozen was lost during attempt 1 of 5")


async def test_a_job_that_nobody_knows(app: Holdfast) -> None:  # E28
    async with app:
        with pytest.raises(UnknownJob):
            await app.jobs.explain("nobody")
        with pytest.raises(UnknownJob):
            await app.jobs.explain(JobId("0198c5f0-0000-7000-8000-000000000000"))


def test_the_same_verb_without_an_event_loop(sqlite_url: str) -> None:  # E28
    app = new_app(sqlite_url)

    @app.task
    async def send() -> None: ...

    handle = send.enqueue_sync()
    try:
        assert app.sync.jobs.explain(handle.id).reason is WaitReason.NO_WORKER
        assert [lane.label for lane in app.sync.queues.lanes()] == ["default/send"]
        assert [queue.waiting for queue in app.sync.queues.list()] == [1]
    finally:
        app.runtime.portal.close()
