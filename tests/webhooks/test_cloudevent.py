"""Our events in the envelope of others, read by their library."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

from holdfast.engine.cloudevent import GONE, MEDIA_TYPE, Subject, of_event, of_test
from holdfast.jobs.job import Event, JobId

AT = datetime(2026, 3, 1, 12, 30, 0, 123456, tzinfo=UTC)
EVENT = Event(
    id=50_003,
    at=AT,
    kind="failed",
    job_id=JobId("0190a0b0-1111-7abc-8def-0123456789ab"),
    epoch=4,
    attempt=2,
    meta={"error_code": "GW_5XX"},
)
SUBJECT = Subject(task="convert", queue="default", owner="ann")


def test_the_sdk_reads_our_events() -> None:  # E61
    event = from_structured_event(
        HTTPMessage({"content-type": MEDIA_TYPE}, json.dumps(of_event(EVENT, SUBJECT)).encode())
    )
    assert event.get_id() == "50003"
    assert event.get_type() == "holdfast.job.failed"
    assert event.get_source() == "/holdfast"
    assert event.get_subject() == EVENT.job_id
    assert event.get_time() == AT
    assert event.get_extension("sequence") == "00000000000000050003"
    assert event.get_extension("partitionkey") == EVENT.job_id
    assert event.get_data() == {
        "job_id": EVENT.job_id,
        "task": "convert",
        "queue": "default",
        "owner": "ann",
        "event": "failed",
        "attempt": 2,
        "epoch": 4,
        "meta": {"error_code": "GW_5XX"},
    }


def test_the_sdk_reads_an_event_that_is_about_no_job() -> None:
    paused = Event(
        id=7, at=AT, kind="paused", job_id=JobId(""), epoch=0, attempt=0, meta={"queue": "default"}
    )
    event = from_structured_event(
        HTTPMessage({"content-type": MEDIA_TYPE}, json.dumps(of_event(paused, GONE)).encode())
    )
    assert event.get_type() == "holdfast.paused"
    assert event.get_subject() is None


def test_the_sdk_reads_a_test() -> None:
    event = from_structured_event(
        HTTPMessage({"content-type": MEDIA_TYPE}, json.dumps(of_test("msg_1", AT, "wh_1")).encode())
    )
    assert event.get_type() == "holdfast.webhook.test"


def test_sequences_are_ordered_as_texts() -> None:
    later = Event(id=10**15, at=AT, kind="failed", job_id=EVENT.job_id, epoch=0, attempt=0)
    assert of_event(EVENT, SUBJECT)["sequence"] < of_event(later, SUBJECT)["sequence"]
