"""Check every message before Celery reads it. An invalid one becomes a dead letter with the reason.

Celery acknowledges a message that it cannot decode, which loses it. It crashes on some others (a body that is
a number, a missing id), and the broker then delivers them again. So only a message that is sure to reach the
task passes.
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

from holdfast.logging import Log
from systems.grading.messages import LARGEST_MESSAGE, TASK, DeadLetter, Request, parse_request_id
from systems.grading.worker.ledger_stores import LedgerUnavailable
from systems.grading.worker.sender import NotSent, Sender

log = Log("grading.worker")
#: kombu reports a lost connection here by `critical` with positional arguments, which `Log` does not take.
_kombu_log = logging.getLogger("grading.worker")

_SHOWN = 2_000
_AGAIN_SEC, _LONGEST_SEC = 0.5, 5.0


class Unfit(Exception):
    """The message is not a valid request. The exception's message says why."""


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    request: Request


def screen(content_type: str, headers: Any, body: bytes) -> Request:
    """Return the request in a message of Celery's protocol. Raise `Unfit` for any other message."""
    if len(body) > LARGEST_MESSAGE:
        raise Unfit(f"it has {len(body):,} bytes; at most {LARGEST_MESSAGE:,} are allowed")
    if content_type != "application/json":
        raise Unfit(f"its content type is {content_type[:60]!r}; only application/json is accepted")
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
        raise Unfit("it uses Celery features (eta, expires, chord or group) that are not allowed")
    return request


def record_of(headers: Any, body: bytes, reason: Unfit) -> DeadLetter:
    """Return the dead letter of an invalid message (G4), with its ids and the beginning of its body."""
    fields = headers if isinstance(headers, dict) else {}
    name = str(fields.get("id") or "")[:100]
    try:
        submission, _ = parse_request_id(name)
    except ValueError:
        name, submission = _ids_in(body)
    shown = body[:_SHOWN].decode(errors="replace")
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return DeadLetter(name, submission, "INVALID_MESSAGE", 0, str(reason), now, shown)


def _ids_in(body: bytes) -> tuple[str, str]:
    try:
        [_, arguments, *_] = msgspec.json.decode(body)
        request, submission = arguments["request"]["requestId"], arguments["request"].get("submissionId", "")
        return str(request)[:100], str(submission)[:100]
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


#: Switches off what Celery does at each connection and grading does not need. A cut meanwhile would end the
#: worker.
_WITHOUT = {"without_mingle": True, "without_gossip": True, "without_heartbeat": True, "task_events": False}


class ScreeningConsumer(Consumer):  # type: ignore[misc]
    """Celery's consumer, which checks each message first. Its app must have `sender` and `report_refused`.

    It survives an unreliable broker: it only consumes requests, and reconnects after every connection error.
    """

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        default_steps = tuple(
            step for step in Consumer.Blueprint.default_steps if "delayed_delivery" not in step
        )

    def __init__(self, *arguments: Any, worker_options: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, worker_options={**(worker_options or {}), **_WITHOUT}, **options)
        # kombu raises this for a connection error inside its own retries; Celery does not list it.
        self.connection_errors: Any = (*self.conninfo.connection_errors, OperationalError)

    def ensure_connected(self, conn: Any) -> Any:
        """Connect with short waits between tries.

        Celery's own wait is up to half a minute, too long for a grade.
        """
        conn.ensure_connection = partial(
            conn.ensure_connection,
            interval_start=_AGAIN_SEC,
            interval_step=_AGAIN_SEC,
            interval_max=_LONGEST_SEC,
        )
        return super().ensure_connected(conn)

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        """Return a handler that passes valid messages to Celery's own, and dead-letters the others."""
        receive = super().create_task_handler(*arguments, **options)
        sender: Callable[[], Sender] = self.app.sender
        report_refused: Callable[[DeadLetter], None] = self.app.report_refused

        def check(message: Any) -> None:
            body = message.body.encode() if isinstance(message.body, str) else bytes(message.body)
            try:
                screen(str(message.content_type or ""), message.headers, body)
            except Unfit as unfit:
                record = record_of(message.headers, body, unfit)
                log.warning("message.refused", request_id=record.request_id, reason=str(unfit))
                try:
                    sender().dead_letter(msgspec.json.encode(record), record.request_id or "unknown")
                    report_refused(record)
                except (NotSent, LedgerUnavailable):
                    # The broker dead-letters the original message instead.
                    message.reject_log_error(_kombu_log, (OSError,))
                else:
                    message.ack_log_error(_kombu_log, (OSError,))
                return
            receive(message)

        return check
