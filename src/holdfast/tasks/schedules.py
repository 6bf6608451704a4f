"""Declare and check schedules, and make the jobs of their ticks.

`holdfast.jobs.schedule` computes when they tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

from holdfast.errors import UsageError
from holdfast.jobs.job import JobId, NewJob
from holdfast.jobs.schedule import Missed, Schedule, When, tick_id
from holdfast.tasks.task import Task
from holdfast.values.suggest import suggest
from holdfast.values.validation import by_name, word

#: The prefix of the tag with the schedule's name on each of its jobs.
TAG = "schedule:"
_LONGEST_TAG = 500


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule."""

    name: str | None  #: tells schedules of one task apart; by default the task's name
    missed: Missed  #: what becomes of ticks that no worker saw: "once" (one job for all), "skip" or "all"
    args: Mapping[str, Any] | None  #: the arguments of the job, by name
    queue: str | None
    owner: str | None


def declare(task: Task[Any, Any], when: When, /, **options: Unpack[ScheduleOptions]) -> Schedule:
    """Return a schedule of *task*.

    Raises `UsageError` now, not at the first tick, for what is wrong with it.
    """
    names = ScheduleOptions.__annotations__
    if unknown := sorted(options.keys() - names):
        raise UsageError(f"no schedule option {', '.join(unknown)}; {suggest(unknown[0], names)}")
    given, name = options.get("args"), options.get("name")
    arguments = by_name("args", {} if given is None else given, '{"year": 2026}')
    queue, owner = options.get("queue"), options.get("owner")
    [job] = task.options(queue=queue, owner=owner)._jobs([dict(arguments)])
    return Schedule(
        name=word("name", task.name if name is None else name),
        task=task.name,
        when=when,
        missed=options.get("missed", "once"),
        payload=job.payload,
        queue=queue,
        owner=owner,
    )


def job_now(schedule: Schedule, task: Task[Any, Any], job_id: JobId) -> NewJob:
    """Return the scheduled job under *job_id*, to be run now."""
    task.check(schedule.owner, schedule.payload)
    spec = task.options(queue=schedule.queue, owner=schedule.owner, tags=[_tag(schedule)])._spec()
    return NewJob(job_id, schedule.payload, spec)


def jobs_of(schedule: Schedule, task: Task[Any, Any], ticks: Sequence[datetime]) -> list[NewJob]:
    """Return one job per tick, due at the tick by the store's clock. Every process makes the same jobs."""
    task.check(schedule.owner, schedule.payload)
    return [
        NewJob(
            tick_id(schedule.name, tick),
            schedule.payload,
            task.options(
                queue=schedule.queue, owner=schedule.owner, tags=[_tag(schedule)], run_at=tick
            )._spec(),
        )
        for tick in ticks
    ]


def _tag(schedule: Schedule) -> str:
    return f"{TAG}{schedule.name}"[:_LONGEST_TAG]
