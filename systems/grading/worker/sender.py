"""Send callbacks, dead letters and put-off requests to the broker, which confirms each.

The number of tries is limited (G6). If the broker does not take a message, the sender records an alarm and
raises `NotSent`. The request is then not acknowledged, so the broker delivers it again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from amqp.exceptions import AMQPError
from kombu import Connection, Producer, Queue
from kombu.exceptions import KombuError

from holdfast.logging import Log
from systems.grading.topology import CALLBACKS, DEAD, queues, wait_queue
from systems.grading.worker.ledger import Ledger

log = Log("grading.worker")


class NotSent(Exception):
    """The broker did not take a message, after all tries."""


class Sender:
    """Sends messages over one connection, which it opens again when it is lost."""

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
        self._returned: list[Any] = []  #: messages that the broker could not route
        self._lock = threading.Lock()  # two threads must not use a channel at the same time

    def callback(self, body: bytes, headers: dict[str, str], message_id: str) -> None:
        """Send a signed callback to the main app."""
        self._send("callback", CALLBACKS, queues()[CALLBACKS], body, headers, message_id)

    def dead_letter(self, body: bytes, message_id: str) -> None:
        """Send a dead letter."""
        self._send("dead_letter", DEAD, queues()[DEAD], body, {}, message_id)

    def put_off(self, body: bytes, headers: dict[str, Any], message_id: str, delay_ms: float) -> None:
        """Send a request to a wait queue, from which it returns after *delay_ms*."""
        name, arguments = wait_queue(delay_ms)
        self._send("request", name, arguments, body, headers, message_id)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _send(
        self,
        kind: str,
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
                    "message.not_confirmed", kind=kind, message_id=name, tries=tried + 1, reason=reason
                )
                with self._lock:
                    self._drop()
        self._ledger.raise_alarm(f"{kind}_not_sent", f"the broker did not take {name} in {self._tries} tries")
        log.error(
            "alarm.raised",
            kind=kind,
            message_id=name,
            tries=self._tries,
            hint="check that the broker runs; the request is delivered again, and this message sent again",
        )
        raise NotSent(f"the broker did not take the {kind} of {name}")

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
                    # kombu tries once, since `_send` counts the tries.
                    "max_retries": 1,
                    "interval_start": 0,
                    "interval_step": 0,
                },
            )
            self._producer = self._connection.Producer(auto_declare=False, on_return=self._record_return)
        channel = self._connection.default_channel
        # Declared each time, in case it was deleted, and so that a wait queue does not expire.
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

    def _record_return(self, *details: Any) -> None:
        self._returned.append(details)

    def _drop(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            try:
                connection.release()
            except Exception:  # expected: it is dropped because it is broken
                log.debug("connection.close_failed")
