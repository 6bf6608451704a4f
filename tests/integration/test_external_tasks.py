"""Jobs that others execute are told of by messages, which may be lost, doubled or late; the store is the truth."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Retry, Task, UsageError
from holdfast.celery import for_celery, split_external_task_id
from holdfast.external import Done, Failed, ReportStatus, Requeue
from holdfast.outbox.model import Message
from tests.apps import ONCE, Database, new_app, until, working
from tests.integration.callers import ASYNC, NOTE, SYNC
from tests.integration.test_publish import Shop
from tests.integration.test_transactional_enqueue import _params

pytestmark = pytest.mark.anyio
TOPIC = "grading.request"
SOON = "300ms"


def declare(app: Holdfast, **options: Any) -> Task[..., Any]:
    app.topic(TOPIC, to="memory://")

    @app.task(execute="external", topic=TOPIC, deadline="1h", **options)
    async def grade(text: str, words: int = 0) -> int:
        raise AssertionError("it is executed outside")

    return grade


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Holdfast]:
    app = new_app(store_url)
    declare(app, again_after="5m", retry=Retry(9, base="200ms", jitter="none"))
    async with app:
        yield app


def grade(app: Holdfast) -> Task[..., int]:
    return app.tasks["grade"]


async def told(app: Holdfast, job_id: str) -> list[Message]:
    return await app.outbox.list(topic=TOPIC, key=job_id)


async def names(app: Holdfast, job_id: str) -> list[str]:
    """What came behind the job's id, in the names of its messages."""
    return [message.id.removeprefix(job_id) for message in await told(app, job_id)]


async def look(app: Holdfast) -> int:
    return await app.runtime.declared.external_tasks.look((await app.runtime.engine()).store)


def first(generation: int = 1) -> dict[str, Any]:
    return {"generation": generation, "worker": "celery@one"}


async def test_a_job_and_its_message_are_stored_together(app: Holdfast) -> None:  # E45
    handle = await grade(app).enqueue("an essay", words=2)
    [message] = await told(app, handle.id)
    deadline = (await app.jobs.get(handle.id)).deadline_at
    assert deadline is not None
    assert json.loads(message.body) == {
        "id": f"{handle.id}.1",
        "job_id": handle.id,
        "generation": 1,
        "task": "grade",
        "arguments": {"text": "an essay", "words": 2},
        "deadline": deadline.isoformat(),
    }
    assert message.headers["holdfast-deadline"] == deadline.isoformat()
    assert (message.id, message.headers["content-type"]) == (f"{handle.id}.1", "application/json")
    assert split_external_task_id(message.id) == (handle.id, 1)
    handles = await grade(app).enqueue_many([("a",), ("b",)])
    assert [await names(app, one.id) for one in handles] == [[".1"], [".1"]]
    assert await look(app) == 0  # there is nothing to add


async def test_a_message_is_not_delivered_after_the_deadline_of_its_job(app: Holdfast) -> None:  # E15
    late = await grade(app).options(deadline="1ms").enqueue("too late")
    in_time = await grade(app).enqueue("an essay")

    async def passed() -> bool:
        deadline = (await app.jobs.get(late.id)).deadline_at
        return deadline is not None and await (await app.runtime.engine()).store.now() > deadline

    await until(passed)
    await app.outbox.run_relay(until_idle=True)
    assert await told(app, late.id) == []
    [message] = await told(app, in_time.id)
    assert message.state == "published"
    [event] = [event for event in await app.events.list(limit=100) if event.kind == "discarded"]
    assert (event.meta["message"], event.meta["by"]) == (f"{late.id}.1", "relay")
    assert "deadline" in event.meta["reason"]
    assert await look(app) == 0  # the sweep ends its job: no second message is made for it


async def test_a_retry_after_the_deadline_has_a_message_and_a_deadline_of_its_own(
    app: Holdfast,
) -> None:  # E15
    handle = await grade(app).options(deadline="20ms").enqueue("an essay")

    async def failed() -> bool:
        await (await app.runtime.engine()).recovery.time_out()
        return (await app.jobs.get(handle.id)).state == "failed"

    await until(failed)
    await app.outbox.run_relay(until_idle=True)
    await app.jobs.retry(handle.id, by="a person")
    [message] = await told(app, handle.id)
    row = await app.jobs.get(handle.id)
    assert row.deadline_at is not None
    assert (message.id, message.headers["holdfast-deadline"]) == (
        f"{handle.id}.2",
        row.deadline_at.isoformat(),
    )


async def test_jobs_of_ours_are_not_told_of(app: Holdfast) -> None:  # E45
    @app.task
    async def other() -> None: ...

    await other.enqueue()
    assert await app.outbox.list() == []
    assert await look(app) == 0


async def test_one_that_cannot_be_told_of_is_not_stored(app: Holdfast) -> None:  # E45
    with pytest.raises(UsageError, match="bytes"):
        await grade(app).enqueue("x" * 1_100_000)
    assert sum((await app.jobs.counts()).values()) == 0
    assert await app.outbox.list() == []


async def test_a_hook_that_refuses_the_job_takes_its_message_back(app: Holdfast) -> None:  # E45
    @app.on("queued")
    async def refuse(transaction: Any, moves: Any) -> None:
        raise RuntimeError("the shop is closed")

    with pytest.raises(RuntimeError, match="the shop is closed"):
        await grade(app).enqueue("an essay")
    assert await app.outbox.list() == []


async def test_a_persons_retry_and_a_redrive_tell_a_new_errand_with_the_move(app: Holdfast) -> None:  # E45
    handle = await grade(app).enqueue("an essay")
    await app.external.end(handle.id, Failed("UNREADABLE"), **first())
    await app.jobs.retry(handle.id)
    assert await names(app, handle.id) == [".1", ".2"]
    await app.external.end(handle.id, Failed("UNREADABLE"), **first(2))
    assert await app.dead_letters.redrive(ids=handle.id) == 1
    assert await names(app, handle.id) == [".1", ".2", ".3"]
    assert (await app.external.end(handle.id, Done(1), **first(2))).answer is ReportStatus.STALE
    assert (await app.external.end(handle.id, Done(2), **first(3))).answer is ReportStatus.APPLIED
    assert (await app.external.end(handle.id, Done(3), **first(3))).answer is ReportStatus.REPEATED
    assert (await app.jobs.get(handle.id)).result == 2


async def test_one_that_is_due_later_is_told_of_when_it_is_due(app: Holdfast) -> None:  # E45
    handle = await grade(app).options(delay="1s").enqueue("an essay")
    assert (await told(app, handle.id), await look(app)) == ([], 0)
    async with working(app):

        async def is_told() -> bool:
            await look(app)
            return bool(await told(app, handle.id))

        await until(is_told)
    assert await names(app, handle.id) == [".1"]
    assert await look(app) == 0


async def test_a_persons_retry_of_one_that_waits_tells_of_it_at_once(app: Holdfast) -> None:  # E45
    handle = await grade(app).options(delay="1h").enqueue("an essay")
    await app.jobs.retry(handle.id)
    assert await names(app, handle.id) == [".1"]
    await app.external.begin(handle.id, **first())
    await app.external.end(handle.id, Requeue("1h", "not now"), **first())
    await app.jobs.retry(handle.id)
    [_, again] = await names(app, handle.id)
    assert again.startswith(".1@")
    assert again.endswith(".0")


async def test_one_that_waits_for_its_key_is_told_of_when_it_may_go(app: Holdfast) -> None:  # E45
    one, two = [await grade(app).options(key="k").enqueue(text) for text in ("one", "two")]
    assert await names(app, one.id) == [".1"]
    await app.external.end(one.id, Done(1), **first())
    async with working(app):

        async def is_told() -> bool:
            await look(app)
            return bool(await told(app, two.id))

        await until(is_told)
    assert await names(app, two.id) == [".1"]
    assert (await app.external.end(two.id, Done(2), **first())).answer is ReportStatus.APPLIED


async def test_one_that_was_put_back_is_with_whoever_put_it_back(app: Holdfast) -> None:  # E45
    handle = await grade(app).enqueue("an essay")
    for _ in range(3):
        await app.external.begin(handle.id, **first())
        await app.external.end(handle.id, Requeue("0s", "the breaker is open"), **first())
        await look(app)
    assert await names(app, handle.id) == [".1"]


async def test_one_that_was_lost_with_its_worker_is_told_of_again(app: Holdfast) -> None:  # E30 E45
    handle = await grade(app).enqueue("an essay")

    async def lost_and_told(times: int) -> None:
        async def begun() -> bool:
            return (
                await app.external.begin(handle.id, **first(), lease="500ms")
            ).answer is ReportStatus.APPLIED

        async def is_told() -> bool:
            await look(app)
            return len(await told(app, handle.id)) > times

        await until(begun)
        async with working(app):
            await until(is_told)
        assert (await app.jobs.get(handle.id)).crashes == times

    await lost_and_told(1)  # with the move itself
    await lost_and_told(2)  # when its wait is over
    one, *others = await names(app, handle.id)
    assert one == ".1"
    assert [(other.startswith(".1@"), other.endswith(".0")) for other in others] == [(True, True)] * 2
    # Put back by whoever has it now, it is not told of once more.
    await app.external.begin(handle.id, **first())
    await app.external.end(handle.id, Requeue("0s", "the breaker is open"), **first())
    await look(app)
    assert len(await told(app, handle.id)) == 3


@pytest.fixture
async def hasty(store_url: str) -> AsyncIterator[Holdfast]:
    """An app that tells again after a moment."""
    app = new_app(store_url)
    declare(app, again_after=SOON, retry=ONCE)
    async with app:
        yield app


async def test_what_waits_too_long_is_told_of_again_once_for_each_wait(hasty: Holdfast) -> None:  # E45
    handle = await grade(hasty).enqueue("an essay")
    async with working(hasty), working(hasty):

        async def told_thrice() -> bool:
            return len(await told(hasty, handle.id)) >= 3

        await until(told_thrice)
        await hasty.external.begin(handle.id, **first())
        seen = await names(hasty, handle.id)
    assert seen[0] == ".1"
    assert len({one.partition("@")[2].partition(".")[0] for one in seen[1:]}) == 1  # of one wait
    numbers = [int(one.rpartition(".")[2]) for one in seen[1:]]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 1
    assert (await hasty.external.end(handle.id, Done(1), **first())).answer is ReportStatus.APPLIED


async def test_what_is_paused_is_not_told_of_until_it_is_resumed(hasty: Holdfast) -> None:  # E27 E45
    before = await grade(hasty).enqueue("one")
    await hasty.queues.pause("default", reason="the graders are on strike")
    handle = await grade(hasty).options(owner="ann").enqueue("two")
    since = (await hasty.jobs.get(before.id)).updated_at

    async def waited_long() -> bool:
        await look(hasty)
        return datetime.now(UTC) - since > timedelta(seconds=1)  # three times as long as it takes

    await until(waited_long)
    async with working(hasty):
        assert (await names(hasty, before.id), await names(hasty, handle.id)) == ([".1"], [])
        await hasty.queues.resume("default")

        async def both_told() -> bool:
            return len(await told(hasty, before.id)) > 1 and bool(await told(hasty, handle.id))

        await until(both_told)
    # Resumed between two looks of the duty, it is told of as one that waits for too long: that is an external task as well.
    assert (await names(hasty, handle.id))[0].partition("@")[0] == ".1"


async def test_what_was_held_is_told_of_at_the_first_look_after_the_hold(app: Holdfast) -> None:  # E27 E45
    await look(app)  # the next thorough one would be in half a minute
    await app.queues.pause("default", reason="the graders are on strike")
    handle = await grade(app).enqueue("two")
    await look(app)
    assert await told(app, handle.id) == []
    await app.queues.resume("default")
    await look(app)
    assert await names(app, handle.id) == [".1"]


async def test_an_errand_that_cannot_be_written_does_not_keep_the_others(
    hasty: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:  # E45
    bad, good = await grade(hasty).enqueue("bad"), await grade(hasty).enqueue("good")

    def encode(external_task: Any) -> tuple[bytes, dict[str, str]]:
        if external_task.arguments["text"] == "bad":
            raise ValueError("no")
        return b"{}", {}

    object.__setattr__(grade(hasty).policy, "encode", encode)
    async with working(hasty):

        async def again() -> bool:
            return len(await told(hasty, good.id)) > 1

        await until(again)
    assert await names(hasty, bad.id) == [".1"]


# -- in other hands -----------------------------------------------------------------------------------------------------------
async def test_a_retry_by_somebody_who_does_not_know_the_task_is_told_of_by_the_duty(
    db: Database, app_of: Holdfast
) -> None:  # E45
    async with app_of:
        handle = await grade(app_of).enqueue("an essay")
        await app_of.external.end(handle.id, Failed("UNREADABLE"), **first())
        async with Holdfast(db.url) as bare:  # `holdfast jobs retry ID --url …`
            await bare.jobs.retry(handle.id)
        assert await names(app_of, handle.id) == [".1"]
        assert await look(app_of) == 1
        assert await look(app_of) == 0
        assert await names(app_of, handle.id) == [".1", ".2"]


@pytest.fixture
def app_of(app_plain: Holdfast) -> Holdfast:
    declare(app_plain, again_after="5m", encode=for_celery("shop.grade"))
    return app_plain


@pytest.fixture
def app_plain(db: Database) -> Holdfast:
    return new_app(db.url)


async def test_for_celery_it_is_a_call_of_the_task_with_the_arguments_of_the_job(
    db: Database, app_of: Holdfast
) -> None:  # E45
    async with app_of:
        async with app_of.transaction() as connection:
            handle = await grade(app_of).options(connection=connection).enqueue("an essay")
        [message] = await told(app_of, handle.id)
    assert message.headers["task"] == "shop.grade"
    assert message.headers["id"] == f"{handle.id}.1"
    assert json.loads(message.body)[1] == {"text": "an essay"}


def test_it_is_stored_with_its_message_without_an_event_loop_too(
    db: Database, app_of: Holdfast
) -> None:  # E45
    handle = grade(app_of).enqueue_sync("an essay")
    [message] = app_of.sync.outbox.list(key=handle.id)
    assert message.id == f"{handle.id}.1"
    app_of.runtime.portal.close()


@pytest.fixture(params=_params(SYNC))
def shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request, SYNC)


@pytest.fixture(params=_params(ASYNC))
def async_shop(request: pytest.FixtureRequest) -> Shop:
    return Shop(request, ASYNC)


def test_it_is_stored_with_its_message_and_the_callers_row_or_not_at_all(shop: Shop) -> None:  # E45
    grade = declare(shop.app)
    for end, kept in (("rollback", 0), ("commit", 1)):
        with shop.open(shop.db) as caller:
            grade.options(connection=caller.connection).enqueue_sync("an essay")
            caller.execute(NOTE)
            getattr(caller, end)()
        found = [len(shop.db.notes), *map(shop.db.count, ("job", "outbox"))]
        assert found == [kept] * 3


async def test_it_is_stored_with_its_message_and_the_async_callers_row_or_not_at_all(
    async_shop: Shop,
) -> None:  # E45
    shop, grade = async_shop, declare(async_shop.app)
    for end, kept in (("rollback", 0), ("commit", 1)):
        async with shop.app, shop.open(shop.db) as caller:
            await grade.options(connection=caller.connection).enqueue("an essay")
            await caller.execute(NOTE)
            await getattr(caller, end)()
        found = [len(shop.db.notes), *map(shop.db.count, ("job", "outbox"))]
        assert found == [kept] * 3


async def test_two_processes_that_look_at_the_same_time_tell_of_it_once(db: Database) -> None:  # E45
    apps = [new_app(db.url), new_app(db.url)]
    for app in apps:
        declare(app, again_after=SOON)
    async with apps[0], apps[1]:
        handle = await grade(apps[0]).enqueue("an essay")
        began = (await handle.job()).updated_at

        async def waited() -> bool:
            await asyncio.gather(*map(look, apps))
            return datetime.now(UTC) - began > timedelta(seconds=1)

        await until(waited)
        one, *others = await names(apps[0], handle.id)
    assert one == ".1"
    waits, numbers = zip(*(other.removeprefix(".1@").split(".") for other in others), strict=True)
    assert len(set(waits)) == 1
    assert len(set(numbers)) == len(others) >= 1


# -- declaring ----------------------------------------------------------------------------------------------------------------
async def test_a_topic_that_is_not_declared_and_a_task_that_is_ours_are_one_line() -> None:  # E45
    app = Holdfast("memory://")

    @app.task(execute="external", topic="grading.reqest")
    async def grade(text: str) -> int:
        raise AssertionError("it is executed outside")

    with pytest.raises(
        UsageError, match=r"grade are sent to the topic grading.reqest, which is not declared; .*app.topic"
    ):
        await grade.enqueue("an essay")
    with pytest.raises(UsageError, match='declare it with execute="external"'):

        @app.task(topic=TOPIC)
        async def ours() -> None: ...

    with pytest.raises(UsageError, match="has encode= but no topic="):

        @app.task(execute="external", encode=for_celery("shop.grade"))
        async def nowhere() -> None: ...

    with pytest.raises(UsageError, match="again_after is '1ms'"):

        @app.task(execute="external", topic=TOPIC, again_after="1ms")
        async def at_once() -> None: ...
