"""Callbacks at the main app: signed, whole, of the right request, in time; and what becomes of all others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import JobRow, State
from holdfast.celery import sign
from holdfast.external import ReportStatus
from holdfast.outbox.model import MessageState
from holdfast.testing import ManualClock, app_in_memory
from systems.grading.callbacks.handler import Refused, apply
from systems.grading.messages import LARGEST_MESSAGE, request_id
from systems.grading.progress import progress_of
from systems.grading.settings import Settings
from systems.grading.submissions import send_again, submit
from systems.grading.tasks import Grading, build
from systems.grading.views import show, show_message

pytestmark = pytest.mark.anyio
SECRET = "a secret of these tests and of nobody else"
RESULT = {"overall": 6.5, "bands": {"task": 6.5}, "feedback": "Good."}


@pytest.fixture
async def grading(database_url: str, tmp_path: Path) -> AsyncIterator[Grading]:
    built = build(
        Settings(database_url=database_url, callback_secrets=(SECRET,), audio_dir=tmp_path / "audio")
    )
    async with built.app:
        yield built


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clocked(clock: ManualClock) -> Iterator[Grading]:
    """In memory, where time moves only when told."""
    built = build(Settings(callback_secrets=(SECRET,)))
    with app_in_memory(built.app, clock=clock):
        yield built


def body_of(row: JobRow, status: str, **more: Any) -> bytes:
    told: dict[str, Any] = {
        "requestId": request_id(row.id, row.generation),
        "submissionId": row.id,
        "status": status,
        "attempt": 1,
        "worker": "celery@test",
        "timestamp": "2026-01-01T00:00:00+00:00",
    }
    if status == "completed":
        told["result"] = RESULT
    if status in ("error", "failed"):
        told["error"] = {
            "code": "CIRCUIT_OPEN" if status == "error" else "AUDIO_DECODE_ERROR",
            "message": "why",
        }
    return msgspec.json.encode(told | more)


async def tell(grading: Grading, row: JobRow, status: str, **more: Any) -> ReportStatus:
    """A callback as a worker sends it."""
    name, body = request_id(row.id, row.generation), body_of(row, status, **more)
    return await send(grading, name, body, sign(SECRET, name, body))


async def send(
    grading: Grading, name: str | None, body: bytes, headers: dict[str, Any], kind: str = "application/json"
) -> ReportStatus:
    return await apply(grading, content_type=kind, headers=headers, message_id=name, body=body)


async def kinds_of(grading: Grading, row: JobRow) -> list[str]:
    return [event.kind for event in await grading.app.events.list(job_id=row.id)]


async def refusals(grading: Grading, row: JobRow) -> dict[str, str]:
    """Of callbacks: their names, and why."""
    events = [event for event in await grading.app.events.list(job_id=row.id) if event.kind == "stale_write"]
    assert len({event.meta["name"] for event in events}) == len(events)
    return {event.meta["name"]: event.meta.get("reason", "") for event in events}


async def test_a_submission_and_its_message_are_stored_together_under_the_names_of_the_source(
    grading: Grading,
) -> None:  # G1
    row = await submit(grading, "writing", text="Hello.")
    [stored] = await grading.app.outbox.list(key=row.id)
    message = show_message(stored)
    assert show(row)["status"] == "PENDING"
    assert message["aggregate_id"] == row.id
    assert message["message_type"] == "grading.request"
    assert message["status"] == "pending"
    assert message["payload"]["requestId"] == show(row)["requestId"]
    assert set(message) == {
        "id", "aggregate_id", "message_type", "payload", "status", "created_at", "processed_at", "retry_count", "error_message",
    }  # fmt: skip
    gone = replace(stored, state=MessageState.PUBLISHED, settled_at=stored.created_at)
    assert show_message(gone)["status"] == "published"
    assert show_message(gone)["processed_at"] == message["created_at"]
    parked = show_message(replace(stored, state=MessageState.PARKED, tries=3, error="nobody wants it"))
    assert [parked[name] for name in ("status", "retry_count", "error_message")] == [
        "failed",
        3,
        "nobody wants it",
    ]


def test_the_relay_goes_by_the_variables_of_the_source() -> None:  # G2
    plain = build(Settings()).app.runtime.settings
    assert (plain.outbox_poll, plain.outbox_batch) == (timedelta(seconds=5), 50)
    assert plain.outbox_stale == timedelta(seconds=60)
    names = {"OUTBOX_POLL_INTERVAL_MS": "7000", "OUTBOX_BATCH_SIZE": "9", "OUTBOX_STALE_THRESHOLD_MS": "8000"}
    told = build(Settings.read(names)).app.runtime.settings
    assert (told.outbox_poll, told.outbox_batch) == (timedelta(seconds=7), 9)
    assert told.outbox_stale == timedelta(seconds=8)


def test_deadlines_are_swept_as_often_as_the_variable_says() -> None:  # G5
    """The default is a minute, as the source has it. Lost workers are looked for by themselves, as often as ever."""
    assert Settings().timeout_check_interval_ms == 60_000
    for every in (60_000, 90_000, 200):
        found = build(Settings.read({"TIMEOUT_CHECK_INTERVAL_MS": str(every)})).app.runtime.settings
        assert found.deadlines_every == timedelta(milliseconds=every)
        assert found.reclaim_every == timedelta(seconds=2)


async def test_a_message_that_cannot_be_stored_leaves_no_submission(grading: Grading) -> None:  # G1
    with pytest.raises(Exception, match="bytes"):
        await submit(grading, "writing", text="x" * 1_100_000)
    assert sum((await grading.app.jobs.counts()).values()) == 0
    assert await grading.app.outbox.list() == []


async def test_the_deadline_is_twenty_minutes_for_writing_and_sixty_for_speaking(
    grading: Grading,
) -> None:  # G5
    writing = await submit(grading, "writing", text="a")
    speaking = await submit(grading, "speaking", audio=b"a sound")
    for row, minutes in ((writing, 20), (speaking, 60)):
        assert row.deadline_at is not None
        assert abs(row.deadline_at - row.created_at - timedelta(minutes=minutes)) < timedelta(seconds=1)


async def test_callbacks_bring_a_submission_from_pending_to_processing_to_completed(
    grading: Grading,
) -> None:  # G5
    row = await submit(grading, "writing", text="a")
    seen = []
    for status in ("processing", "completed"):
        assert await tell(grading, row, status) is ReportStatus.APPLIED
        seen.append(show(await grading.app.jobs.get(row.id))["status"])
    assert seen == ["PROCESSING", "COMPLETED"]
    assert (await grading.app.jobs.get(row.id)).result["overall"] == 6.5


async def test_a_callback_that_comes_twice_has_one_effect_and_one_event(grading: Grading) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    for status in ("processing", "processing", "completed", "completed", "failed"):
        await tell(grading, row, status)
    assert await tell(grading, row, "completed") is ReportStatus.REPEATED
    assert await kinds_of(grading, row) == ["queued", "processing", "complete", "stale_write"]
    assert await refusals(grading, row) == {"again 1": f"the end of request {row.id}.1 came again"}


async def test_an_end_may_overtake_its_beginning(grading: Grading) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    assert await tell(grading, row, "completed") is ReportStatus.APPLIED
    assert await tell(grading, row, "processing") is not ReportStatus.APPLIED
    assert show(await grading.app.jobs.get(row.id))["status"] == "COMPLETED"


async def test_circuit_open_is_news_and_no_end_and_the_submission_waits_again(grading: Grading) -> None:  # G7
    row = await submit(grading, "writing", text="a")
    await tell(grading, row, "processing")
    assert await tell(grading, row, "error") is ReportStatus.APPLIED
    waiting = await grading.app.jobs.get(row.id)
    assert show(waiting)["status"] == "PENDING"
    assert waiting.attempt == 0
    await tell(grading, row, "processing")
    assert await tell(grading, row, "completed") is ReportStatus.APPLIED


async def test_retries_of_workers_are_a_metric_and_what_the_breaker_holds_is_not(
    grading: Grading,
) -> None:  # G3 E62
    grading.app.metrics  # noqa: B018 - counting begins
    row = await submit(grading, "writing", text="a")
    failed = {"code": "PROVIDER_ERROR", "message": "the provider answered 503", "retryInMs": 0}
    for error in ({"error": failed}, {}, {"error": failed}):  # without: the breaker is open
        await tell(grading, row, "processing")
        assert await tell(grading, row, "error", **error) is ReportStatus.APPLIED
    await tell(grading, row, "completed")
    text = (await grading.app.metrics.text())[0].decode()
    assert 'retries_scheduled_total{type="automatic"} 2.0\n' in text
    assert 'jobs_completed_total{queue="grading",task="grade"} 1.0\n' in text


async def test_a_decode_error_marks_the_attempt_and_the_submission_failed(grading: Grading) -> None:  # G4
    row = await submit(grading, "writing", text="a")
    await tell(grading, row, "processing")
    await tell(grading, row, "failed")
    shown = show(await grading.app.jobs.get(row.id))
    assert (shown["status"], shown["failureReason"]) == ("FAILED", "AUDIO_DECODE_ERROR")
    [attempt] = await grading.app.jobs.attempts(row.id)
    assert attempt.outcome == "failed"
    assert len(await grading.app.dead_letters.list()) == 1


async def test_a_callback_of_an_old_request_changes_nothing_and_leaves_an_event_that_says_so(
    grading: Grading,
) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    await tell(grading, row, "failed")
    again = await send_again(grading, row.id, by="operator")
    assert again.generation == 2
    assert await tell(grading, row, "completed") is ReportStatus.STALE
    assert (await grading.app.jobs.get(row.id)).state is State.QUEUED
    assert await tell(grading, row, "processing") is ReportStatus.STALE
    assert list(await refusals(grading, row)) == ["generation 1"]
    assert await tell(grading, again, "completed") is ReportStatus.APPLIED


async def test_sending_again_makes_a_new_request_with_a_message_of_its_own(grading: Grading) -> None:  # G4
    row = await submit(grading, "writing", text="a")
    await tell(grading, row, "failed")
    await send_again(grading, row.id, by="operator")
    ids = [message.id for message in await grading.app.outbox.list(key=row.id)]
    assert ids == [request_id(row.id, 1), request_id(row.id, 2)]


async def test_a_submission_that_was_redriven_at_the_engine_is_handed_over_too(
    grading: Grading,
) -> None:  # G4
    row = await submit(grading, "writing", text="a")
    await tell(grading, row, "failed")
    assert await grading.app.dead_letters.redrive(ids=row.id) == 1
    assert [message.id for message in await grading.app.outbox.list(key=row.id)][1:] == [
        request_id(row.id, 2)
    ]


async def test_what_waits_for_too_long_is_handed_over_again_once_for_each_wait(
    clocked: Grading, clock: ManualClock
) -> None:  # E45
    row = await submit(clocked, "speaking", audio=b"a sound")
    store = (await clocked.app.runtime.engine()).store
    told = []
    for _ in range(3):
        clock.advance("269s")
        assert await clocked.app.runtime.declared.external_tasks.look(store) == 0
        clock.advance("31s")
        assert await clocked.app.runtime.declared.external_tasks.look(store) == 1
        told.append((await clocked.app.outbox.list(key=row.id))[-1])
    assert len({message.id for message in told}) == 3
    assert {message.headers["id"] for message in told} == {
        request_id(row.id, 1)
    }  # one request, however often
    await tell(clocked, row, "processing")
    clock.advance("300s")
    assert await clocked.app.runtime.declared.external_tasks.look(store) == 0


@asynccontextmanager
async def unchanged(grading: Grading, row: JobRow, *, but: str | None) -> AsyncIterator[None]:
    """But for one event that says why, where it is known whom it is about."""
    before, kinds = await grading.app.jobs.get(row.id), await kinds_of(grading, row)
    yield
    assert await grading.app.jobs.get(row.id) == before
    assert await kinds_of(grading, row) == kinds + ["stale_write"] * (but is not None)
    assert [name for name, why in (await refusals(grading, row)).items() if why] == ([but] if but else [])


#: What is bad → what it is called on the submission's record; None: whom it is about is not known.
NAMES = {
    "no signature": "unsigned",
    "another secret": "forged",
    "another body": "forged",
    "no id": None,
    "another id": "another id",
    "50 MB": "too large",
    "too large, signed": "too large",
}
BAD: dict[str, Any] = {
    "no signature": lambda name, body: (name, body, {}),
    "another secret": lambda name, body: (name, body, sign("another secret of the same length", name, body)),
    "another body": lambda name, body: (name, body.replace(b"6.5", b"9.0"), sign(SECRET, name, body)),
    "no id": lambda name, body: (None, body, sign(SECRET, name, body)),
    "another id": lambda name, body: (
        name.replace(".1", ".2"),
        body,
        sign(SECRET, name.replace(".1", ".2"), body),
    ),
    "50 MB": lambda name, body: (name, body + b" " * 50_000_000, {}),
    "too large, signed": lambda name, body: _signed(name, body + b" " * LARGEST_MESSAGE),
    "not UTF-8": lambda name, body: _signed(name, b"\xff\xfe" + body),
    "not JSON": lambda name, body: _signed(name, b"{"),
    "deep": lambda name, body: _signed(name, b"[" * 100_000),
    "a list": lambda name, body: _signed(name, b"[]"),
    "a band of 42": lambda name, body: _signed(name, body.replace(b"6.5", b"42")),
    "no result": lambda name, body: _signed(name, body.replace(b'"result"', b'"reslut"')),
    "a worker that cannot be printed": lambda name, body: _signed(
        name, body.replace(b"celery@test", b"celery\\u0000")
    ),
    "unknown status": lambda name, body: _signed(name, body.replace(b"completed", b"excellent")),
}


def _signed(name: str, body: bytes) -> tuple[str, bytes, dict[str, str]]:
    return name, body, sign(SECRET, name, body)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("bad", list(BAD))
async def test_a_bad_callback_is_refused_and_changes_nothing(grading: Grading, bad: str) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    async with unchanged(grading, row, but=NAMES.get(bad, "unreadable")):
        for _ in range(3):  # however often somebody sends it
            with pytest.raises(Refused):
                await send(grading, *BAD[bad](request_id(row.id, 1), body_of(row, "completed")))


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_pickle_is_not_looked_at(grading: Grading) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    name, body = request_id(row.id, 1), body_of(row, "completed")
    async with unchanged(grading, row, but="content type"):
        with pytest.raises(Refused, match="content type"):
            await send(grading, name, body, sign(SECRET, name, body), "application/x-python-serialize")


async def test_a_callback_about_nobody_is_refused(grading: Grading) -> None:  # G6
    row = await submit(grading, "writing", text="a")
    nobody = "00000000-0000-7000-8000-000000000000"
    body = body_of(row, "completed").replace(row.id.encode(), nobody.encode())
    with pytest.raises(Refused, match="does not exist"):
        await send(grading, *_signed(request_id(nobody, 1), body))


# -- at the deadline ------------------------------------------------------------------------------------------------------------
async def test_a_callback_at_the_very_deadline_is_in_time_and_the_sweep_finds_nothing(  # E34
    clocked: Grading, clock: ManualClock
) -> None:
    row = await submit(clocked, "writing", text="a")
    await tell(clocked, row, "processing")
    clock.advance("20m")
    assert clock.now() == row.deadline_at
    assert await tell(clocked, row, "completed") is ReportStatus.APPLIED
    assert await (await clocked.app.runtime.engine()).recovery.time_out() == 0
    assert show(await clocked.app.jobs.get(row.id))["status"] == "COMPLETED"


async def test_a_sweep_at_the_very_deadline_leaves_the_callback_its_chance(  # E34
    clocked: Grading, clock: ManualClock
) -> None:
    row = await submit(clocked, "writing", text="a")
    clock.advance("20m")
    assert await (await clocked.app.runtime.engine()).recovery.time_out() == 0
    assert await tell(clocked, row, "completed") is ReportStatus.APPLIED


@pytest.mark.parametrize("begun", [True, False], ids=["processing", "pending"])
@pytest.mark.parametrize("first", ["sweep", "callback"])
async def test_a_microsecond_after_the_deadline_it_is_late_whoever_comes_first(  # E35
    clocked: Grading, clock: ManualClock, first: str, begun: bool
) -> None:
    row = await submit(clocked, "writing", text="a")
    if begun:
        await tell(clocked, row, "processing")
    clock.advance(timedelta(minutes=20, microseconds=1))
    engine = await clocked.app.runtime.engine()
    if first == "sweep":
        assert await engine.recovery.time_out() == 1
    assert await tell(clocked, row, "completed") is ReportStatus.LATE
    assert await engine.recovery.time_out() == 0
    late = await clocked.app.jobs.late_results(row.id)
    shown = show(await clocked.app.jobs.get(row.id), late)
    assert (shown["status"], shown["failureReason"], shown["result"]) == ("FAILED", "TIMEOUT", None)
    assert [(one["isLate"], one["result"]["overall"]) for one in shown["lateResults"]] == [(True, 6.5)]
    assert await progress_of(clocked.app, None) == {}
    assert (await kinds_of(clocked, row)).count("timed_out") == 1


@pytest.mark.parametrize("begun", [True, False], ids=["processing", "pending"])
async def test_a_late_result_is_kept_once_and_changes_nothing_on_every_store(
    grading: Grading, begun: bool
) -> None:  # G6
    row = await (await grading.grade.options(deadline="1ms").enqueue("writing", text="a")).job()
    if begun:
        await grading.app.external.begin(row.id, generation=1, worker="celery@test")
    assert row.deadline_at is not None
    while datetime.now(UTC) <= row.deadline_at:
        pass
    for _ in range(2):
        assert await tell(grading, row, "completed") is ReportStatus.LATE
    shown = show(await grading.app.jobs.get(row.id), await grading.app.jobs.late_results(row.id))
    assert (shown["status"], shown["failureReason"]) == ("FAILED", "TIMEOUT")
    assert len(shown["lateResults"]) == 1
    assert (await kinds_of(grading, row)).count("late_result") == 1
