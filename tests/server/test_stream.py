"""Events as they happen: whoever comes back misses nothing, whoever is slow costs nothing, and one reader serves them all."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest

from holdfast import Holdfast
from holdfast.server import event_reader as feeds
from holdfast.server import stream
from holdfast.server.event_reader import EventReader
from holdfast.wiring import SystemClock
from tests.server.listening import Listener, serving

pytestmark = pytest.mark.anyio
STREAM = "/api/v1/events/stream"


@pytest.fixture
async def app(database_url: str) -> AsyncIterator[Holdfast]:
    app = Holdfast(database_url, poll="20ms")

    @app.task
    async def note(text: str) -> str:
        return text

    async with app:
        yield app


@pytest.fixture
async def plain() -> AsyncIterator[Holdfast]:
    """In memory: where the store is not the question."""
    app = Holdfast("memory://", poll="20ms")

    @app.task
    async def note(text: str) -> str:
        return text

    async with app:
        yield app


@asynccontextmanager
async def busy(app: Holdfast) -> AsyncIterator[None]:
    """Three enqueue, in batches of any size, some in transactions that end late; a worker does the jobs."""
    chance = random.Random(7)

    async def enqueue() -> None:
        store = (await app.runtime.engine()).store
        while True:
            calls = [(f"note {n}",) for n in range(chance.randint(1, 5))]
            if chance.random() < 0.3 and app.runtime.url.startswith("postgres"):
                async with store.transaction() as connection:
                    await app.tasks["note"].options(connection=connection).enqueue_many(calls)
                    await asyncio.sleep(
                        chance.random() * 0.05
                    )  # others commit meanwhile, with larger numbers
            else:
                await app.tasks["note"].enqueue_many(calls)
            await asyncio.sleep(chance.random() * 0.2)

    tasks = [asyncio.create_task(app.run_worker()), *[asyncio.create_task(enqueue()) for _ in range(3)]]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_client_killed_and_resumed_a_hundred_times_under_load_misses_nothing(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61 E60
    monkeypatch.setattr(feeds, "POLL_SECONDS", 0.02)
    seen: list[int] = []
    chance = random.Random(11)
    async with serving(app) as (port, _):
        async with Listener(port) as listener:
            await listener.until_beat()
            begin = last = listener.last or 0
        async with busy(app):
            for kill in range(100):
                # By turns as browsers do it, and as a script would.
                path, headers = (
                    (f"{STREAM}?after={last}", {}) if kill % 2 else (STREAM, {"Last_Event_ID": str(last)})
                )
                async with Listener(port, path, **headers) as listener:
                    for _ in range(chance.randint(1, 4)):
                        received = await listener.next()
                        assert received.id is not None
                        seen.append(received.id)
                    last = seen[-1]
        async with Listener(port, f"{STREAM}?after={last}") as listener:
            end = await (await app.runtime.engine()).store.queries.newest_event()
            while last < end:
                last = (await listener.next()).id or 0
                seen.append(last)
        happened = [
            event.id for event in await app.events.list(after=begin, limit=100_000) if event.id <= end
        ]
    assert seen == happened
    assert len(happened) > 150


async def test_five_hundred_clients_are_served_by_one_reader(plain: Holdfast) -> None:  # E61
    async with serving(plain) as (port, server):
        feed: EventReader = server.site.state.context.event_reader
        listeners = [Listener(port) for _ in range(500)]
        try:
            for start in range(0, 500, 100):
                await asyncio.gather(*[one.__aenter__() for one in listeners[start : start + 100]])
            await asyncio.gather(*[one.until_beat() for one in listeners])
            before, began = feed.polls, asyncio.get_running_loop().time()
            handles = await plain.tasks["note"].enqueue_many([(str(n),) for n in range(5)])
            for _ in handles:
                received = await asyncio.gather(*[one.next() for one in listeners])
                assert len({one.id for one in received}) == 1
            spent = asyncio.get_running_loop().time() - began
            assert feed.polls - before <= spent / feeds.POLL_SECONDS + 2
        finally:
            for one in listeners:
                await one.__aexit__()
        async with asyncio.timeout(20):
            while feed._poller is not None:  # noqa: ASYNC110 - nothing tells that the last one has left
                await asyncio.sleep(0.02)


async def test_a_client_that_is_behind_reads_for_itself_and_holds_nobody(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.setattr(feeds, "MOST_EVENTS", 50)
    async with serving(plain) as (port, server):
        feed: EventReader = server.site.state.context.event_reader
        async with Listener(port) as slow, Listener(port) as quick:
            await slow.until_beat()
            await quick.until_beat()
            for _ in range(5):
                await plain.tasks["note"].enqueue_many([("x" * 100,) for _ in range(200)])
            ids = [(await quick.next()).id for _ in range(1000)]
            assert len(feed._recent) <= 50
            assert [(await slow.next()).id for _ in range(1000)] == ids


async def test_what_is_sent_is_as_browsers_and_proxies_expect_it(plain: Holdfast) -> None:  # E61
    async with serving(plain) as (port, _), Listener(port) as listener:
        await listener.until_beat()
        handle = await plain.tasks["note"].options(owner="ann").enqueue("a")
        received = await listener.next()
        assert listener.status == 200
        assert listener.head["content-type"] == "text/event-stream; charset=utf-8"
        assert listener.head["x-accel-buffering"] == "no"
        assert listener.head["cache-control"] == "no-store"
        assert listener.retry == stream.RETRY_MILLISECONDS
    assert received.event == "message"
    assert received.data["type"] == "holdfast.job.queued"
    assert received.data["subject"] == handle.id
    assert received.data["id"] == str(received.id)
    assert received.data["data"]["owner"] == "ann"


async def test_a_quiet_stream_shows_that_it_lives_and_how_far_it_is(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.3)
    async with serving(plain) as (port, _), Listener(port, f"{STREAM}?kind=failed") as listener:
        await listener.until_beat()
        first = listener.last
        await plain.tasks["note"].enqueue("not for this client")
        for _ in range(20):
            await listener.until_beat()
            if listener.last != first:
                break
        assert listener.last == await (await plain.runtime.engine()).store.queries.newest_event()


async def test_filters_choose_what_is_told(plain: Holdfast) -> None:  # E61
    async with serving(plain) as (port, _):
        first = await plain.tasks["note"].options(owner="ann").enqueue("a")
        second = await plain.tasks["note"].options(owner="bob").enqueue("b")
        async with (
            Listener(port, f"{STREAM}?after=0&owner=bob&kind=queued") as bobs,
            Listener(port, f"/api/v1/jobs/{first.id}/events/stream?after=0") as of_one,
            Listener(port, f"{STREAM}?kind=finished") as unknown,
            Listener(port, f"{STREAM}?after=-1") as wrong,
            Listener(port, "/api/v1/jobs/0190a0b0-1111-7abc-8def-0123456789ab/events/stream") as nobody,
        ):
            assert (await bobs.next()).data["subject"] == second.id
            assert (await of_one.next()).data["subject"] == first.id
            await plain.jobs.cancel(first.id)
            assert (await of_one.next()).data["type"] == "holdfast.job.cancelled"
            assert (unknown.status, wrong.status, nobody.status) == (422, 422, 404)


async def test_the_stream_of_a_job_goes_on_where_it_was_cut(app: Holdfast) -> None:  # E61
    async with serving(app) as (port, _):
        handle = await app.tasks["note"].enqueue("a")
        await app.tasks["note"].enqueue("another")
        path = f"/api/v1/jobs/{handle.id}/events/stream"
        async with Listener(port, f"{path}?after=0") as listener:
            last = (await listener.next()).id
        await app.jobs.cancel(handle.id)
        async with Listener(port, path, Last_Event_ID=str(last)) as listener:
            assert (await listener.next()).data["type"] == "holdfast.job.cancelled"


async def test_who_was_away_too_long_is_told_to_read_anew(app: Holdfast) -> None:  # E61 E38
    async with serving(app) as (port, _):
        await app.tasks["note"].enqueue("a")
        async with Listener(port, f"{STREAM}?after=0") as listener:
            last = (await listener.next()).id
        await app.tasks["note"].enqueue("b")
        await app.tasks["note"].enqueue("c")
        await app.operations.purge(events=timedelta(microseconds=1))
        for cursor in (last, 12345, 10**29):
            async with Listener(port, STREAM, Last_Event_ID=str(cursor)) as listener:
                received = await listener.next()
                assert received.event == "reset"
                await app.tasks["note"].enqueue("d")
                assert (await listener.next()).data["type"] == "holdfast.job.queued"


async def test_an_owner_sees_its_own_events_alone_and_a_revoked_key_ends_the_stream(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61 E66
    monkeypatch.setattr(stream, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr("holdfast.server.access.CACHED_FOR", 0.2)
    key, secret = await plain.keys.create("owner", owner="bob")
    async with serving(plain) as (port, _):
        alices = await plain.tasks["note"].options(owner="alice").enqueue("a")
        bobs = await plain.tasks["note"].options(owner="bob").enqueue("b")
        bearer = {"Authorization": f"Bearer {secret}"}
        async with (
            Listener(port, f"{STREAM}?after=0", **bearer) as listener,
            Listener(port, f"{STREAM}?owner=alice", **bearer) as other,
            Listener(port, f"/api/v1/jobs/{alices.id}/events/stream", **bearer) as anothers,
            Listener(port) as nobody,
        ):
            assert (other.status, anothers.status, nobody.status) == (403, 403, 401)
            assert (await listener.next()).data["subject"] == bobs.id
            await plain.keys.revoke(key.id)
            with pytest.raises(EOFError):
                await listener.next()


async def test_a_client_that_does_not_read_is_let_go(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.setattr(stream, "STALLED_SECONDS", 0.5)
    async with serving(plain) as (port, server):
        feed: EventReader = server.site.state.context.event_reader
        async with Listener(port) as stalled:
            await stalled.until_beat()
            stalled._reader._transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(60):
                while feed._listening:
                    await plain.tasks["note"].enqueue_many([("x" * 300,) for _ in range(1000)])
                    await asyncio.sleep(0.1)


async def test_the_sockets_of_clients_that_do_not_read_are_closed(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E61
    monkeypatch.setattr(stream, "STALLED_SECONDS", 0.5)
    async with serving(plain) as (port, _):
        before = len(os.listdir("/proc/self/fd"))
        async with AsyncExitStack() as crowd:
            stalled = [await crowd.enter_async_context(Listener(port)) for _ in range(20)]
            for one in stalled:
                await one.until_beat()
                one._reader._transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(60):  # each has two ends here: the server's goes, the client's stays
                while len(os.listdir("/proc/self/fd")) > before + len(stalled) + 2:
                    await plain.tasks["note"].enqueue_many([("x" * 300,) for _ in range(1000)])
                    await asyncio.sleep(0.1)


async def test_a_server_that_stops_ends_its_streams_at_once(
    plain: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.run.GRACE_SECONDS", 3600)  # that long it would wait for them
    async with asyncio.timeout(60), serving(plain) as (port, _):
        listener = await Listener(port).__aenter__()
        await listener.until_beat()
    with pytest.raises(EOFError):
        await listener.next()
    await listener.__aexit__()


async def test_nobody_reads_while_nobody_listens(plain: Holdfast) -> None:
    feed = EventReader(plain, SystemClock())
    assert feed.polls == 0
    async with feed.listening():
        assert (await feed.next_events(0, seconds=0.05)).events == ()
        await plain.tasks["note"].enqueue("a")
        assert [told.kind for told in (await feed.next_events(0, seconds=20)).events] == ["queued"]
    assert feed._poller is None
