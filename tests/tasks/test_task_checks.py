"""`@app.task(check=…)`: asked about every call before it is stored, on the roads that Python has."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Every, Forbidden, Holdfast, PayloadError, UsageError
from holdfast.maintenance.schedules import Scheduler
from holdfast.tasks.schedules import jobs_of

pytestmark = pytest.mark.anyio


class Page(msgspec.Struct):
    url: str


class Rules:
    """A check that keeps what it was asked, and refuses what it was told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, Mapping[str, Any]]] = []
        self.refused: set[str | None] = set()

    def __call__(self, owner: str | None, args: Mapping[str, Any]) -> None:
        self.asked.append((owner, args))
        if owner in self.refused:
            raise Forbidden(f"not for {owner}")
        if args.get("text") == "bad":
            raise PayloadError("not this text")


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def app(rules: Rules, sqlite_url: str) -> Holdfast:
    app = Holdfast(sqlite_url)

    @app.task(check=rules)
    async def note(text: str, page: Page | None = None, *rest: int, size: int = 7, **more: str) -> str:
        return text

    return app


async def test_it_is_given_the_owner_and_all_arguments_in_their_types(app: Holdfast, rules: Rules) -> None:
    note = app.tasks["note"]
    async with app:
        await note.options(owner="ann").enqueue("a")
        await note.options(owner="bob").enqueue("b", Page("x"), 1, 2, size=8, color="red")
        await note.enqueue_many([("c",), {"text": "d"}])
    assert rules.asked == [
        ("ann", {"text": "a", "page": None, "rest": [], "size": 7, "more": {}}),
        ("bob", {"text": "b", "page": Page("x"), "rest": [1, 2], "size": 8, "more": {"color": "red"}}),
        (None, {"text": "c", "page": None, "rest": [], "size": 7, "more": {}}),
        (None, {"text": "d", "page": None, "rest": [], "size": 7, "more": {}}),
    ]


async def test_what_it_refuses_is_not_stored(app: Holdfast, rules: Rules, sqlite_url: str) -> None:
    note = app.tasks["note"]
    rules.refused = {"eve"}
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    async with app:
        with pytest.raises(Forbidden, match="not for eve"):
            await note.options(owner="eve").enqueue("a")
        with pytest.raises(PayloadError, match="not this text"):
            await note.enqueue("bad")
        with pytest.raises(PayloadError):  # all or none
            await note.enqueue_many(["a", "bad", "c"])
        with pytest.raises(Forbidden):
            note.options(owner="eve", connection=connection).enqueue_sync("a")
        with pytest.raises(Forbidden):
            note.options(owner="eve", connection=connection).enqueue_many_sync(["a"])
        assert sum((await app.jobs.counts()).values()) == 0
        assert await app.events.list() == []
    connection.close()


async def test_a_retry_is_asked_about_with_other_arguments_and_with_its_own(
    app: Holdfast, rules: Rules
) -> None:
    note = app.tasks["note"]
    async with app:
        job_id = (await note.options(owner="ann").enqueue("a")).id
        await app.jobs.cancel(job_id)
        before = await app.jobs.get(job_id)
        with pytest.raises(PayloadError):
            await app.jobs.retry(job_id, args={"text": "bad"})
        rules.refused = {"ann"}  # the rules have changed since
        for again in ({}, {"args": {"text": "b"}}, {"from_step": None}):
            with pytest.raises(Forbidden):
                await app.jobs.retry(job_id, **again)
        assert await app.jobs.get(job_id) == before
        rules.refused = set()
        await app.jobs.retry(job_id, args={"text": "b"})
        assert rules.asked[-1][1]["text"] == "b"


async def test_a_refused_call_on_record_is_not_asked_about_until_it_is_to_run(
    app: Holdfast, rules: Rules
) -> None:
    async with app:
        job_id = await app.tasks["note"].reject({"text": "bad"}, "REFUSED", owner="ann")
        assert rules.asked == []
        with pytest.raises(PayloadError):
            await app.jobs.retry(job_id)
        assert (await app.jobs.get(job_id)).state == "failed"


async def test_dead_letters_that_it_refuses_stay_while_others_are_redriven(rules: Rules) -> None:
    app = Holdfast("memory://", poll="10ms")

    @app.task(check=rules, retry=1)
    async def note(text: str) -> None:
        raise ValueError(text)

    async with app:
        for owner in ("ann", "eve"):
            await note.options(owner=owner).enqueue("a")
        await app.run_worker(until_idle=True)
        assert await app.dead_letters.count() == 2
        rules.refused = {"eve"}
        assert await app.dead_letters.redrive() == 1
        assert [letter.owner for letter in await app.dead_letters.list()] == ["eve"]
        found = await app.operations.preview("redrive")
        assert (found.matched, found.skipped) == (1, {"forbidden": 1})


async def test_stored_arguments_of_an_older_version_are_upgraded_before_it_sees_them(rules: Rules) -> None:
    app = Holdfast("memory://")

    @app.task(check=rules, version=2)
    async def note(text: str) -> None: ...

    @note.upgrades_from(1)
    def renamed(args: dict[str, Any]) -> dict[str, Any]:
        return {"text": args["words"]}

    note.check_again("ann", {"words": "old"})
    note.check_again("ann", {"text": "new"})
    assert [args for _, args in rules.asked] == [{"text": "old"}, {"text": "new"}]
    with pytest.raises(PayloadError, match="do not fit its signature"):
        note.check_again("ann", {"neither": 1})


async def test_a_schedule_is_asked_about_when_it_is_declared_and_at_each_tick(rules: Rules) -> None:
    app = Holdfast("memory://")

    @app.task(check=rules)
    async def note(text: str) -> None: ...

    with pytest.raises(PayloadError):
        app.schedule(note, Every("1m"), args={"text": "bad"})
    app.schedule(note, Every("1m"), args={"text": "a"}, owner="ann")
    [schedule] = app.runtime.declared.schedules.values()
    tick = datetime(2026, 1, 1, tzinfo=UTC)
    assert len(jobs_of(schedule, note, [tick, tick + timedelta(minutes=1)])) == 2
    rules.refused = {"ann"}
    with pytest.raises(Forbidden):
        jobs_of(schedule, note, [tick])


async def test_a_tick_that_it_refuses_does_not_hold_the_other_schedules(
    rules: Rules, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Holdfast("memory://")

    @app.task(check=rules)
    async def note(text: str) -> None: ...

    for owner in ("eve", "ann"):
        app.schedule(note, Every("1s"), name=owner, args={"text": "a"}, owner=owner)
    rules.refused = {"eve"}
    ticked = [datetime.now(UTC)]
    monkeypatch.setattr("holdfast.maintenance.schedules.due", lambda *_: ticked)
    async with app:
        await Scheduler(await app.runtime.engine(), app.runtime.declared.schedules).run()
        assert [row.owner for row in (await app.jobs.list()).rows] == ["ann"]


def test_what_cannot_be_a_check_is_refused_where_it_is_written(tmp_path: Path) -> None:
    app = Holdfast("memory://")

    async def slow(owner: str | None, args: Mapping[str, Any]) -> None: ...

    async def note() -> None: ...

    for wrong, line in (
        ({"check": slow}, "a check is a plain def"),
        ({"check": "rule"}, "check is 'rule'; it is a function"),
        ({"http": "yes"}, "http is 'yes'; it is True or False"),
        ({"name": "holdfast.note"}, "are the engine's own"),
    ):
        with pytest.raises(UsageError, match=line):
            app.task(**wrong)(note)
    with pytest.raises(UsageError, match="owner_queues is 'all'; it is one of declared, any"):
        Holdfast("memory://", owner_queues="all")  # type: ignore[arg-type]
