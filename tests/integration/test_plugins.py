"""Notifiers and transports of installed packages, with a real worker and relay on every store."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Fatal, Holdfast, UsageError
from holdfast.engine.tables import bookmarks
from holdfast.errors import StoreUnavailable
from holdfast.tasks import plugins
from holdfast.webhooks import notifiers
from holdfast.webhooks.notifiers import NotifierFeed
from tests.apps import ONCE, Database, new_app, until, working
from tests.plugin_packages import acme, forgotten, installed_package, wheel  # noqa: F401 - fixtures

ENTRY_POINTS = """
[holdfast.notifiers]
ears = noisy_plugins:ears
deaf = noisy_plugins:deaf
endless = noisy_plugins:endless
plain = noisy_plugins:plain
missing = noisy_plugins:not_there
[holdfast.transports]
raises = noisy_plugins:Raises
short = noisy_plugins:Short
unmade = noisy_plugins:not_there
"""
NOISY = """
import asyncio
heard, tries, refuse = [], [], set()
async def ears(notice):
    tries.append(notice.id)
    if notice.meta.get("error_code") in refuse:
        raise ConnectionError("the pager is away")
    heard.append(notice)
async def deaf(notice): raise KeyError("oops")
async def endless(notice): await asyncio.Event().wait()
def plain(notice): heard.append(notice)
class Raises:
    def __init__(self, address, topics): self.given = address, topics
    async def open(self): pass
    async def deliver(self, messages): raise OSError("no route")
    async def close(self): raise OSError("not even that")
class Short(Raises):
    async def deliver(self, messages): return [True]
"""


@pytest.fixture
def noisy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "noisy_plugins.py").write_text(NOISY)
    monkeypatch.setattr(notifiers, "FIRST_PAUSE", 0.01)
    for _ in installed_package(tmp_path, monkeypatch, "noisy_plugins", ENTRY_POINTS):
        yield importlib.import_module("noisy_plugins")


class Heard(list[dict[str, Any]]):
    def warning(self, event: str, **facts: Any) -> None:
        self.append({"event": event, **facts})


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is logged about plug-ins."""
    heard = Heard()
    monkeypatch.setattr(plugins, "log", heard)
    monkeypatch.setattr(notifiers, "log", heard)
    return heard


@pytest.fixture
def make(db: Database, tmp_path: Path) -> Callable[[str], Holdfast]:
    """An app on this database whose file names these notifiers."""

    def app_with(notifiers: str) -> Holdfast:
        file = tmp_path / "policies.toml"
        file.write_text(f"[plugins]\nnotifiers = {notifiers}")
        app = new_app(db.url, policies=file)

        @app.task(retry=ONCE)
        async def work(code: str = "") -> None:
            if code:
                raise Fatal("no", code=code)

        return app

    return app_with


async def bookmarked(app: Holdfast, name: str) -> None:
    """Wait until the notifier has begun to listen."""
    store = (await app.runtime.engine()).store

    async def begun() -> bool:
        return await bookmarks.get(store, f"notifier.{name}") is not None

    await until(begun)


async def enough(found: list[Any], count: int) -> None:
    async def there() -> bool:
        return len(found) >= count

    await until(there)


# -- notifiers ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("acme")
async def test_a_notifier_of_an_installed_package_hears_of_the_events_it_is_named_for(
    make: Callable[[str], Holdfast], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E19
    app = make('{ pager = ["failed"] }')
    pages = tmp_path / "pages.jsonl"
    monkeypatch.setattr(importlib.import_module("acme_holdfast.notifier"), "PAGES", pages)
    async with app, working(app):
        await bookmarked(app, "pager")
        await app.tasks["work"].enqueue()
        bad = await app.tasks["work"].enqueue("BAD_PAGE")

        async def paged() -> bool:
            return pages.exists()

        await until(paged)
    [page] = [json.loads(line) for line in pages.read_text().splitlines()]
    assert (page["job"], page["text"]) == (bad.id, "work failed: BAD_PAGE")


async def test_a_notifier_is_called_in_the_order_of_the_log_by_one_of_many_processes(
    noisy: Any, make: Callable[[str], Holdfast]
) -> None:  # E19
    app, other = make('{ ears = ["*"] }'), make('{ ears = ["*"] }')
    async with app, other, working(app), working(other):
        await bookmarked(app, "ears")
        for _ in range(20):
            await app.tasks["work"].options(owner="ann").enqueue()
        await enough(noisy.heard, 60)
        events = {event.id: event for event in await app.events.list() if event.job_id}
    assert [notice.id for notice in noisy.heard] == sorted(events)  # each once, and none is missing
    assert {notice.kind for notice in noisy.heard} == {"queued", "processing", "complete"}
    assert {(notice.task, notice.owner) for notice in noisy.heard} == {("work", "ann")}


async def test_a_call_that_fails_is_made_again_and_given_up_in_the_end(
    noisy: Any, make: Callable[[str], Holdfast], lines: list[dict[str, Any]]
) -> None:  # E19
    app = make('{ ears = ["failed"], deaf = ["failed"] }')
    noisy.refuse.update({"FOR_A_WHILE", "FOR_EVER"})
    async with app, working(app):
        await bookmarked(app, "ears")
        await app.tasks["work"].enqueue("FOR_A_WHILE")
        await enough(noisy.tries, 2)
        noisy.refuse.remove("FOR_A_WHILE")
        await enough(noisy.heard, 1)
        noisy.tries.clear()
        await app.tasks["work"].enqueue("FOR_EVER")
        await enough(noisy.tries, notifiers.TRIES)
        await app.tasks["work"].enqueue("NEXT")
        await enough(noisy.heard, 2)  # the one beside it fails each time, and is in nobody's way
    assert [notice.meta["error_code"] for notice in noisy.heard] == ["FOR_A_WHILE", "NEXT"]
    assert len(set(noisy.tries[: notifiers.TRIES])) == 1
    given_up = [
        line for line in lines if line["event"] == "notifier.event_skipped" and line["plugin"] == "ears"
    ]
    assert [(line["event_id"], line["tries"]) for line in given_up] == [(noisy.tries[0], notifiers.TRIES)]
    failed = [line for line in lines if line["event"] == "plugin.failed"]
    assert sorted((line["plugin"], line["instead"]) for line in failed) == [
        ("deaf", "it is called again"),
        ("ears", "it is called again"),
    ]


async def test_an_event_whose_bookmark_was_lost_is_told_again_under_the_same_id(
    noisy: Any, make: Callable[[str], Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:  # E19
    """As by a process that is killed between the call and the bookmark."""
    app = make('{ ears = ["queued"] }')
    async with app:
        engine = await app.runtime.engine()
        await NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers).run()  # it begins here
        handle = await app.tasks["work"].enqueue()
        killed = NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers)
        with monkeypatch.context() as patch:
            patch.setattr(killed._leader, "is_ours", always)

            async def dies(store: Any, name: str, **steps: Any) -> bool:
                raise StoreUnavailable("the process is gone")

            patch.setattr(bookmarks, "move", dies)
            with pytest.raises(StoreUnavailable):
                await killed.run()
        next_one = NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers)
        monkeypatch.setattr(next_one._leader, "is_ours", always)
        await next_one.run()
        await next_one.run()
    first, again = noisy.heard
    assert first == again
    assert first.job_id == handle.id


async def always() -> bool:
    return True


@pytest.mark.parametrize("name", ["endless", "plain", "missing"])
async def test_a_notifier_that_misbehaves_holds_up_nothing_else(
    noisy: Any,
    make: Callable[[str], Holdfast],
    name: str,
    lines: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # E19
    monkeypatch.setattr(plugins, "NOTIFY_WITHIN", 30.0 if name == "endless" else 0.5)
    app = make(f'{{ {name} = ["queued"] }}')
    async with app, working(app):
        await bookmarked(app, name)
        later = [await app.tasks["work"].options(delay="300ms").enqueue() for _ in range(3)]
        for handle in later:  # promoted by maintenance, beside the call
            await handle.result(timeout=20)
        if name != "endless":
            await enough(lines, 1)
            assert lines[0]["event"] == "plugin.failed"
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    assert "notifiers" not in tasks  # the call ended with the worker


async def test_events_wait_for_a_notifier_that_cannot_be_loaded(
    noisy: Any, make: Callable[[str], Holdfast], lines: list[dict[str, Any]]
) -> None:  # E19
    app = make('{ missing = ["queued"] }')
    async with app:
        engine = await app.runtime.engine()
        await NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers).run()
        handle = await app.tasks["work"].enqueue()
        broken = NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers)
        broken._leader.is_ours = always  # type: ignore[method-assign]
        for _ in range(3):
            await broken.run()
        assert [line["when"] for line in lines] == ["loading"]
        sys.modules["noisy_plugins"].not_there = noisy.ears  # type: ignore[attr-defined] # a new version
        plugins.notifier.cache_clear()
        mended = NotifierFeed(engine, lambda: app.runtime.declared.policies.notifiers)
        mended._leader.is_ours = always  # type: ignore[method-assign]
        await mended.run()
    assert [notice.job_id for notice in noisy.heard] == [handle.id]


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{ earz = ["failed"] }', "plugins.notifiers.earz: no notifier named 'earz' is installed; did you mean ears?"),
        ('{ ears = ["fialed"] }', "plugins.notifiers.ears: there is no event 'fialed'; did you mean failed?"),
        ('{ ears = "failed" }', "plugins.notifiers.ears: it is 'failed'; it is a list of names"),
        ('["ears"]', "plugins.notifiers: it is a list; it is a table"),
    ],
)  # fmt: skip
async def test_a_file_with_a_wrong_notifier_is_refused(
    make: Callable[[str], Holdfast], text: str, told: str
) -> None:  # E19
    with pytest.raises(UsageError) as refused:
        async with make(text):
            pass
    assert told in str(refused.value)


# -- transports ---------------------------------------------------------------------------------------------------------
async def relayed(app: Holdfast, condition: Callable[[], bool]) -> None:
    relaying = asyncio.create_task(app.outbox.run_relay())
    try:

        async def holds() -> bool:
            return condition()

        await until(holds)
    finally:
        relaying.cancel()
        await asyncio.gather(relaying, return_exceptions=True)


@pytest.mark.usefixtures("acme")
async def test_messages_of_a_topic_leave_by_the_transport_that_its_scheme_names(
    db: Database, tmp_path: Path
) -> None:  # E19
    folder = tmp_path / "spool"
    app = new_app(db.url)
    app.topic("orders", to=f"spool://{folder}", suffix=".order", base="20ms")
    async with app:
        ids = [await app.outbox.publish("orders", {"order": number}) for number in range(3)]
        relaying = asyncio.create_task(app.outbox.run_relay(until_idle=True))
        await asyncio.sleep(0)
        folder.mkdir()  # it was away
        await asyncio.wait_for(relaying, 20)
        assert [message.state for message in await app.outbox.list()] == ["published"] * 3
    found = {file.name: json.loads(file.read_bytes()) for file in folder.iterdir()}
    assert found == {f"{name}.order": {"order": number} for number, name in enumerate(ids)}


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("scheme", ["raises", "short", "unmade"])
async def test_no_message_is_lost_to_a_transport_that_misbehaves(
    db: Database, scheme: str, lines: list[dict[str, Any]]
) -> None:  # E19
    app = new_app(db.url)
    app.topic("orders", to=f"{scheme}://x", base="20ms")
    async with app:
        await app.outbox.publish("orders", {"order": 1})
        await relayed(app, lambda: bool(lines))
        [message] = await app.outbox.list()
    assert message.state == "waiting"
    assert {line["plugin"] for line in lines} == {scheme}
    assert lines[0]["instead"] == "its messages wait"


@pytest.mark.usefixtures("acme")
def test_a_scheme_that_nothing_brings_is_refused_with_those_that_are_near() -> None:  # E19
    app = Holdfast("memory://")
    with pytest.raises(UsageError, match="'spol' is not a kind of target; did you mean spool"):
        app.topic("orders", to="spol:///tmp")
