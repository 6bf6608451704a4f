"""Ten thousand lanes on PostgreSQL, counted in statements, in what these are given, and in blocks that they read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from holdfast.jobs.job import Claimed, JobId, JobSpec, Lane, NewJob, Session
from holdfast.jobs.lanes import Cause, Scope, ScopeKind
from holdfast.stores.postgres import PostgresStore, many_lanes
from holdfast.wiring import SystemClock, SystemIds

pytestmark = pytest.mark.anyio

MANY, LIMIT = 10_000, 50
FAIR = [Lane(f"queue {number}", "work", fair=True) for number in range(MANY)]
BOBS = Lane("default", "work", fair=True)
_ids = SystemIds()


class Watched(PostgresStore):
    """*asked* is every statement that was sent, with what it was given."""

    def __init__(self, url: str) -> None:
        super().__init__(url, SystemClock(), None)
        self.asked: list[tuple[str, Any]] = []
        self._connect = self._connections.connect
        self._connections.connect = self._logged  # type: ignore[method-assign]

    async def _logged(self, **settings: str) -> Any:
        connection = await self._connect(**settings)
        connection.add_query_logger(self._note)
        return connection

    def _note(self, record: asyncpg.connection.LoggedQuery) -> None:
        if "NOTIFY" not in record.query:
            self.asked.append((record.query, record.args))

    def longest(self) -> int:
        """Return the length of the longest array that a statement was given."""
        return max((len(one) for _, args in self.asked for one in args if isinstance(one, list)), default=0)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[Watched]:
    store = Watched(postgres_url)
    await store.open()
    yield store
    await store.close()


async def fill(store: Watched, lanes: list[Lane], owner: str | None) -> list[JobId]:
    ids: list[JobId] = []
    for first in range(0, len(lanes), 1000):
        jobs = [
            NewJob(_ids.job_id(), "{}", JobSpec(lane=lane, owner=owner))
            for lane in lanes[first : first + 1000]
        ]
        ids += [answer.id for answer in await store.enqueue(jobs)]
    return ids


async def session(store: Watched) -> Session:
    return await store.open_session("anna", timedelta(hours=1))


def ids_of(claimed: list[Claimed]) -> list[JobId]:
    return [one.lease.job_id for one in claimed]


async def test_a_thousand_jobs_into_a_thousand_new_lanes_are_a_few_statements(store: Watched) -> None:  # E25
    await fill(store, FAIR[1000:1002], "alice")  # the driver asks for what it needs to know of types
    store.asked.clear()
    await fill(store, FAIR[:1000], "alice")
    assert len(store.asked) <= 16  # the lanes, the jobs, and their passes: a hundred lines at a time


async def test_a_claim_among_ten_thousand_lanes_asks_for_a_few(store: Watched) -> None:  # E25
    await fill(store, FAIR, "alice")
    holder, lanes = await session(store), [*FAIR, BOBS]
    for _ in range(MANY // 1000 + 2):  # the walk comes round
        await store.claim(holder, lanes, LIMIT)
    store.asked.clear()
    assert len(await store.claim(holder, lanes, LIMIT)) == LIMIT
    assert (
        len(store.asked) <= 6
    )  # new jobs, passes, what is held, the claim, who is next; perhaps a piece of the walk
    assert store.longest() <= LIMIT
    [bob] = await fill(store, [BOBS], "bob")
    assert bob in ids_of(await store.claim(holder, lanes, 5))


async def test_a_new_job_of_another_process_is_known_by_its_event(
    store: Watched, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E25
    monkeypatch.setattr(many_lanes, "LOOK_EVERY", 0.0)  # this store does not listen for wake-ups
    await fill(store, FAIR[:2000], "alice")
    holder, lanes = await session(store), [*FAIR[:2000], BOBS]
    await store.claim(holder, lanes, 5)
    other = Watched(postgres_url)
    await other.open()
    try:
        [alone] = await fill(other, [BOBS], "bob")
        assert alone in ids_of(await store.claim(holder, lanes, 5))
        several = await fill(other, FAIR[100:103], "carol")  # one event tells of three lines
        found = ids_of(await store.claim(holder, lanes, 6)) + ids_of(await store.claim(holder, lanes, 6))
        assert several[0] in found
    finally:
        await other.close()


async def test_lanes_that_are_empty_cost_nothing(store: Watched) -> None:  # E25
    await fill(store, FAIR[:2000], "alice")
    holder = await session(store)
    while await store.claim(holder, FAIR[:2000], 1000):
        pass
    lanes = FAIR[:2000]
    await store.claim(holder, lanes, LIMIT)
    store.asked.clear()
    assert await store.claim(holder, lanes, LIMIT) == []
    assert len(store.asked) <= 4
    assert store.longest() == 0


async def test_what_is_held_is_looked_up_by_lane(store: Watched, postgres_url: str) -> None:  # E24 E27
    lanes = [lane._replace(fair=False) for lane in FAIR[:LIMIT]]
    await store.register(lanes)
    connection = await asyncpg.connect(postgres_url)
    try:
        await connection.execute(
            "INSERT INTO holdfast.hold (kind, name, cause, until, reason, by, at)"
            " SELECT 'queue', 'queue ' || n, 'pause', 'infinity', '', 'ann', now() FROM generate_series(1, 10000) n"
        )
        numbers = [row["id"] for row in await connection.fetch("SELECT id FROM holdfast.lane")]
        look = "SELECT holdfast.held_lanes($1::int[], false)"
        held = await connection.fetchval(look, numbers)
        assert len(held) == LIMIT - 1  # all but "queue 0"
        [(plan,)] = await connection.fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look}", numbers)
        [top] = json.loads(plan)
        assert top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"] <= 20 * LIMIT
    finally:
        await connection.close()


async def test_held_lanes_are_put_aside(store: Watched) -> None:  # E24 E27
    lanes = [lane._replace(fair=False, task="held") for lane in FAIR[:2000]]
    await fill(store, lanes, None)
    await store.lanes.hold(Scope(ScopeKind.TASK, "held"), Cause.PAUSE, span=None, reason="", by="ann")
    holder, both = await session(store), [*lanes, BOBS]
    for _ in range(6):
        assert await store.claim(holder, both, LIMIT) == []
    [bob] = await fill(store, [BOBS], "bob")
    store.asked.clear()
    assert ids_of(await store.claim(holder, both, LIMIT)) == [bob]
    claims = [query for query, _ in store.asked if query.startswith("-- claim")]
    assert len(claims) <= 2
    assert store.longest() <= LIMIT
