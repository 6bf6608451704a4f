"""Lanes on SQLite, beyond the contract: what a look costs, and how fair lanes stay within their numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.engine.lane_store import Cap, Charge, DependencyReport
from holdfast.engine.tables.holds import end_pause
from holdfast.jobs.job import Claimed, JobBatch, JobId, JobSpec, Lane, NewJob, Session, Settlement
from holdfast.jobs.lanes import Cause, Dependency, Scope, ScopeKind
from holdfast.jobs.moves import Kind
from holdfast.jobs.verdict import Release
from holdfast.resilience.fairness import STRIDE, UNPLACED
from holdfast.stores.sqlite import SqliteStore, claims
from holdfast.testing import ManualClock
from holdfast.wiring import SystemIds

pytestmark = pytest.mark.anyio

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
PLAIN, FAIR = Lane("default", "email"), Lane("default", "email", fair=True)
QUEUE = Scope(ScopeKind.QUEUE, "default")
GATEWAY = Dependency("gateway")
_ids = SystemIds()


class Desk:
    """A store whose writes are made inline, and a look at its file from outside."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.store = SqliteStore(str(path), self.clock, None)
        self.file = sqlite3.connect(path, isolation_level=None)

    async def enqueue(
        self, owner: str | None = None, count: int = 1, lane: Lane | None = None
    ) -> list[JobId]:
        spec = JobSpec(lane=lane or (FAIR if owner else PLAIN), owner=owner, max_attempts=9)
        jobs = JobBatch([_ids.job_id() for _ in range(count)], ["{}"] * count, spec)
        return [answer.id for answer in await self.store.enqueue(jobs)]

    async def session(self) -> Session:
        return await self.store.open_session(_ids.worker_name(), timedelta(days=1))

    async def claim(self, limit: int, *lanes: Lane) -> list[Claimed]:
        return await self.store.claim(await self.session(), lanes or [FAIR], limit)

    async def owners(self, limit: int) -> str:
        return "".join(str(claimed.owner) for claimed in await self.claim(limit))

    def calls(self, *lanes: Lane) -> bool:
        """Whether the bell calls who waits for work in these lanes."""
        assert self.store._database.notifier is not None
        return self.store._database.notifier.calls(list(lanes))

    def ords(self) -> list[int]:
        return [ord_ for (ord_,) in self.file.execute("SELECT ord FROM holdfast_job ORDER BY id")]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path / "jobs.db")
    await desk.store.open()
    yield desk
    assert await desk.store.queries.violations() == []
    assert desk.file.execute("PRAGMA foreign_key_check").fetchall() == []
    desk.file.close()
    await desk.store.close()


# -- waiting ----------------------------------------------------------------------------------------------------------
async def test_nobody_is_called_to_work_that_is_held(desk: Desk) -> None:  # E24 E27
    await desk.enqueue()
    assert desk.calls(PLAIN)
    await desk.store.lanes.hold(QUEUE, Cause.PAUSE, span=MINUTE, reason="deploy", by="ann")
    assert not desk.calls(PLAIN)
    await desk.enqueue(lane=Lane("other", "email"))
    assert not desk.calls(PLAIN)
    assert desk.calls(PLAIN, Lane("other", "email"))
    desk.clock.advance("61s")
    assert desk.calls(PLAIN)


async def test_a_deferred_job_of_a_held_lane_calls_once(desk: Desk) -> None:  # E9 E27
    spec = JobSpec(lane=PLAIN, delay=SECOND)
    await desk.store.enqueue([NewJob(_ids.job_id(), "{}", spec)])
    await desk.store.lanes.hold(QUEUE, Cause.PAUSE, span=None, reason="deploy", by="ann")
    desk.clock.advance("2s")
    assert desk.calls(PLAIN)
    assert await desk.claim(1, PLAIN) == []
    desk.clock.advance("1s")
    assert not desk.calls(PLAIN)


async def test_a_claim_that_was_in_vain_is_not_repeated_at_once(desk: Desk) -> None:  # E26
    await desk.enqueue(count=2)
    session, cap = await desk.session(), Cap("queue:default", concurrency=1)
    [first] = await desk.store.claim(session, [PLAIN], 1, caps=[cap])
    assert desk.calls(PLAIN)
    assert await desk.store.claim(session, [PLAIN], 1, caps=[cap]) == []
    assert not desk.calls(PLAIN)
    desk.clock.advance("100ms")  # somebody else may have freed it
    assert desk.calls(PLAIN)
    assert await desk.store.claim(session, [PLAIN], 1, caps=[cap]) == []
    assert not desk.calls(PLAIN)
    await desk.store.settle([Settlement(first.lease, Release(), first.attempt)])
    assert desk.calls(PLAIN)


async def test_a_resume_by_another_process_ends_the_wait(tmp_path: Path) -> None:  # E27
    here, there = Desk(tmp_path / "jobs.db"), Desk(tmp_path / "jobs.db")
    await here.store.open()
    await there.store.open()
    await here.enqueue()
    await here.store.lanes.hold(QUEUE, Cause.PAUSE, span=None, reason="deploy", by="ann")
    assert not here.calls(PLAIN)
    assert await end_pause(there.store, QUEUE, by="bob")
    assert here.calls(PLAIN)
    for desk in (here, there):
        desk.file.close()
        await desk.store.close()


# -- reports ----------------------------------------------------------------------------------------------------------
def seen(calls: int = 0) -> DependencyReport:
    return DependencyReport(GATEWAY, 0, False, limit=20, in_flight=0, latency=None, calls=calls, failures=0)


async def test_a_report_without_news_costs_no_write_and_the_worker_still_counts(desk: Desk) -> None:  # E20
    idle, other = await desk.session(), await desk.session()
    changes: list[int] = []
    for second in range(30):
        before = desk.file.execute("PRAGMA data_version").fetchone()
        [state_of_dependency] = await desk.store.lanes.report(idle, [seen()])
        changes += [second] * (desk.file.execute("PRAGMA data_version").fetchone() != before)
        assert state_of_dependency.callers == 1
        desk.clock.advance("1s")
    assert 5 <= len(changes) <= 6
    [state_of_dependency] = await desk.store.lanes.report(other, [seen(calls=3)])
    assert (state_of_dependency.callers, state_of_dependency.calls) == (2, 3)


async def test_reports_of_workers_that_are_gone_are_deleted(desk: Desk) -> None:  # E20
    for _ in range(3):
        await desk.store.lanes.report(await desk.session(), [seen()])
        desk.clock.advance("1m")
    assert desk.file.execute("SELECT count(*) FROM holdfast_report").fetchone() == (1,)


# -- limits -----------------------------------------------------------------------------------------------------------
async def test_the_slots_of_ended_jobs_do_not_pile_up(desk: Desk) -> None:  # E26
    await desk.enqueue(count=20)
    session, cap = await desk.session(), Cap("queue:default", concurrency=2)
    for _ in range(10):
        claimed = await desk.store.claim(session, [PLAIN], 5, caps=[cap])
        assert len(claimed) == 2
        await desk.store.settle([Settlement(one.lease, Release(MINUTE), one.attempt) for one in claimed])
    assert desk.file.execute("SELECT count(*) FROM holdfast_slot").fetchone() == (2,)


async def test_a_clock_that_was_set_back_does_not_stop_a_rate_for_long(desk: Desk) -> None:  # E26
    await desk.enqueue(count=5)
    session, cap = await desk.session(), Cap("queue:default", rate=1, per=MINUTE)
    assert len(await desk.store.claim(session, [PLAIN], 5, caps=[cap])) == 1
    assert await desk.store.claim(session, [PLAIN], 5, caps=[cap]) == []
    desk.file.execute("UPDATE holdfast_meter SET tat = tat + 86400000000")
    assert len(await desk.store.claim(session, [PLAIN], 5, caps=[cap])) == 1
    assert await desk.store.claim(session, [PLAIN], 5, caps=[cap]) == []


@pytest.mark.parametrize("rate", [1, 3, 7, 1000])
async def test_a_burst_taken_one_by_one_is_as_large_as_one_taken_at_once(
    desk: Desk, rate: int
) -> None:  # E26
    await desk.enqueue(count=2 * rate)
    session, cap = await desk.session(), Cap("queue:default", rate=rate, per=SECOND)
    taken = 0
    while await desk.store.claim(session, [PLAIN], 1, caps=[cap]):
        taken += 1
    assert taken == rate
    charge = Charge("owner:ann", "rate", rate, 1, SECOND)
    assert await desk.store.lanes.charge([[charge]] * rate) == [None] * rate
    assert await desk.store.lanes.charge([[charge]]) != [None]


# -- fair lines -------------------------------------------------------------------------------------------------------
async def test_fair_and_plain_lanes_are_served_in_turn(desk: Desk) -> None:  # E25
    await desk.enqueue(count=20)
    await desk.enqueue("ann", count=20)
    for limit in (1, 1, 3, 3, 10):
        claimed = await desk.claim(limit, PLAIN, FAIR)
        assert len(claimed) == limit
    counts = [await desk.store.lanes.depths([lane]) for lane in (PLAIN, FAIR)]
    assert [abs(depth[lane] - 11) <= 2 for depth, lane in zip(counts, (PLAIN, FAIR), strict=True)] == [
        True
    ] * 2


async def test_new_jobs_are_placed_as_they_come(desk: Desk) -> None:  # E25
    await desk.enqueue("a", count=3)
    await desk.enqueue("b", count=2)
    assert desk.ords() == [0, STRIDE, 2 * STRIDE, 0, STRIDE]
    assert await desk.owners(9) == "ababa"


async def test_an_enqueue_that_is_sent_again_does_not_put_its_owner_back(desk: Desk) -> None:  # E25 E36
    job = NewJob(_ids.job_id(), "{}", JobSpec(lane=FAIR, owner="a"))
    for _ in range(5):
        await desk.store.enqueue([job])
    await desk.enqueue("a")
    assert desk.ords() == [0, STRIDE]


async def test_many_that_come_back_at_once_are_placed_in_turn(desk: Desk) -> None:  # E25
    for owner in "aaaabbc":
        await desk.enqueue(owner)
    claimed = await desk.claim(7)
    await desk.store.settle([Settlement(one.lease, Release(MINUTE), one.attempt) for one in claimed])
    desk.clock.advance("61s")
    assert sorted(await desk.owners(3)) == ["a", "b", "c"]
    assert await desk.owners(9) in ("abaa", "baaa")
    assert max(desk.ords()) < UNPLACED


async def test_a_retried_job_stands_behind_those_that_have_their_places(desk: Desk) -> None:  # E25
    [cancelled, *_] = await desk.enqueue("a", count=4)
    await desk.store.cancel(cancelled, "ann", "mistake")
    assert await desk.store.retry(cancelled, "ann", kind=Kind.manual_retry) == 4


async def test_a_line_that_has_come_far_begins_anew_and_keeps_its_order(desk: Desk) -> None:  # E25
    far = UNPLACED // 2 + 17
    await desk.enqueue("a", count=3)
    await desk.enqueue("b", count=2)
    desk.file.execute("UPDATE holdfast_job SET ord = ord + ?", (far,))
    desk.file.execute("UPDATE holdfast_flow SET last = last + ?", (far,))
    await desk.enqueue("c", count=2)
    await desk.enqueue("a")
    assert desk.ords() == [n * STRIDE for n in (0, 1, 2, 0, 1, 0, 1, 3)]
    # The same when those come back who have to be placed by the claim.
    claimed = await desk.claim(8)
    desk.file.execute("UPDATE holdfast_flow SET last = last + ?", (far,))
    await desk.store.settle([Settlement(one.lease, Release(), one.attempt) for one in claimed])
    assert len(await desk.claim(9)) == 8
    assert max(desk.ords()) < UNPLACED // 4


async def test_an_owner_too_light_for_the_numbers_is_served_last_but_served(desk: Desk) -> None:  # E25
    await desk.store.lanes.weigh({"light": 0.001})
    await desk.enqueue("light")
    desk.file.execute("UPDATE holdfast_flow SET last = ? WHERE owner = 'light'", (UNPLACED - 5,))
    wanted = await desk.enqueue("light", count=3)
    await desk.enqueue("a", count=2)
    claimed = await desk.claim(9)
    assert [one.owner for one in claimed[1:3]] == ["a", "a"] or claimed[0].owner == "a"
    assert [one.lease.job_id for one in claimed[3:]] == wanted
    await desk.store.settle([Settlement(one.lease, Release(), one.attempt) for one in claimed])
    assert len(await desk.claim(9)) == 6


async def test_owners_who_are_long_gone_are_forgotten(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:  # E25
    monkeypatch.setattr(claims, "FORGET_EVERY", 1)
    await desk.store.lanes.weigh({"slow": 0.1})
    for owner in ("slow", "gone", "here"):
        await desk.enqueue(owner)
    await desk.enqueue("here", count=7)
    assert len(await desk.claim(6)) == 6
    assert await desk.owners(1) == "here"
    known = {owner for (owner,) in desk.file.execute("SELECT owner FROM holdfast_flow")}
    assert known == {"", "slow", "here"}  # a stride of the slow one is as long as ten of another's
    await desk.enqueue("gone")
    assert await desk.owners(2) == "heregone"


# -- the file ---------------------------------------------------------------------------------------------------------
async def test_a_callers_connection_may_check_its_foreign_keys(desk: Desk) -> None:  # E43
    await desk.enqueue("a")
    with closing(sqlite3.connect(desk.store.path)) as mine:
        mine.execute("PRAGMA foreign_keys = ON")
        mine.execute("BEGIN IMMEDIATE")
        spec = JobSpec(lane=Lane("new", "email", "gateway", fair=True), owner="b")
        await desk.store.enqueue_in(mine, [NewJob(_ids.job_id(), "{}", spec)])
        mine.commit()
    assert [one.owner for one in await desk.claim(2, spec.lane)] == ["b"]
