"""The task that sends one message, and the meaning of its endpoint's response.

| response | outcome |
|---|---|
| 2xx | delivered |
| 410 | the webhook is disabled |
| 429, 503 with Retry-After | its lane waits that long |
| any other, or none | tried again, over about three days |

A webhook that received no message for three days of tries is disabled. The body of a response is not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from holdfast.engine.admission import Admission
from holdfast.engine.cloudevent import MEDIA_TYPE
from holdfast.engine.engine import Engine
from holdfast.engine.jobs import Jobs
from holdfast.engine.namespace import OpenEngine
from holdfast.errors import (
    Conflict,
    Forbidden,
    PayloadError,
    Refused,
    Retryable,
    TargetNotAllowed,
    UnknownJob,
)
from holdfast.jobs.job import JobId, JobRow, JobSpec, Lane, NewJob
from holdfast.logging import Log
from holdfast.resilience.backoff import table
from holdfast.resilience.breaker import BreakerPolicy
from holdfast.resilience.guard import DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.policy import Retry
from holdfast.tasks.payload import encode
from holdfast.tasks.task import Policy, Sender, Task
from holdfast.webhooks import table as webhook_table
from holdfast.webhooks.model import Webhook
from holdfast.webhooks.secrets import with_secrets, without_expired_seeds
from holdfast.webhooks.selection import INBOUND_TASK, QUEUE, TASK
from holdfast.webhooks.signature import sign

log = Log("holdfast.webhooks")

DISABLE_AFTER = timedelta(days=3)
#: About 75 hours, as Standard Webhooks proposes.
RETRY = Retry(
    10,
    backoff=table(["5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h"]),
    jitter="10%",
    cap="24h",
)
DEPENDENCY = "holdfast.webhook"
#: A dead endpoint is called less and less often. Meanwhile its messages wait and use up no attempts.
GUARD = DependencyPolicy(
    breaker=BreakerPolicy(cooldown="30s", max_cooldown="1h"),
    limiter=LimiterPolicy(start=4, most=20),
    budget=None,
)
INBOUND_RETRY = Retry(5)
TIMEOUT = timedelta(seconds=30)
_READ_HEADERS = ("retry-after",)


class DeliveryRefused(Exception):
    """The endpoint answered with an error status.

    The engine reads the status and Retry-After from this exception.
    """

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"the endpoint answered {status}")
        self.status_code = status
        self.headers = {name: headers[name] for name in _READ_HEADERS if name in headers}


def meaning(error: BaseException) -> Retryable | None:
    """Classify the failure of a delivery: all are retryable. Return None for any other exception."""
    match error:
        case DeliveryRefused():
            kind = "HTTP_5XX" if error.status_code >= 500 else "HTTP_4XX"
            return Retryable(str(error), code="THROTTLED" if error.status_code == 429 else kind)
        case TargetNotAllowed():
            return Retryable(
                "the URL of the endpoint leads to an address that must not be called", code="NETWORK"
            )
        case TimeoutError():
            return Retryable("the endpoint did not answer in time", code="CALL_TIMEOUT")
        case ConnectionError():
            return Retryable(f"the endpoint: {error}", code="NETWORK")
    return None


def install(
    tasks: dict[str, Task[Any, Any]],
    admission: Admission,
    engine: Callable[[], Awaitable[Engine]],
    sender: Sender,
) -> list[Task[Any, Any]]:
    """Add the tasks of webhooks to *tasks*, as a worker does when it starts, and return those that are new."""
    if TASK in tasks:
        return []
    admission.dependencies.setdefault(DEPENDENCY, GUARD)
    sending = Policy(queue=QUEUE, retry=RETRY, timeout=TIMEOUT, depends_on=DEPENDENCY, rules=(meaning,))
    tasks[TASK] = Task(_delivering(engine), TASK, sending, sender)
    inbound = Policy(queue=QUEUE, retry=INBOUND_RETRY, timeout=TIMEOUT)
    tasks[INBOUND_TASK] = Task(_retrying(engine), INBOUND_TASK, inbound, sender)
    return [tasks[TASK], tasks[INBOUND_TASK]]


def delivery(webhook_id: str, message: str, body: str, job_id: JobId, *, test: bool = False) -> NewJob:
    """Return the job that sends one message.

    Each webhook has its own lane, so that a dead endpoint holds up no other. Test messages have another lane,
    so that they are not held with the messages of the endpoint under test.
    """
    shard = f"{webhook_id}.test" if test else webhook_id
    spec = JobSpec(
        lane=Lane(QUEUE, TASK, DEPENDENCY, shard),
        max_attempts=1 if test else RETRY.max_attempts,
        timeout=TIMEOUT,
        tags=(tag(webhook_id),),
    )
    arguments = {"webhook": webhook_id, "message": message, "body": body, "test": test}
    return NewJob(job_id, encode(arguments, what="the message"), spec)


def retry_job(webhook: Webhook, target: JobId, job_id: JobId) -> NewJob:
    """Return the job that retries *target*, as an inbound message asked."""
    lane = Lane(QUEUE, INBOUND_TASK)
    spec = JobSpec(
        lane=lane, max_attempts=INBOUND_RETRY.max_attempts, timeout=TIMEOUT, tags=(tag(webhook.id),)
    )
    arguments = {"webhook": webhook.id, "job_id": target, "owner": webhook.owner}
    return NewJob(job_id, encode(arguments, what="the message"), spec)


def tag(webhook_id: str) -> str:
    """Return the tag of all jobs of a webhook."""
    return f"webhook:{webhook_id}"


def _delivering(find_engine: Callable[[], Awaitable[Engine]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def deliver(webhook: str, message: str, body: str, test: bool = False) -> dict[str, Any]:
        engine = await find_engine()
        subscriber = await find(engine, webhook)
        if subscriber is None or not (subscriber.is_enabled or test):
            return {"skipped": "removed" if subscriber is None else "disabled"}
        return await _send(engine, subscriber, message, body.encode(), test)

    return deliver


async def find(engine: Engine, webhook_id: str) -> Webhook | None:
    """Return the webhook with this id, without expired secrets, or None."""
    found = [webhook for webhook in await webhook_table.every(engine.store) if webhook.id == webhook_id]
    return without_expired_seeds(found[0], engine.clock.now()) if found else None


async def tested_webhook(engine: Engine, row: JobRow) -> Webhook | None:
    """Return the webhook to which this job sends a test message, or None if it does something else."""
    arguments = row.payload if row.task == TASK and isinstance(row.payload, dict) else {}
    return await find(engine, str(arguments.get("webhook"))) if arguments.get("test") else None


async def _send(engine: Engine, webhook: Webhook, message: str, body: bytes, test: bool) -> dict[str, Any]:
    secrets = with_secrets(webhook, engine.secret_keys()).secrets
    headers = {"content-type": MEDIA_TYPE, **sign(secrets, message, engine.clock.now(), body)}
    try:
        answer = await engine.outbound.call("POST", webhook.url, body=body, headers=headers, most=0)
    except (TargetNotAllowed, TimeoutError, ConnectionError):
        if not test:
            await _note(engine, webhook, succeeded=False)
        raise
    succeeded, gone = 200 <= answer.status < 300, answer.status == 410
    if not test:
        await _note(
            engine, webhook, succeeded=succeeded, disable_after=timedelta() if gone else DISABLE_AFTER
        )
    if succeeded or gone:
        return {"status": answer.status}
    raise DeliveryRefused(answer.status, answer.headers)


async def _note(
    engine: Engine, webhook: Webhook, *, succeeded: bool, disable_after: timedelta = DISABLE_AFTER
) -> None:
    updated = await webhook_table.record_answer(
        engine.store, webhook.id, well=succeeded, disable_after=disable_after
    )
    if updated is not None and not updated.is_enabled and webhook.is_enabled:
        hint = "its messages are no longer sent; run `holdfast webhooks enable` to start again"
        log.warning("webhook.disabled", webhook=webhook.id, reason=updated.disabled_reason, hint=hint)


def _retrying(find_engine: Callable[[], Awaitable[Engine]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def retry(webhook: str, job_id: str, owner: str | None) -> dict[str, Any]:
        engine = await find_engine()
        try:
            place = await Jobs(OpenEngine(engine)).retry(job_id, by=f"webhook {webhook}", owner=owner)
        # The job or the rules have changed since the message came: nothing is left to do.
        except (Conflict, Forbidden, PayloadError, Refused, UnknownJob) as error:
            return {"refused": str(error)}
        return {"place": place}

    return retry
