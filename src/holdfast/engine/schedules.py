"""A task that is enqueued by the clock: declared and checked here, made into jobs here; `domain.schedule` knows when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.domain.job import NewJob
from holdfast.domain.schedule import Missed, Schedule, When, tick_id
from holdfast.domain.validation import by_name, word
from holdfast.engine.tasks import Task

#: The tag of every job that a schedule made, before its name.
TAG = "schedule:"
_LONGEST_TAG = 500
#: What may be said of a schedule besides its task and its time.
OPTIONS = ("name", "missed", "args", "queue", "owner")


def declare(
    task: Task[Any, Any],
    when: When,
    *,
    name: str | None = None,
    missed: Missed = "once",
    args: Mapping[str, Any] | None = None,
    queue: str | None = None,
    owner: str | None = None,
) -> Schedule:
    """A schedule of *task*; what is wrong with it is said now, not at its first tick."""
    arguments = by_name("args", {} if args is None else args, '{"year": 2026}')
    [job] = task.options(queue=queue, owner=owner)._jobs([dict(arguments)])
    return Schedule(
        name=word("name", task.name if name is None else name),
        task=task.name,
        when=when,
        missed=missed,
        payload=job.payload,
        queue=queue,
        owner=owner,
    )


def jobs_of(schedule: Schedule, task: Task[Any, Any], ticks: Sequence[datetime]) -> list[NewJob]:
    """One job for each tick, not to run before it by the store's clock; the same jobs wherever they are made."""
    task.check(schedule.owner, schedule.payload)
    tag = f"{TAG}{schedule.name}"[:_LONGEST_TAG]
    return [
        NewJob(
            tick_id(schedule.name, tick),
            schedule.payload,
            task.options(queue=schedule.queue, owner=schedule.owner, tags=[tag], run_at=tick)._spec(),
        )
        for tick in ticks
    ]
