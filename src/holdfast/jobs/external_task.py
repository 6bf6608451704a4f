"""External tasks: what the executor of an external job is sent, and the ids of those messages.

A message may be lost, doubled or late; the job in the store is authoritative. The first message of a
generation has the same id in every process. The id of a repeat contains the start of the wait and the number
of the repeat. So processes that check at the same time use the same id, and the outbox stores the message
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.jobs.job import JobId

#: After each wait of this length the message is sent again, because the first one may be lost.
AGAIN_AFTER = timedelta(minutes=5)


class ExternalTask(NamedTuple):
    """One generation of a job that an external executor is to run."""

    id: str  #: `<job id>.<generation>`; reports refer to it
    job_id: JobId
    generation: int
    task: str
    arguments: dict[str, Any]
    deadline: datetime | None = None  #: by the store's clock; work that starts later is too late


#: A function that makes the message body and headers for an external task.
Encode = Callable[[ExternalTask], tuple[bytes, Mapping[str, str]]]


class WaitingExternalTask(NamedTuple):
    """A job that waits for an external executor, as read from the store."""

    id: JobId
    task: str
    generation: int
    attempt: int
    payload: str
    version: int
    trace: str | None
    since: datetime  #: since when it has been due without an executor
    due: bool  #: whether it is due now and its lane is not held
    deadline: datetime | None = None


def external_task_id(job_id: str, generation: int) -> str:
    return f"{job_id}.{generation}"


def split_external_task_id(external_task: str) -> tuple[JobId, int]:
    """Return the job id and the generation in an external task's id; raise `ValueError` for other texts."""
    job_id, _, generation = external_task.rpartition(".")
    if not job_id or not (generation.isascii() and generation.isdigit()):
        raise ValueError("this is not the id of an external task")
    return JobId(job_id), int(generation)


def repeat_id(external_task: str, since: datetime, times: int) -> str:
    """Return the id of the message that repeats an external task the *times*-th time since *since*."""
    return f"{external_task}@{round(since.timestamp() * 1000)}.{times}"


def repeats_due(since: datetime, now: datetime, again_after: timedelta) -> int:
    """Return how many repeats should have been sent by *now*."""
    return max(0, int((now - since) / again_after))


def plain_json(external_task: ExternalTask) -> tuple[bytes, dict[str, str]]:
    """Encode the external task as a JSON object of its fields, the default for tasks without an encoder."""
    deadline = None if external_task.deadline is None else external_task.deadline.isoformat()
    fields = external_task._asdict() | {"deadline": deadline}
    body = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return body, {"content-type": "application/json"}
