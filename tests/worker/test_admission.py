"""What is asked of a job between its claim and its start: gates, the dependency, and quotas last of all."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import Holdfast, JobFailed, Retry, Snooze, State
from holdfast.diagnosis.wait_reasons import WaitReason
from holdfast.engine.admission import Admission
from holdfast.engine.tables.usage import quota_use
from holdfast.jobs.job import Claimed, Lane, Settlement
from holdfast.jobs.lanes import Dependency
from holdfast.jobs.verdict import Failure, Release, RetryAfter
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.gates import Admit, GateAnswer, GateRequest, Hold, Reject
from holdfast.testing import ManualClock
from holdfast.worker import admission
from holdfast.worker.admission import AdmittedJob, LaneAdmission
from holdfast.worker.dependencies import Dependencies
from holdfast.worker.dispatched import JobSource
from tests.apps import new_app, until, work, working

GATEWAY = Dependency("gateway")
FAILED = Failure.of("NETWORK", "nobody listens")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "policies.toml"
    file.write_text("[quotas.default]\nper_day = 2\n[owners.bob.limits]\nrate = '1/h'")
    return file


async def used(app: Holdfast, owner: str = "ann") -> int:
    return (await quota_use((await app.runtime.engine()).store, f"quota of {owner}")).get("day", 0)


# -- gates of plug-ins, with a real worker ----------------------------------------------------------------------------
async def test_what_a_gate_holds_goes_back_and_is_asked_about_again_and_costs_no_quota(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E18 E19
    asked: list[GateRequest] = []
    app = new_app("memory://", policies=file)

    def night(asking: GateRequest) -> GateAnswer:
        asked.append(asking)
        return Admit() if is_night else Hold(None, "only at night")

    monkeypatch.setattr(Admission, "gates", property(lambda self: (("night", night),)))
    monkeypatch.setattr(admission, "ASK_AGAIN", timedelta(milliseconds=20))

    @app.task
    async def send() -> str:
        return "sent"

    async def asked_often() -> bool:
        return len(asked) > 3

    async with app:
        is_night = False
        handle = await send.options(owner="ann", priority="high").enqueue()
        async with working(app):
            await until(asked_often)
            assert await used(app) == 0
            told = await app.events.list(job_id=handle.id)
            is_night = True
            assert await handle.result("10s") == "sent"
        assert (await app.jobs.get(handle.id)).attempt == 1
        assert await used(app) == 1
    released = [event.meta for event in told if event.kind == "released"]
    assert {(meta["wait_reason"], meta["reason"]) for meta in released} == {
        (WaitReason.GATE, "night: only at night")
    }
    assert {(one.owner, one.attempt, one.priority) for one in asked} == {("ann", 1, 10)}


async def test_what_a_gate_rejects_fails_without_a_call_and_costs_no_quota(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E18 E19
    app = new_app("memory://", policies=file)
    gates = (("open", lambda asking: Admit()), ("embargo", lambda asking: Reject("not to this country")))
    monkeypatch.setattr(Admission, "gates", property(lambda self: gates))
    sent: list[int] = []

    @app.task
    async def send() -> None:
        sent.append(1)

    async with app:
        handle = await send.options(owner="ann").enqueue()
        await work(app)
        row = await app.jobs.get(handle.id)
        assert (row.state, row.error_code, sent) == (State.FAILED, "NOT_ADMITTED", [])
        [attempt] = await app.jobs.attempts(handle.id)
        assert attempt.failure is not None
        assert attempt.failure.detail == "embargo: not to this country"
        assert await used(app) == 0


# -- what is given back -----------------------------------------------------------------------------------------------
async def test_an_attempt_that_was_begun_and_given_back_is_charged_once(file: Path) -> None:  # E18
    app, begun = new_app("memory://", policies=file), 0

    @app.task
    async def send() -> str:
        nonlocal begun
        begun += 1
        if begun <= 5:  # more often than the quota of the day has room for
            raise Snooze("1ms")
        return "sent"

    async with app:
        handle = await send.options(owner="ann").enqueue()
        async with working(app):
            assert await handle.result("10s") == "sent"
        assert begun == 6
        assert await used(app) == 1


async def test_an_attempt_that_failed_is_not_given_back(file: Path) -> None:  # E18
    app = new_app("memory://", policies=file)

    @app.task(retry=Retry(2, base="1ms", jitter="none"))
    async def send() -> None:
        raise OSError("no")

    async with app:
        handle = await send.options(owner="ann").enqueue()
        async with working(app):
            with pytest.raises(JobFailed):
                await handle.result("10s")
        assert await used(app) == 1


# -- quotas behind the dependency -------------------------------------------------------------------------------------
class World:
    """What one worker admits, on a clock that stands still; *settled* is what it sends back."""

    async def begin(self, file: Path) -> None:
        self.clock, self.settled, self.opens = ManualClock(), list[Settlement](), False
        self.app = Holdfast("memory://", policies=file, clock=self.clock)
        self.app.dependency("gateway", budget=BudgetPolicy(capacity=20, cost=8, floor="1h"))
        self.task = self.app.task(name="send", depends_on="gateway")(send)
        self.engine = await self.app.runtime.engine()
        self.store = self.engine.store
        self.session = await self.store.open_session("w1", timedelta(hours=1))
        self.dependencies = Dependencies(self.engine, lambda: None)
        self.admitting = LaneAdmission(
            self.engine, self.dependencies, lambda one, _: self.settled.append(one), cast(JobSource, self)
        )

    async def admitted(self) -> list[AdmittedJob]:
        await self.admitting.refresh(await self.store.lanes.all())
        return await self.admitting.claim(self.session, 10)

    async def claim(self, *asked: Any, **more: Any) -> list[Claimed]:
        """Claims at the store; meanwhile the breaker may open."""
        claimed = await self.store.claim(*asked, **more)
        if self.opens:
            await self.app.breakers.open("gateway", duration="1h")
            await self.dependencies.sync(self.session)
        return claimed

    async def settle(self) -> None:
        await self.store.settle(self.settled)
        self.settled.clear()

    @property
    def in_flight(self) -> int:
        limiter = self.dependencies._guard(GATEWAY).limiter
        assert limiter is not None
        return limiter.in_flight

    @property
    def tokens(self) -> float:
        budget = self.dependencies._guard(GATEWAY).budget
        assert budget is not None
        return budget.tokens


async def send() -> None: ...


@pytest.fixture
async def world(file: Path) -> World:
    world = World()
    await world.begin(file)
    return world


async def test_a_job_whose_quota_is_used_up_gives_its_leave_to_call_back(world: World) -> None:  # E18 E23
    await world.task.options(owner="ann").enqueue_many([{}] * 3)
    assert len(await world.admitted()) == 2
    [refused] = world.settled
    assert isinstance(refused.verdict, Release)
    assert (refused.verdict.wait_reason, world.in_flight, await used(world.app)) == (WaitReason.QUOTA, 2, 2)


async def test_a_retry_that_an_owners_rate_puts_off_costs_nothing(world: World) -> None:  # E17 E26
    await world.task.options(owner="bob").enqueue()
    [first] = await world.admitted()
    assert first.permit is not None
    await world.dependencies.leave(first.permit, FAILED)
    world.settled = [Settlement(first.claimed.lease, RetryAfter(timedelta(), FAILED), 1)]
    await world.settle()
    assert await world.admitted() == []
    [refused] = world.settled
    assert isinstance(refused.verdict, Release)
    assert (refused.verdict.wait_reason, refused.attempt) == (WaitReason.OWNER_RATE, 2)
    assert (world.tokens, world.in_flight, first.permit.guard.calls) == (20, 0, 1)


async def test_a_breaker_that_is_found_open_after_the_claim_costs_no_quota(world: World) -> None:  # E18 E20
    await world.task.options(owner="ann").enqueue()
    world.opens = True
    assert await world.admitted() == []
    [refused] = world.settled
    assert isinstance(refused.verdict, Release)
    assert (refused.verdict.wait_reason, await used(world.app)) == (WaitReason.BREAKER_OPEN, 0)


# -- very many groups ---------------------------------------------------------------------------------------------------
async def test_of_very_many_shards_a_claim_asks_a_few_and_none_is_forgotten() -> None:  # E25
    clock, asked = ManualClock(), list[Lane]()
    app = Holdfast("memory://", clock=clock)
    app.task(name="note")(send)
    app.task(name="send", depends_on="gateway")(send)
    engine = await app.runtime.engine()

    class Empty:
        async def claim(self, session: object, lanes: list[Lane], limit: int, **_: object) -> list[Claimed]:
            asked.extend(lanes)
            clock.advance("5ms")
            return []

    one = LaneAdmission(engine, Dependencies(engine, lambda: None), lambda *_: None, cast(JobSource, Empty()))
    shards = [Lane("default", "send", "gateway", f"shard {number}") for number in range(1000)]
    note = Lane("default", "note")
    await one.refresh([note, Lane("default", "send", "gateway"), *shards])
    session = await engine.store.open_session("w1", timedelta(hours=1))
    claims = 0
    while len(set(asked)) < 1002 and claims < 200:
        before = len(asked)
        for _ in range(2):  # every second time the own lanes of tasks come first
            await one.claim(session, 10)
        assert note in asked[before:]
        assert len(asked) - before <= 4 * 60
        claims += 2
    assert len(set(asked)) == 1002
