"""Pages are bounded in bytes, whatever the rows hold, and large rows are rendered away from the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from holdfast import redaction
from holdfast.engine.access import Role
from holdfast.jobs.job import JobId, Lane, Settlement
from holdfast.jobs.verdict import Bury, Complete, Failure, RetryAfter
from holdfast.server import rendering, views
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

#: Of a page: so that a few rows of half of it show what a thousand of a megabyte would.
MOST = 200_000
#: A row that is larger is alone on its page; and what stands around the rows.
ROW = 120_000
LANE = Lane("press", "convert", "gateway", fair=True)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service)])
async def house(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(rendering, "MOST_BYTES", MOST)
    url = "memory://" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
    made = new_house(new_app(url))
    yield made
    await made.app.close()


async def _finish(house: House, verdict: Any, limit: int, logs: tuple[str, ...] = ()) -> None:
    store = (await house.app.runtime.engine()).store
    session = await store.open_session("worker", timedelta(minutes=1))
    await store.promote(1000)
    claimed = await store.claim(session, [LANE], limit)
    assert len(claimed) == limit
    await store.settle([Settlement(one.lease, verdict, one.attempt, logs=logs) for one in claimed])
    await store.close_session(session)


async def _pages(client: httpx2.AsyncClient, path: str, name: str, **params: str) -> tuple[list[Any], int]:
    """All rows of a list, and how many pages it took; each page is checked on its way."""
    rows: list[Any] = []
    for count in range(1, 100):
        answer = await client.get(f"{API}/{path}", params=params)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= MOST + ROW
        page = answer.json()
        assert page[name] or page["next"] is None
        rows += page[name]
        if page["next"] is None:
            return rows, count
        params["cursor"] = page["next"]
    raise AssertionError("it does not end")


async def _dead(house: House, count: int, text: str) -> list[JobId]:
    ids = [await house.enqueue("alice", pdf=text) for _ in range(count)]
    await _finish(house, Bury(Failure("BOOM", "It went wrong.", detail="x")), count)
    return sorted(ids)


async def test_dead_letters_with_large_arguments_come_in_many_pages(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    ids = await _dead(house, 40, "a://" * 20_000)
    store = (await house.app.runtime.engine()).store
    asked: list[tuple[int, bool]] = []
    read = store.queries.dead_letters

    async def counted(where: Any, *, after: str | None, limit: int, contents: bool = True) -> Any:
        asked.append((limit, contents))
        return await read(where, after=after, limit=limit, contents=contents)

    monkeypatch.setattr(store.queries, "dead_letters", counted)
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        rows, pages = await _pages(client, "dead-letters", "dead_letters", include="args", limit="500")
        assert [row["id"] for row in rows] == ids
        assert all(len(row["args"]["pdf"]) == 80_000 for row in rows)
        assert pages == 20
        assert all(limit <= rendering.PIECE for limit, _ in asked)  # no more are in memory at a time
        asked.clear()
        rows, pages = await _pages(client, "dead-letters", "dead_letters", limit="500")
        assert ([row["id"] for row in rows], pages, asked) == (ids, 1, [(500, False)])


async def test_a_list_of_jobs_does_not_read_their_arguments_and_results(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    ids = [await house.enqueue("alice", pdf="x" * 100_000) for _ in range(5)]
    await _finish(house, Complete(f'"{"y" * 100_000}"'), 5)
    store = (await house.app.runtime.engine()).store
    asked: list[bool] = []
    read = store.queries.jobs

    async def counted(where: Any, *, after: str | None, limit: int, contents: bool = True) -> Any:
        asked.append(contents)
        return await read(where, after=after, limit=limit, contents=contents)

    monkeypatch.setattr(store.queries, "jobs", counted)
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        rows, pages = await _pages(client, "jobs", "jobs", limit="500")
    assert ([row["id"] for row in rows], pages, asked) == (ids[::-1], 1, [False])


async def test_jobs_with_much_to_tell_come_in_many_pages(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.setattr(rendering, "MOST_BYTES", 3_000)
    ids = [await house.enqueue("alice", pages=n) for n in range(12)]
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        rows, pages = await _pages(client, "jobs", "jobs", limit="10")
    assert [row["id"] for row in rows] == ids[::-1]
    assert pages > 2


async def test_attempts_and_events_come_in_pages(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    job_id = await house.enqueue("alice")
    logs = tuple("x" * 3_900 for _ in range(4))
    for _ in range(3):
        await _finish(house, RetryAfter(timedelta(), Failure("BOOM", "It went wrong.", detail="x")), 1, logs)
    monkeypatch.setattr(rendering, "MOST_BYTES", 20_000)
    async with house.client(headers=await house.as_(Role.OPERATOR)) as client:
        attempts, pages = await _pages(client, f"jobs/{job_id}/attempts", "attempts")
        assert [len(one["logs"]) for one in attempts] == [4, 4, 4]
        assert pages == 3
        again, pages = await _pages(client, f"jobs/{job_id}/attempts", "attempts", limit="2")
        assert again == attempts
        monkeypatch.setattr(rendering, "MOST_BYTES", 300)
        events, pages = await _pages(client, f"jobs/{job_id}/events", "events")
        assert [one["kind"] for one in events] == [
            one.kind for one in await house.app.events.list(job_id=job_id)
        ]
        assert pages > 3


async def test_late_results_are_a_list_of_pages_too(house: House) -> None:  # E66
    task = house.app.tasks["convert"].options(owner="alice", deadline="1s")
    job_id = (await task.enqueue(pdf="x")).id
    store = (await house.app.runtime.engine()).store
    session = await store.open_session("worker", timedelta(minutes=1))
    [claimed] = await store.claim(session, [LANE], 1)
    while await store.time_out(10) != [job_id]:  # noqa: ASYNC110 - by the clock of the store
        await asyncio.sleep(0.05)
    await store.settle([Settlement(claimed.lease, Complete(f'"{"y" * 100_000}"'), 1)])
    [late] = await store.queries.late_results(job_id, after=0, limit=1)
    assert await store.queries.late_results(job_id, after=late.epoch, limit=1) == []
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        rows, pages = await _pages(client, f"jobs/{job_id}/late-results", "late_results", limit="1")
    assert ([len(row["result"]) for row in rows], pages) == ([100_000], 2)


async def test_messages_come_in_pages(house: House) -> None:  # E66
    headers = {f"h{n}": "x" * 2_000 for n in range(20)}
    ids = [await house.app.outbox.publish("orders", {"n": n}, headers=headers) for n in range(12)]
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        rows, pages = await _pages(client, "messages", "messages", limit="500")
    assert [row["id"] for row in rows] == ids
    assert pages == 3


@pytest.mark.parametrize("path", ["jobs/{}", "dead-letters/{}", "dead-letters"])
async def test_large_arguments_are_redacted_away_from_the_loop_and_small_ones_on_it(
    house: House, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    [small] = await _dead(house, 1, "token=hunter2")
    [large] = await _dead(house, 1, "token=hunter2 " * 10_000)
    threads: dict[int, set[int]] = {}
    redact = redaction.redacted

    def noted(key: object, value: Any) -> Any:
        if isinstance(value, dict) and "pdf" in value:
            threads.setdefault(len(value["pdf"]), set()).add(threading.get_ident())
        return redact(key, value)

    monkeypatch.setattr(views, "redacted", noted)
    async with house.client(headers=await house.as_(Role.OWNER, "alice")) as client:
        for job_id in (small, large):
            answer = await client.get(f"{API}/{path.format(job_id)}?include=args")
            assert answer.status_code == 200
            assert "hunter2" not in answer.text
    here = threading.get_ident()
    assert threads[13] == {here}
    assert here not in threads[140_000]
