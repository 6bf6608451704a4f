"""What the pages of all systems share: news of changes go to the owner's pages only, and every stream has an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from holdfast import Holdfast
from systems.common.pages import changes as changes_module
from systems.common.pages.changes import MOST_OF_OWNER, Changes

pytestmark = pytest.mark.anyio

CHANGED = b"event: changed\ndata: {}\n\n"


class News:
    """One page's stream: how many changes it was told of."""

    def __init__(self) -> None:
        self.told = 0
        self._more = asyncio.Event()

    async def read(self, stream: AsyncIterator[bytes]) -> None:
        async for text in stream:
            if text == CHANGED:
                self.told += 1
                self._more.set()

    async def until(self, told: int) -> None:
        async with asyncio.timeout(10):
            while self.told < told:
                self._more.clear()
                await self._more.wait()


def make_app(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.task
    async def shown() -> None: ...

    @app.task
    async def hidden() -> None: ...

    return app


@asynccontextmanager
async def following(changes: Changes, owner: str | None) -> AsyncIterator[News]:
    news = News()

    async def read() -> None:
        async with aclosing(changes.follow(owner)) as stream:
            await news.read(stream)

    reading = asyncio.create_task(read())
    await news.until(1)  # each stream begins with one
    yield news
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_a_page_hears_of_its_owners_jobs_and_of_no_others(database_url: str) -> None:  # C7 S1
    app = make_app(database_url)
    await app.migrate()
    async with app:
        changes = Changes(app, ["shown"])
        async with (
            following(changes, "ann") as ann,
            following(changes, "bob") as bob,
            following(changes, None) as operator,
        ):
            await app.tasks["hidden"].options(owner="ann").enqueue()
            await app.tasks["shown"].options(owner="bob").enqueue()
            await bob.until(2)
            await operator.until(2)
            await app.tasks["shown"].options(owner="ann").enqueue()
            await ann.until(2)
            await operator.until(3)
            assert (ann.told, bob.told, operator.told) == (2, 2, 3)


async def test_a_held_queue_is_news_for_every_page(sqlite_url: str) -> None:  # C7
    app = make_app(sqlite_url)
    async with app:
        await app.tasks["shown"].options(owner="bob").enqueue()
        async with following(Changes(app, ["shown"]), "ann") as ann:
            await app.queues.pause("default")
            await ann.until(2)


async def test_a_flood_of_events_is_news_for_every_page(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # C7
    monkeypatch.setattr(changes_module, "_PAGE", 2)
    app = make_app(sqlite_url)
    async with app, following(Changes(app, ["shown"]), "ann") as ann:
        async with app.transaction() as connection:
            for _ in range(5):
                await app.tasks["shown"].options(owner="bob", connection=connection).enqueue()
        await ann.until(2)


async def test_one_owner_cannot_hold_all_streams(sqlite_url: str) -> None:  # C7
    async with make_app(sqlite_url) as app:
        changes = Changes(app, ["shown"])
        async with following(changes, "bob"):
            streams = [changes.follow("ann") for _ in range(MOST_OF_OWNER)]
            for stream in streams:
                await anext(stream)
            assert changes.answer("ann").status_code == 503
            assert changes.answer("bob").status_code == 200
            for stream in streams:
                await stream.aclose()
            assert changes.answer("ann").status_code == 200


async def test_streams_end_when_the_server_stops(sqlite_url: str) -> None:  # C7
    async with make_app(sqlite_url) as app:
        changes = Changes(app, ["shown"])
        stream = changes.follow("ann")
        told = [await anext(stream), await anext(stream)]
        changes.close()
        assert [text async for text in stream] == []
        assert told[1] == CHANGED
