"""The Celery app of the worker: `celery -A systems.grading.worker.app worker -P threads -c 4`."""

from __future__ import annotations

import os
import random
import socket
import threading
import uuid
from functools import cache
from typing import Any

import msgspec
from celery import Celery
from celery.exceptions import Reject
from celery.signals import worker_process_shutdown, worker_ready
from kombu import Exchange, Queue

from holdfast import celery as holdfast_celery
from systems.grading.messages import TASK, Callback, DeadLetter, Request, Trouble
from systems.grading.settings import Settings
from systems.grading.tasks import PROVIDER, Grading, build
from systems.grading.topology import REQUESTS, queues
from systems.grading.worker import metrics
from systems.grading.worker.handler import RequestHandler
from systems.grading.worker.ledger import Ledger
from systems.grading.worker.ledger_stores import LedgerUnavailable
from systems.grading.worker.provider import Provider
from systems.grading.worker.sender import NotSent, Sender

_WORKER = f"celery@{socket.gethostname()}:{os.getpid()}"
_local = threading.local()


class GradingCelery(Celery):  # type: ignore[misc]
    """The Celery app, with the functions that `ScreeningConsumer` calls."""

    @staticmethod
    def sender() -> Sender:
        """Return the sender of the calling thread."""
        return sender()

    @staticmethod
    def report_refused(letter: DeadLetter) -> None:
        """Report the request of a refused message as failed."""
        report_refused(letter)


@cache
def settings() -> Settings:
    """Return the settings. Exit if the callback secret is missing."""
    settings = Settings.read(os.environ)
    if not settings.callback_secrets:
        raise SystemExit(
            "worker: CALLBACK_SECRETS is not set; set it to the secret that the main app verifies with"
        )
    return settings


@cache
def ledger() -> Ledger:
    return Ledger(settings().ledger)


def sender() -> Sender:
    """Return the sender of this thread.

    Threads cannot share a channel, nor should they wait for each other's retries.
    """
    if not hasattr(_local, "sender"):
        config = settings()
        _local.sender = Sender(
            config.broker_url, ledger(), tries=config.callback_tries, base_ms=config.callback_base_ms
        )
    own: Sender = _local.sender
    return own


@cache
def provider() -> Provider:
    return Provider(settings())


@cache
def main_app() -> Grading:
    """Return the main app. All workers share the provider's breaker in its store."""
    return build(settings())


def handler() -> RequestHandler:
    """Return a handler for one delivery."""
    return RequestHandler(
        settings=settings(),
        ledger=ledger(),
        provider=provider(),
        sender=sender(),
        guard=lambda: main_app().app.breakers.guard(PROVIDER),
        worker=_WORKER,
        chance=random.random,
        new_holder=lambda: f"{_WORKER}:{uuid.uuid4()}",
    )


def report_refused(letter: DeadLetter) -> None:
    """Report the request of an invalid message as failed, before its submission reaches its deadline.

    Nothing is reported if the ledger knows the request. The message was then a bad copy, and the good one
    decides.
    """
    try:
        callback = Callback(
            letter.request_id,
            letter.submission_id,
            "failed",
            0,
            _WORKER,
            letter.timestamp,
            error=Trouble(letter.failure_reason, letter.last_error[:2_000]),
        )
        body = msgspec.json.encode(callback)
        msgspec.json.decode(body, type=Callback)
    except (ValueError, msgspec.ValidationError):
        return  # it names no request
    stored = ledger().refuse(letter.request_id, body.decode())
    if stored is None:
        return
    headers = holdfast_celery.sign(settings().callback_secrets[0], letter.request_id, stored.encode())
    sender().callback(stored.encode(), headers, letter.request_id)
    ledger().mark_reported(letter.request_id)


app = GradingCelery("grading", set_as_current=False)
app.conf.update(
    broker_url=settings().broker_url,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_channel_error_retry=True,  # a recovering broker may not have a queue yet, so try again
    broker_transport_options={"confirm_publish": True},
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    result_backend=None,
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,  # an unexpected failure rejects the message to the dead letters
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_consumer="systems.grading.worker.screening:ScreeningConsumer",
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    worker_detect_quorum_queues=True,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    task_create_missing_queues=False,
    task_default_queue=REQUESTS,
    task_queues=[
        Queue(REQUESTS, Exchange(""), routing_key=REQUESTS, durable=True, queue_arguments=queues()[REQUESTS])
    ],
)


@app.task(name=TASK, bind=True, acks_late=True, reject_on_worker_lost=True, ignore_result=True)  # type: ignore[untyped-decorator]
def grade(self: Any, request: dict[str, Any]) -> str:
    """Handle one request. The broker delivers it again if the broker or the ledger fails meanwhile."""
    try:
        return handler().handle(msgspec.convert(request, Request))
    except (NotSent, LedgerUnavailable) as error:
        raise Reject(str(error), requeue=True) from error


@worker_ready.connect  # type: ignore[untyped-decorator]
def show_metrics(**_: Any) -> None:
    if settings().worker_metrics_port:
        metrics.serve(main_app().app, ledger(), settings().worker_metrics_port)


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def close(**_: Any) -> None:
    provider().close()
    ledger().close()
    main_app().app.sync.close()
