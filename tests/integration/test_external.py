"""Jobs that others execute, through the app: begun and ended by report, in any order, twice, too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast import Holdfast, JobFailed, State, Task, UnknownJob, UsageError
from holdfast.external import Done, Failed, ReportStatus, Requeue
from tests.apps import new_app, until, working

FIRST: dict[str, Any] = {"generation": 1, "worker": "celery@one"}


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Holdfast]:
    app = new_app(store_url)

    @app.task(execute="external", deadline="1h")
    async def grade(text: str) -> int:
        raise AssertionError("it is executed outside")

    async with app:
        yield app


def grade(app: Holdfast) -> Task[..., int]:
    return app.tasks["grade"]


async def test_what_is_reported_from_outside_is_counted_once(app: Holdfast) -> None:  # E62
    app.metrics  # noqa: B018 - counting begins
    done, failed, tried, held = [await grade(app).enqueue("an essay") for _ in range(4)]
    for _ in range(2):  # sent twice
        await app.external.end(done.id, Done(7), **FIRST)
        await app.external.end(failed.id, Failed("UNREADABLE"), **FIRST)
    await app.external.end(tried.id, Requeue("1m", "PROVIDER_ERROR", retry=True), **FIRST)
    await app.external.end(held.id, Requeue("1m", "CIRCUIT_OPEN"), **FIRST)
    text = (await app.metrics.text())[0].decode()
    for line in (
        'jobs_completed_total{queue="default",task="grade"} 1.0',
        'jobs_failed_total{error_code="UNREADABLE",queue="default",task="grade"} 1.0',
        'retries_scheduled_total{type="automatic"} 1.0',
        'time_to_success_seconds_count{queue="default",task="grade"} 1.0',
    ):
        assert f"holdfast_{line}\n" in text


async def test_no_worker_of_ours_takes_it_and_a_report_ends_it(app: Holdfast) -> None:  # E45
    @app.task
    async def other() -> str:
        return "ours"

    handle = await grade(app).enqueue("an essay")
    async with working(app):
        assert await (await other.enqueue()).result("30s") == "ours"
        assert (await app.jobs.get(handle.id)).state is State.QUEUED
        assert (await app.jobs.explain(handle.id)).reason == "external"
        began = await app.external.begin(handle.id, **FIRST)
        assert (began.answer, began.state) == (ReportStatus.APPLIED, State.PROCESSING)
        assert (await app.external.begin(handle.id, **FIRST)).answer is ReportStatus.REPEATED
        assert (
            await app.external.begin(handle.id, generation=1, worker="celery@two")
        ).answer is ReportStatus.STALE
        ended = await app.external.end(handle.id, Done(7), **FIRST)
        assert (ended.answer, ended.state) == (ReportStatus.APPLIED, State.COMPLETE)
        assert await handle.result("30s") == 7
    assert (await app.external.end(handle.id, Done(8), **FIRST)).answer is ReportStatus.REPEATED
    row = await app.jobs.get(handle.id)
    assert (row.result, row.attempt) == (7, 1)


async def test_a_code_that_the_app_declares_speaks_in_its_words(app: Holdfast) -> None:  # E14
    app.error_code("NO_RUBRIC", "There is no rubric for this skill.", error_class="permanent")
    handle = await grade(app).enqueue("an essay")
    await app.external.end(handle.id, Failed("NO_RUBRIC", "rubric.json: not found"), **FIRST)
    assert (await app.jobs.get(handle.id)).error_message == "There is no rubric for this skill."
    refused = await app.tasks["grade"].reject({"text": ""}, "NO_RUBRIC")
    assert (await app.jobs.get(refused)).error_message == "There is no rubric for this skill."


async def test_an_end_may_overtake_its_beginning(app: Holdfast) -> None:  # E45
    handle = await grade(app).enqueue("an essay")
    assert (await app.external.end(handle.id, Done(7), **FIRST)).answer is ReportStatus.APPLIED
    began = await app.external.begin(handle.id, **FIRST)
    assert (began.answer, began.state) == (ReportStatus.STALE, State.COMPLETE)
    kinds = [event.kind for event in await app.events.list(job_id=handle.id)]
    assert kinds == ["queued", "processing", "complete"]


async def test_one_that_failed_outside_is_a_dead_letter(app: Holdfast) -> None:  # E45 E32
    handle = await grade(app).enqueue("an essay")
    await app.external.begin(handle.id, **FIRST)
    await app.external.end(handle.id, Failed("UNREADABLE", "no words in it"), **FIRST)
    with pytest.raises(JobFailed, match="UNREADABLE"):
        await handle.result("30s")
    [dead] = await app.dead_letters.list()
    assert (dead.code, dead.detail) == ("UNREADABLE", "no words in it")
    await app.jobs.retry(handle.id)
    assert (
        await app.external.end(handle.id, Done(7), **FIRST)
    ).answer is ReportStatus.STALE  # of the life before
    assert (
        await app.external.end(handle.id, Done(9), generation=2, worker="celery@one")
    ).answer is ReportStatus.APPLIED
    assert (await app.jobs.get(handle.id)).result == 9


async def test_one_that_is_put_back_waits_and_burns_no_attempt(app: Holdfast) -> None:  # E45 E2a
    handle = await grade(app).enqueue("an essay")
    await app.external.begin(handle.id, **FIRST)
    assert (
        await app.external.end(handle.id, Requeue("1h", "the breaker is open"), **FIRST)
    ).state is State.QUEUED
    row = await app.jobs.get(handle.id)
    assert (row.attempt, row.state) == (0, State.QUEUED)
    assert (
        await app.external.begin(handle.id, **FIRST)
    ).answer is ReportStatus.APPLIED  # the message came before its time


async def test_a_worker_outside_that_is_lost_gives_its_job_back(app: Holdfast) -> None:  # E30 E45
    handle = await grade(app).enqueue("an essay")
    await app.external.begin(handle.id, **FIRST, lease="200ms")
    async with working(app):

        async def given_back() -> bool:
            return (await app.jobs.get(handle.id)).state is State.QUEUED

        await until(given_back)
    assert (await app.jobs.get(handle.id)).crashes == 1
    assert (
        await app.external.end(handle.id, Done(7), **FIRST)
    ).answer is ReportStatus.APPLIED  # it lived after all, and nobody else did


async def test_two_reports_at_once_end_it_once(app: Holdfast) -> None:  # E5 E45
    handle = await grade(app).enqueue("an essay")
    told = await asyncio.gather(*(app.external.end(handle.id, Done(n), **FIRST) for n in range(8)))
    assert sorted(report.answer for report in told) == ["applied"] + ["repeated"] * 7
    kinds = [event.kind for event in await app.events.list(job_id=handle.id)]
    assert kinds.count("complete") == 1


async def test_reports_of_what_is_not_there_or_not_outside_are_refused(app: Holdfast) -> None:  # E45
    @app.task
    async def other() -> None: ...

    handle = await other.enqueue()
    with pytest.raises(UsageError, match='other is not executed outside; declare it with execute="external"'):
        await app.external.end(handle.id, Done(), **FIRST)
    with pytest.raises(UnknownJob):
        await app.external.begin("01a1e32c-3143-73af-8b35-27accb17cb51", **FIRST)


async def test_a_report_that_is_not_believed_is_on_record_once_and_changes_nothing(
    app: Holdfast,
) -> None:  # E45
    handle = await grade(app).enqueue("an essay")
    before = await app.jobs.get(handle.id)
    told = [
        await app.external.refuse(handle.id, "forged", reason=f"no\0signature\n{n}", by="\ud800")
        for n in range(3)
    ]
    assert told == [True, False, False]
    assert await app.external.refuse(handle.id, "unsigned")
    assert await app.jobs.get(handle.id) == before
    events = [event for event in await app.events.list(job_id=handle.id) if event.kind == "stale_write"]
    assert [event.meta for event in events] == [
        {"name": "forged", "reason": "no\ufffdsignature\ufffd0", "by": "\ufffd"},
        {"name": "unsigned"},
    ]
    with pytest.raises(UnknownJob):
        await app.external.refuse("01a1e359-297e-75e7-bba9-287684a79c65", "forged")
    with pytest.raises(UsageError, match="name is"):
        await app.external.refuse(handle.id, "")


async def test_a_begin_of_another_life_is_on_record_once(app: Holdfast) -> None:  # E45
    handle = await grade(app).enqueue("an essay")
    for _ in range(3):
        began = await app.external.begin(handle.id, generation=2, worker="celery@one")
        assert (began.answer, began.state) == (ReportStatus.STALE, State.QUEUED)
    kinds = [event.kind for event in await app.events.list(job_id=handle.id)]
    assert kinds == ["queued", "stale_write"]
