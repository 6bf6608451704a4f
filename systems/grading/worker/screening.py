"""Looks at every message before Celery does. What is no request of ours is buried with the reason, and never comes again.

Celery acknowledges what it cannot decode, which loses it, and dies of some shapes (a body that is a number, a missing id),
after which the broker delivers them again. So only what is sure to reach the task is let through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from celery.worker.consumer import Consumer
from kombu.exceptions import OperationalError

from holdfast.logs import Log
from systems.grading.messages import LARGEST_MESSAGE, TASK, Buried, Request, split
from systems.grading.worker.outgoing import NotSent, Outgoing
from systems.grading.worker.places import LedgerAway

log = Log("grading.worker")
#: kombu reports a lost connection here by `critical` with positional arguments, which `Log` does not take.
_kombu_log = logging.getLogger("grading.worker")

_SHOWN = 2_000
_AGAIN_SEC, _LONGEST_SEC = 0.5, 5.0


class Unfit(Exception):
    """This message is no request; the words say why."""


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    request: Request


def screen(content_type: str, headers: Any, body: bytes) -> Request:
    """The request in a message of Celery's protocol; `Unfit` for everything else."""
    if len(body) > LARGEST_MESSAGE:
        raise Unfit(f"it has {len(body):,} bytes; {LARGEST_MESSAGE:,} are allowed")
    if content_type != "application/json":
        raise Unfit(f"its content type is {content_type[:60]!r}; only application/json is read")
    if not isinstance(headers, dict) or headers.get("task") != TASK:
        raise Unfit(f"it is not a message for {TASK}")
    try:
        body.decode()
        _, arguments, _ = msgspec.json.decode(body, type=tuple[tuple[()], _Arguments, dict[str, Any]])
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Unfit(f"it is not a request: {error}"[:500]) from None
    request: Request = arguments.request
    if headers.get("id") != request.request_id:
        raise Unfit("its id is not that of its request")
    if headers.keys() & {"eta", "expires", "timelimit", "chord", "group"} and any(
        headers.get(name) for name in ("eta", "expires", "chord", "group")
    ):
        raise Unfit("it asks Celery for more than to be done")
    return request


def record_of(headers: Any, body: bytes, reason: Unfit) -> Buried:
    """What is kept of a message that is no request (G4): ids as far as it tells them, and what it looked like."""
    given = headers if isinstance(headers, dict) else {}
    name = str(given.get("id") or "")[:100]
    try:
        submission, _ = split(name)
    except ValueError:
        name, submission = _ids_in(body)
    shown = body[:_SHOWN].decode(errors="replace")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return Buried(name, submission, "INVALID_MESSAGE", 0, str(reason), now, shown)


def _ids_in(body: bytes) -> tuple[str, str]:
    try:
        [_, arguments, *_] = msgspec.json.decode(body)
        request, submission = arguments["request"]["requestId"], arguments["request"].get("submissionId", "")
        return str(request)[:100], str(submission)[:100]
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


#: What Celery does at each connection and we do not need. A connection that is cut meanwhile would end the worker.
_WITHOUT = {"without_mingle": True, "without_gossip": True, "without_heartbeat": True, "task_events": False}


class ScreeningConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, with the screen before it. Its app has an `outgoing` to bury through.

    It survives a broker that comes and goes: it asks the broker for nothing but its requests, and every error of a
    connection makes it connect again.
    """

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        default_steps = tuple(
            step for step in Consumer.Blueprint.default_steps if "delayed_delivery" not in step
        )

    def __init__(self, *arguments: Any, worker_options: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, worker_options={**(worker_options or {}), **_WITHOUT}, **options)
        # What kombu raises for an error of the connection inside its own retries; Celery does not list it.
        self.connection_errors: Any = (*self.conninfo.connection_errors, OperationalError)

    def ensure_connected(self, conn: Any) -> Any:
        """Wait briefly between tries: Celery waits up to half a minute, which is too long for a grade."""
        conn.ensure_connection = partial(
            conn.ensure_connection,
            interval_start=_AGAIN_SEC,
            interval_step=_AGAIN_SEC,
            interval_max=_LONGEST_SEC,
        )
        return super().ensure_connected(conn)

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        receive = super().create_task_handler(*arguments, **options)
        outgoing: Callable[[], Outgoing] = self.app.outgoing
        refused: Callable[[Buried], None] = self.app.refused

        def look(message: Any) -> None:
            body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
            try:
                screen(str(message.content_type or ""), message.headers, body)
            except Unfit as unfit:
                record = record_of(message.headers, body, unfit)
                log.warning("message.refused", request_id=record.request_id, reason=str(unfit))
                try:
                    outgoing().bury(msgspec.json.encode(record), record.request_id or "unknown")
                    refused(record)
                except (NotSent, LedgerAway):
                    message.reject_log_error(
                        _kombu_log, (OSError,)
                    )  # to the dead letters all the same, as it is
                else:
                    message.ack_log_error(_kombu_log, (OSError,))
                return
            receive(message)

        return look
