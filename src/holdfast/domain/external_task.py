"""External tasks: what the executor of an external job is sent, and the id of the message that carries it.

A message may be lost, doubled or late; the job in the store is the truth. The first message of a generation has the same id in
every process. Each later one names the wait it belongs to and its number in that wait. So processes that look at the same time
use the same id, and the outbox stores the message once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.domain.job import JobId

#: A job that waits for longer is told of again: its message may be lost.
AGAIN_AFTER = timedelta(minutes=5)


class ExternalTask(NamedTuple):
    """One generation of one job, to be executed outside."""

    id: str  #: `<job id>.<generation>`: what reports about it name
    job_id: JobId
    generation: int
    task: str
    arguments: dict[str, Any]
    deadline: datetime | None = None  #: by the store's clock: what begins after it comes too late


#: The body of the message for an external task, and its headers.
Encode = Callable[[ExternalTask], tuple[bytes, Mapping[str, str]]]


class WaitingExternalTask(NamedTuple):
    """A job that waits to be executed outside, as the store has it."""

    id: JobId
    task: str
    generation: int
    attempt: int
    payload: str
    version: int
    trace: str | None
    since: datetime  #: it is due and nobody has it
    due: bool  #: and nothing holds its lane; or it will be later
    deadline: datetime | None = None


def external_task_id(job_id: str, generation: int) -> str:
    return f"{job_id}.{generation}"


def split_external_task_id(external_task: str) -> tuple[JobId, int]:
    """The job and the generation that an external task's id names; `ValueError` when it is none."""
    job_id, _, generation = external_task.rpartition(".")
    if not job_id or not (generation.isascii() and generation.isdigit()):
        raise ValueError("this is not the id of an external task")
    return JobId(job_id), int(generation)


def repeat_id(external_task: str, since: datetime, times: int) -> str:
    """Return the id of repeat number *times* of an external task's message, for the wait that began at *since*."""
    return f"{external_task}@{round(since.timestamp() * 1000)}.{times}"


def repeats_due(since: datetime, now: datetime, again_after: timedelta) -> int:
    """How often it should have been told again by now."""
    return max(0, int((now - since) / again_after))


def plain_json(external_task: ExternalTask) -> tuple[bytes, dict[str, str]]:
    """The external task as a JSON object of its own fields: what is sent where a task says nothing else."""
    deadline = None if external_task.deadline is None else external_task.deadline.isoformat()
    fields = external_task._asdict() | {"deadline": deadline}
    body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return body, {"content-type": "application/json"}
