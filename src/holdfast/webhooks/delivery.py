"""The task that sends one message, and what its endpoint's answer means.

| answer | what becomes of it |
|---|---|
| 2xx | delivered |
| 410 | the webhook is disabled |
| 429, 503 with Retry-After | its lane waits that long |
| anything else, or none | tried again, over about three days |

A webhook none of whose messages arrived for three days is disabled. Of an answer's content nothing is read, kept or shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Protocol

from holdfast.domain.backoff import table
from holdfast.domain.breaker import BreakerPolicy
from holdfast.domain.cloudevent import MEDIA_TYPE
from holdfast.domain.guard import DependencyPolicy
from holdfast.domain.job import JobId, JobRow, JobSpec, Lane, NewJob
from holdfast.domain.limiter import LimiterPolicy
from holdfast.domain.policy import Retry
from holdfast.domain.webhook import Webhook
from holdfast.engine.admission import Admission
from holdfast.engine.engine import Engine
from holdfast.engine.payload import encode
from holdfast.engine.tasks import Policy, Sender, Task
from holdfast.errors import Conflict, Forbidden, PayloadError, Retryable, TargetNotAllowed, UnknownJob
from holdfast.logs import Log
from holdfast.webhooks.secrets import current, revealed
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
#: A dead endpoint is asked less and less often; while it is, its messages wait and burn no attempts.
GUARD = DependencyPolicy(
    breaker=BreakerPolicy(cooldown="30s", max_cooldown="1h"),
    limiter=LimiterPolicy(start=4, most=20),
    budget=None,
)
ASKED = Retry(5)
TIMEOUT = timedelta(seconds=30)
_TOLD = ("retry-after",)


class Refused(Exception):
    """The endpoint answered, but not that all is well. The engine reads the status and Retry-After."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"the endpoint answered {status}")
        self.status_code = status
        self.headers = {name: headers[name] for name in _TOLD if name in headers}


def meaning(error: BaseException) -> Retryable | None:
    """Whatever an endpoint does wrong may be right tomorrow."""
    match error:
        case Refused():
            kind = "HTTP_5XX" if error.status_code >= 500 else "HTTP_4XX"
            return Retryable(str(error), code="THROTTLED" if error.status_code == 429 else kind)
        case TargetNotAllowed():
            return Retryable("the URL of the endpoint leads where it must not", code="NETWORK")
        case TimeoutError():
            return Retryable("the endpoint did not answer in time", code="CALL_TIMEOUT")
        case ConnectionError():
            return Retryable(f"the endpoint: {error}", code="NETWORK")
    return None


class App(Sender, Protocol):
    """What the tasks need of the app they are installed in."""

    tasks: dict[str, Task[Any, Any]]
    admission: Admission

    async def engine(self) -> Engine: ...


def install(app: App) -> list[Task[Any, Any]]:
    """Give *app* the tasks that webhooks need, as a worker does when it begins; those that are new to it."""
    if TASK in app.tasks:
        return []
    app.admission.dependencies.setdefault(DEPENDENCY, GUARD)
    sending = Policy(queue=QUEUE, retry=RETRY, timeout=TIMEOUT, depends_on=DEPENDENCY, rules=(meaning,))
    app.tasks[TASK] = Task(_delivering(app.engine), TASK, sending, app)
    asked = Policy(queue=QUEUE, retry=ASKED, timeout=TIMEOUT)
    app.tasks[INBOUND_TASK] = Task(_retrying(app.engine), INBOUND_TASK, asked, app)
    return [app.tasks[TASK], app.tasks[INBOUND_TASK]]


def delivery(webhook_id: str, message: str, body: str, job_id: JobId, *, test: bool = False) -> NewJob:
    """The job that sends one message. Each webhook has a lane of its own, so that one that is dead holds no other; tests
    have another, so that they are not held by what they are to find out."""
    shard = f"{webhook_id}.test" if test else webhook_id
    spec = JobSpec(
        lane=Lane(QUEUE, TASK, DEPENDENCY, shard),
        max_attempts=1 if test else RETRY.max_attempts,
        timeout=TIMEOUT,
        tags=(tag(webhook_id),),
    )
    arguments = {"webhook": webhook_id, "message": message, "body": body, "test": test}
    return NewJob(job_id, encode(arguments, what="the message"), spec)


def retrial(webhook: Webhook, target: JobId, job_id: JobId) -> NewJob:
    """The job that does what an inbound message asked for."""
    lane = Lane(QUEUE, INBOUND_TASK)
    spec = JobSpec(lane=lane, max_attempts=ASKED.max_attempts, timeout=TIMEOUT, tags=(tag(webhook.id),))
    arguments = {"webhook": webhook.id, "job_id": target, "owner": webhook.owner}
    return NewJob(job_id, encode(arguments, what="the message"), spec)


def tag(webhook_id: str) -> str:
    """What the jobs of a webhook are found by."""
    return f"webhook:{webhook_id}"


def _delivering(find_engine: Callable[[], Awaitable[Engine]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def deliver(webhook: str, message: str, body: str, test: bool = False) -> dict[str, Any]:
        engine = await find_engine()
        known = await find(engine, webhook)
        if known is None or not (known.is_enabled or test):
            return {"skipped": "removed" if known is None else "disabled"}
        return await _send(engine, known, message, body.encode(), test)

    return deliver


async def find(engine: Engine, webhook_id: str) -> Webhook | None:
    """Return the webhook with this id, without secrets that have expired; None where there is none."""
    found = [webhook for webhook in await engine.store.webhooks() if webhook.id == webhook_id]
    return current(found[0], engine.clock.now()) if found else None


async def tested_webhook(engine: Engine, row: JobRow) -> Webhook | None:
    """The webhook that this job sends a test message to; None where it does anything else."""
    arguments = row.payload if row.task == TASK and isinstance(row.payload, dict) else {}
    return await find(engine, str(arguments.get("webhook"))) if arguments.get("test") else None


async def _send(engine: Engine, webhook: Webhook, message: str, body: bytes, test: bool) -> dict[str, Any]:
    secrets = revealed(webhook, engine.secret_keys()).secrets
    headers = {"content-type": MEDIA_TYPE, **sign(secrets, message, engine.clock.now(), body)}
    try:
        answer = await engine.outbound.call("POST", webhook.url, body=body, headers=headers, most=0)
    except (TargetNotAllowed, TimeoutError, ConnectionError):
        if not test:
            await _note(engine, webhook, well=False)
        raise
    well, gone = 200 <= answer.status < 300, answer.status == 410
    if not test:
        await _note(engine, webhook, well=well, disable_after=timedelta() if gone else DISABLE_AFTER)
    if well or gone:
        return {"status": answer.status}
    raise Refused(answer.status, answer.headers)


async def _note(
    engine: Engine, webhook: Webhook, *, well: bool, disable_after: timedelta = DISABLE_AFTER
) -> None:
    told = await engine.store.webhook_answered(webhook.id, well=well, disable_after=disable_after)
    if told is not None and not told.is_enabled and webhook.is_enabled:
        hint = "its messages are not sent any more; `holdfast webhooks enable` begins anew"
        log.warning("webhook.disabled", webhook=webhook.id, reason=told.disabled_reason, hint=hint)


def _retrying(find_engine: Callable[[], Awaitable[Engine]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    async def retry(webhook: str, job_id: str, owner: str | None) -> dict[str, Any]:
        engine = await find_engine()
        try:
            place = await engine.retry(job_id, by=f"webhook {webhook}", owner=owner)
        except (
            Conflict,
            Forbidden,
            PayloadError,
            UnknownJob,
        ) as error:  # it moved on, or the rules did: nothing is left to do
            return {"refused": str(error)}
        return {"place": place}

    return retry
