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
from systems.grading.messages import TASK, Buried, Callback, Request, Trouble
from systems.grading.settings import Settings
from systems.grading.tasks import PROVIDER, Grading, build
from systems.grading.topology import REQUESTS, queues
from systems.grading.worker import metrics
from systems.grading.worker.desk import Desk
from systems.grading.worker.ledger import Ledger
from systems.grading.worker.outgoing import NotSent, Outgoing
from systems.grading.worker.places import LedgerAway
from systems.grading.worker.provider import Provider

_WORKER = f"celery@{socket.gethostname()}:{os.getpid()}"
_local = threading.local()


class GradingCelery(Celery):  # type: ignore[misc]
    """Celery, and what the screening consumer needs of us."""

    @staticmethod
    def outgoing() -> Outgoing:
        return outgoing()

    @staticmethod
    def refused(record: Buried) -> None:
        tell_refused(record)


@cache
def settings() -> Settings:
    found = Settings.read(os.environ)
    if not found.callback_secrets:
        raise SystemExit(
            "worker: CALLBACK_SECRETS is not set; give it the secret that the main app verifies with"
        )
    return found


@cache
def ledger() -> Ledger:
    return Ledger(settings().ledger)


def outgoing() -> Outgoing:
    """One for each thread: a channel is not for two of them, and none should wait for another's retries."""
    if not hasattr(_local, "outgoing"):
        given = settings()
        _local.outgoing = Outgoing(
            given.broker_url, ledger(), tries=given.callback_tries, base_ms=given.callback_base_ms
        )
    found: Outgoing = _local.outgoing
    return found


@cache
def provider() -> Provider:
    return Provider(settings())


@cache
def main_app() -> Grading:
    """The main app's own declaration: the breaker of the provider is in its store, shared by all workers."""
    return build(settings())


def desk() -> Desk:
    return Desk(
        settings=settings(),
        ledger=ledger(),
        provider=provider(),
        outgoing=outgoing(),
        guard=lambda: main_app().app.dependency_call(PROVIDER),
        worker=_WORKER,
        chance=random.random,
        new_holder=lambda: f"{_WORKER}:{uuid.uuid4()}",
    )


def tell_refused(record: Buried) -> None:
    """A message that named a request of ours and was unfit: its submission need not wait for the deadline.

    Unless the request is known: then this was a bad copy, and what becomes of the good one is not for it to say.
    """
    try:
        callback = Callback(
            record.request_id,
            record.submission_id,
            "failed",
            0,
            _WORKER,
            record.timestamp,
            error=Trouble(record.failure_reason, record.last_error[:2_000]),
        )
        body = msgspec.json.encode(callback)
        msgspec.json.decode(body, type=Callback)
    except (ValueError, msgspec.ValidationError):
        return  # it names no request: there is nobody to tell
    told = ledger().refuse(record.request_id, body.decode())
    if told is None:
        return
    signed = holdfast_celery.sign(settings().callback_secrets[0], record.request_id, told.encode())
    outgoing().callback(told.encode(), signed, record.request_id)
    ledger().told(record.request_id)


app = GradingCelery("grading", set_as_current=False)
app.conf.update(
    broker_url=settings().broker_url,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_channel_error_retry=True,  # a broker that recovers may not know a queue yet: ask again
    broker_transport_options={"confirm_publish": True},
    accept_content=["json"],
    task_serializer="json",
    task_ignore_result=True,
    result_backend=None,
    task_acks_late=True,
    task_acks_on_failure_or_timeout=False,  # what fails unforeseen is rejected: to the dead letters, not away
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
    try:
        return desk().handle(msgspec.convert(request, Request))
    except (NotSent, LedgerAway) as error:
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
