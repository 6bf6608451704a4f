"""Use Celery workers as executors: write tasks as messages of Celery 5, and send results back as signed callbacks.

Holdfast's side does not need Celery. A task that Celery workers execute names a topic. The engine publishes a message for each
job, in the transaction that stores the job, and again if a message was lost:

    @app.task(execute="external", topic="shop.tasks", encode=for_celery("shop.ship"), deadline="20m")
    async def ship(order: int) -> dict: ...

The id of the task in Celery, and in its callbacks, is `<job id>.<generation>` (`split_external_task_id`). Publish a message that
belongs to no job yourself:

    message = encode_task("shop.ship", kwargs={"order": 7}, task_id=request_id)
    await app.outbox.publish("shop.tasks", message.body, headers=message.headers, key="order 7", connection=connection)

On Celery's side (extra `celery`), `report` makes workers send callbacks about their tasks, on a queue of their own broker:

    report(celery_app, secret=os.environ["CALLBACK_SECRET"], queue="shop.callback")

A callback is JSON: `id` (of the task), `task`, `status` (`processing`, `completed`, `failed`, or `error` for a try that is
repeated), `attempt` (from 1), `worker`, `timestamp`, and `result` or `error` (`code`, `message`). It is signed: the header
`holdfast-signature` is `v1=` and, in hexadecimal, the HMAC-SHA256 of `v1.<message id>.<body>` under the secret. The signature
covers no time, because a callback may wait in its queue for as long as its reader is down. A callback that arrives twice does no
harm, because the reader accepts one end for each id.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import BadSignature, UsageError
from holdfast.jobs.external_task import Encode, ExternalTask, split_external_task_id

if TYPE_CHECKING:
    from holdfast.jobs.machine import Clock

__all__ = [
    "SIGNATURE",
    "BadSignature",
    "TaskMessage",
    "encode_task",
    "for_celery",
    "report",
    "sign",
    "split_external_task_id",
    "verify",
]

SIGNATURE = "holdfast-signature"
SHORTEST_SECRET = 24
_LONGEST_ID = 256
_MOST_SIGNATURES = 10
#: A result that is larger is left out of its callback, which then says so.
LARGEST_RESULT = 256 * 1024


class TaskMessage(NamedTuple):
    """A message of Celery's protocol 2: its body and its headers."""

    body: bytes
    headers: dict[str, str]


def encode_task(
    task: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    task_id: str,
    expires: datetime | None = None,
) -> TaskMessage:
    """Return the message that makes a Celery worker run *task* once.

    Args:
        task: The name of the task in Celery.
        args: Its positional arguments.
        kwargs: Its arguments by name.
        task_id: Its id in Celery and in callbacks.
        expires: Workers drop the message after this moment.

    Raises:
        UsageError: The name or the id is missing or too long, or the arguments are not JSON.
    """
    if not task or not task_id or len(task_id) > _LONGEST_ID:
        raise UsageError(f"a task for Celery needs a name and an id of at most {_LONGEST_ID} characters")
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    try:
        body = json.dumps(
            [list(args), dict(kwargs or {}), embedded],
            ensure_ascii=False,
            allow_nan=False,
            separators=(",", ":"),
        ).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the arguments of {task} are not JSON: {error}") from None
    headers = {
        "lang": "py",
        "task": task,
        "id": task_id,
        "root_id": task_id,
        "content-type": "application/json",
    }
    if expires is not None:
        headers["expires"] = expires.isoformat()
    return TaskMessage(body, headers)


def for_celery(task: str) -> Encode:
    """Return an `encode=` for tasks: it calls this Celery *task* with the arguments of the job by name.

    Workers drop the message after the deadline of the job.
    """

    def encode(external_task: ExternalTask) -> TaskMessage:
        return encode_task(
            task, kwargs=external_task.arguments, task_id=external_task.id, expires=external_task.deadline
        )

    return encode


def sign(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    """Return the header that signs *body* under this message id."""
    return {SIGNATURE: f"v1={_digest(secret, message_id, body)}"}


def verify(secrets: Sequence[str], headers: Mapping[str, Any], message_id: str | None, body: bytes) -> None:
    """Raise `BadSignature` unless *body* was signed under this id with one of *secrets*: several, while one replaces another."""
    given = headers.get(SIGNATURE)
    if not isinstance(given, str) or not given or not message_id or len(message_id) > _LONGEST_ID:
        raise BadSignature(f"it is not signed: a message id and the header {SIGNATURE} are needed")
    wanted = [f"v1={_digest(secret, message_id, body)}".encode() for secret in secrets]
    found = False
    for signature in given.split(" ")[:_MOST_SIGNATURES]:
        for right in wanted:  # all are compared, each in constant time
            found |= hmac.compare_digest(right, signature.encode(errors="replace"))
    if not found:
        raise BadSignature("no signature fits; check the secret, and that the body is signed byte for byte")


def _digest(secret: str, message_id: str, body: bytes) -> str:
    if len(secret) < SHORTEST_SECRET:
        raise UsageError(f"a secret for callbacks has at least {SHORTEST_SECRET} characters")
    signed = f"v1.{message_id}.".encode() + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


# -- on Celery's side -------------------------------------------------------------------------------------------------------
def report(
    celery_app: Any,
    *,
    secret: str,
    queue: str = "holdfast.callback",
    tasks: Sequence[str] | None = None,
    tries: int = 5,
    clock: Clock | None = None,
) -> None:
    """Make every worker of *celery_app* send a callback when a task begins, is tried again, and ends.

    If the broker refuses a callback *tries* times, the worker logs an error. The task has run and is acknowledged all the same,
    so the job then ends by its deadline or its lease.

    Args:
        celery_app: The Celery app.
        secret: The secret that callbacks are signed with.
        queue: Where callbacks go: a durable quorum queue, which is created if it is missing.
        tasks: The names of the tasks to report. None reports all.
        tries: How often a callback is sent again that the broker refused.
        clock: For tests.

    Raises:
        UsageError: The secret is too short.
    """
    from celery import signals  # only Celery workers have it

    from holdfast.wiring import SystemClock

    _digest(secret, "", b"")  # raises now for a secret that is too short
    sender = _Sender(celery_app, secret, queue, tries, clock or SystemClock())

    def wanted(name: str) -> bool:
        return tasks is None or name in tasks

    def begun(task_id: str, task: Any, **_: Any) -> None:
        if wanted(task.name):
            sender.send(task, task_id, "processing")

    def succeeded(sender_: Any, result: Any) -> None:
        if wanted(sender_.name):
            sender.send(sender_, sender_.request.id, "completed", result=result)

    def retried(request: Any, reason: Any, sender_: Any) -> None:
        if wanted(sender_.name):
            sender.send(sender_, request.id, "error", error=reason)

    def failed(task_id: str, exception: BaseException, sender_: Any) -> None:
        if wanted(sender_.name):
            sender.send(sender_, task_id, "failed", error=exception)

    # Celery calls its receivers by keyword and holds them weakly by default.
    strong = {"weak": False}
    signals.task_prerun.connect(lambda sender=None, **news: begun(**news), **strong)
    signals.task_success.connect(lambda sender=None, result=None, **_: succeeded(sender, result), **strong)
    signals.task_retry.connect(
        lambda sender=None, request=None, reason=None, **_: retried(request, reason, sender), **strong
    )
    signals.task_failure.connect(
        lambda sender=None, task_id="", exception=None, **_: failed(task_id, exception, sender), **strong
    )


class _Sender:
    def __init__(self, celery_app: Any, secret: str, queue: str, tries: int, clock: Clock) -> None:
        self._app, self._secret, self._queue, self._tries, self._clock = (
            celery_app,
            secret,
            queue,
            tries,
            clock,
        )

    def send(
        self, task: Any, task_id: str, status: str, *, result: Any = None, error: BaseException | None = None
    ) -> None:
        from celery.utils.log import get_logger

        body = json.dumps(self._report(task, task_id, status, result, error), ensure_ascii=False).encode()
        try:
            self._publish(task_id, body)
        except Exception as problem:  # an error of a signal's receiver must not fail the task
            get_logger("holdfast.celery").error(
                "the callback of %s (%s) was not sent: %s", task_id, status, type(problem).__name__
            )

    def _report(
        self, task: Any, task_id: str, status: str, result: Any, error: BaseException | None
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "id": task_id,
            "task": task.name,
            "status": status,
            "attempt": int(task.request.retries or 0) + 1,
            "worker": str(task.request.hostname or ""),
            "timestamp": self._clock.now().isoformat(timespec="milliseconds"),
        }
        if status == "completed":
            fields |= _result(result)
        if error is not None:
            fields["error"] = {"code": type(error).__name__, "message": str(error)[:2000]}
        return fields

    def _publish(self, task_id: str, body: bytes) -> None:
        from kombu import Queue

        queue = Queue(self._queue, durable=True, queue_arguments={"x-queue-type": "quorum"})
        with self._app.producer_or_acquire() as producer:
            producer.publish(
                body,
                exchange="",
                routing_key=self._queue,
                declare=[queue],
                headers=sign(self._secret, task_id, body),
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=2,
                message_id=task_id,
                mandatory=True,
                retry=True,
                retry_policy={"max_retries": self._tries, "interval_start": 0.2, "interval_step": 0.5},
            )


def _result(result: Any) -> dict[str, Any]:
    try:
        text = json.dumps(result, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return {"result": None, "omitted": "the result is not JSON"}
    if len(text) > LARGEST_RESULT:
        return {"result": None, "omitted": f"the result has more than {LARGEST_RESULT:,} characters"}
    return {"result": result}
