"""What a worker sends: callbacks, dead letters, and requests that are put off. Each is confirmed by the broker, or an error.

Tries are bounded (G6): when the broker does not take a message after all of them, an alarm is raised and `NotSent` says so;
the request that it was about is then not acknowledged, and comes again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import AMQPError
from kombu import Connection, Producer, Queue
from kombu.exceptions import KombuError

from holdfast.logs import Log
from systems.grading.topology import CALLBACKS, DEAD, queues, wait_queue
from systems.grading.worker.ledger import Ledger

log = Log("grading.worker")


class NotSent(Exception):
    """The broker did not take it."""


class Outgoing:
    def __init__(
        self,
        url: str,
        ledger: Ledger,
        *,
        tries: int,
        base_ms: int,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self._ledger, self._sleep = url, ledger, sleep
        self._tries, self._base = tries, base_ms / 1000
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        self._returned: list[Any] = []  #: messages that the broker could put nowhere
        self._lock = threading.Lock()  # a channel is not for two threads at once

    def callback(self, body: bytes, headers: dict[str, str], message_id: str) -> None:
        self._send("callback", CALLBACKS, queues()[CALLBACKS], body, headers, message_id)

    def bury(self, body: bytes, message_id: str) -> None:
        self._send("dead_letter", DEAD, queues()[DEAD], body, {}, message_id)

    def put_off(self, body: bytes, headers: dict[str, Any], message_id: str, delay_ms: float) -> None:
        """The same request once more, after *delay_ms*."""
        name, arguments = wait_queue(delay_ms)
        self._send("request", name, arguments, body, headers, message_id)

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _send(
        self,
        what: str,
        queue: str,
        arguments: dict[str, Any],
        body: bytes,
        headers: dict[str, Any],
        name: str,
    ) -> None:
        for tried in range(self._tries):
            if tried:
                self._sleep(min(self._base * (1 << min(tried - 1, 10)), 30.0))
            try:
                with self._lock:
                    self._publish(queue, arguments, body, headers, name)
                return
            except (KombuError, AMQPError, OSError) as error:
                reason = type(error).__name__
                log.warning(
                    "message.not_confirmed", kind=what, message_id=name, tries=tried + 1, reason=reason
                )
                with self._lock:
                    self._drop()
        self._ledger.raise_alarm(f"{what}_not_sent", f"the broker did not take {name} in {self._tries} tries")
        log.error(
            "alarm.raised",
            kind=what,
            message_id=name,
            tries=self._tries,
            hint="is the broker up? the request comes again, and this with it",
        )
        raise NotSent(f"the broker did not take the {what} of {name}")

    def _publish(
        self, queue: str, arguments: dict[str, Any], body: bytes, headers: dict[str, Any], name: str
    ) -> None:
        if self._connection is None or self._producer is None:
            self._connection = Connection(
                self._url,
                connect_timeout=5,
                transport_options={
                    "confirm_publish": True,
                    "read_timeout": 10,
                    "write_timeout": 10,
                    # It tries once: the tries are counted here.
                    "max_retries": 1,
                    "interval_start": 0,
                    "interval_step": 0,
                },
            )
            self._producer = self._connection.Producer(auto_declare=False, on_return=self._note_return)
        channel = self._connection.default_channel
        # Declared each time: it is there then, whatever was deleted, and a queue of waits does not go away.
        Queue(queue, durable=True, queue_arguments=arguments, channel=channel).declare()
        self._returned.clear()
        self._producer.publish(
            body,
            routing_key=queue,
            exchange="",
            headers=headers,
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=2,
            mandatory=True,
            message_id=name,
            correlation_id=name,
            confirm_timeout=10,
        )
        if self._returned:
            raise KombuError("the broker has no such queue")

    def _note_return(self, *news: Any) -> None:
        self._returned.append(news)

    def _drop(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            except Exception:  # it is broken: that is why it goes
                log.debug("connection.close_failed")
