"""Hands submissions over: as messages in the outbox, which a relay brings to the broker.

A message of the same id is stored once, so each of these may be done twice, by any number of processes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import Holdfast, JobRow, State
from holdfast.celery import encode_task
from systems.grading.messages import request_id
from systems.grading.topology import REQUESTS

TASK = "grading.grade"
_PAGE = 200


async def hand_over(
    app: Holdfast,
    submission_id: str,
    generation: int,
    arguments: dict[str, Any],
    *,
    message_id: str | None = None,
    connection: Any = None,
) -> None:
    """Store the request to grade this submission, inside the caller's transaction where there is one."""
    name = request_id(submission_id, generation)
    request = {"requestId": name, "submissionId": submission_id}
    request |= {key: value for key, value in arguments.items() if value is not None}
    message = encode_task(TASK, kwargs={"request": request}, task_id=name)
    await app.publish(
        REQUESTS,
        message.body,
        id=message_id or name,
        key=submission_id,
        headers=message.headers,
        connection=connection,
    )


async def hand_over_all(app: Holdfast, again_after: timedelta) -> int:
    """Every submission that waits and whose request may be lost; how many."""
    done, after = 0, None
    while True:
        page = await app.jobs(task="grade", state="queued", after=after, limit=_PAGE)
        for row in page.rows:
            if (name := due_again(row, again_after, datetime.now(UTC))) is not None:
                await hand_over(app, row.id, row.generation, row.payload, message_id=name)
                done += 1
        if page.next is None:
            return done
        after = page.next


def due_again(row: JobRow, again_after: timedelta, now: datetime) -> str | None:
    """The id of the message to send for a submission that waits; None: nothing is due.

    It names the wait it is for and its number in it, so that all who look at the same time name it alike.
    """
    if row.state is not State.QUEUED:
        return None
    name = request_id(row.id, row.generation)
    since = max(row.updated_at, row.run_at)
    times = int((now - since) / again_after)
    if times >= 1:
        return f"{name}@{int(since.timestamp() * 1000)}.{times}"
    # The first generation was handed over with the submission itself; a later one is begun by a person's retry.
    return name if row.generation > 1 and row.attempt == 0 else None
