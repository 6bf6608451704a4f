"""Calls that are alike are written together, whoever made them."""

from __future__ import annotations

from datetime import timedelta

from holdfast import Holdfast
from holdfast.jobs.job import JobBatch, JobId, JobSpec, Lane, NewJob

LANE = Lane("default", "note")


def job(number: int, **said: object) -> NewJob:
    return NewJob(JobId(f"{number:032x}"), "{}", JobSpec(lane=LANE, **said))  # type: ignore[arg-type]


def test_calls_with_equal_specs_are_one_batch() -> None:
    jobs = [job(number, owner="alice", deadline=timedelta(minutes=5)) for number in range(4)]
    [batch] = JobBatch.split(jobs)
    assert list(batch) == jobs


def test_calls_keep_their_order_where_specs_change() -> None:
    jobs = [job(1, owner="alice"), job(2, owner="bob"), job(3, owner="bob"), job(4, owner="alice")]
    batches = JobBatch.split(jobs)
    assert [len(batch) for batch in batches] == [1, 2, 1]
    assert [one for batch in batches for one in batch] == jobs


def test_calls_without_options_share_the_spec_of_their_task() -> None:
    app = Holdfast("memory://")

    @app.task
    async def note(text: str) -> None: ...

    [batch] = JobBatch.split([note.options()._job({"text": "a"}), note.options()._job({"text": "b"})])
    assert batch.spec is note.plain_spec
