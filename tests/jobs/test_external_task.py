"""What an external task is called, whoever tells of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.celery import encode_task, for_celery
from holdfast.jobs.external_task import (
    ExternalTask,
    external_task_id,
    plain_json,
    repeat_id,
    repeats_due,
    split_external_task_id,
)
from holdfast.jobs.job import JobId

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
AGAIN = timedelta(minutes=5)
ERRAND = ExternalTask("a.2", JobId("a"), 2, "grade", {"text": "Grüße", "words": None})


@given(job_id=st.uuids().map(str), generation=st.integers(1, 30_000))
def test_an_id_names_a_job_and_its_generation(job_id: str, generation: int) -> None:  # E45
    assert split_external_task_id(external_task_id(job_id, generation)) == (job_id, generation)


@pytest.mark.parametrize(
    "made_up", ["", ".", "a", "a.", ".1", "a.x", "a.-1", "a.1.0x", "a.²", "a. 1", "a.1\n"]
)
def test_what_is_no_id_is_refused(made_up: str) -> None:  # E45
    with pytest.raises(ValueError, match="not the id of an external task"):
        split_external_task_id(made_up)


@given(since=st.integers(0, 10**6), waited=st.integers(0, 10**6), more=st.integers(0, 299))
def test_all_who_look_in_one_stretch_of_a_wait_name_it_alike_and_no_other(
    since: int, waited: int, more: int
) -> None:  # E45
    began = NOON + timedelta(seconds=since)
    begin_of_stretch = began + AGAIN * (waited // 300)
    times = repeats_due(began, began + timedelta(seconds=waited), AGAIN)
    assert times == waited // 300
    assert repeats_due(began, begin_of_stretch + timedelta(seconds=more), AGAIN) == times
    assert repeats_due(began, begin_of_stretch + AGAIN, AGAIN) == times + 1
    names = {repeat_id("a.1", began, n) for n in (times, times + 1)}
    names |= {repeat_id("a.1", began + timedelta(seconds=1), times), repeat_id("a.2", began, times)}
    assert len(names) == 4


def test_a_clock_that_was_set_back_tells_nothing_again() -> None:  # E45
    assert repeats_due(NOON, NOON - timedelta(hours=1), AGAIN) == 0


def test_an_errand_is_plain_json_or_a_call_of_a_celery_task() -> None:  # E45
    body, headers = plain_json(ERRAND)
    assert body == (
        '{"id":"a.2","job_id":"a","generation":2,"task":"grade","arguments":{"text":"Grüße","words":null},"deadline":null}'.encode()
    )
    assert headers == {"content-type": "application/json"}
    body, _ = plain_json(ERRAND._replace(deadline=NOON))
    assert json.loads(body)["deadline"] == NOON.isoformat()
    _, told = for_celery("school.grade")(ERRAND._replace(deadline=NOON))
    assert told["expires"] == NOON.isoformat()
    assert for_celery("school.grade")(ERRAND) == encode_task(
        "school.grade", kwargs=ERRAND.arguments, task_id="a.2"
    )
