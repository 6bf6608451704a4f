"""An HTTP address: every message is one POST, signed by Standard Webhooks if the topic has a secret.

| response | outcome |
|---|---|
| 2xx | delivered |
| 400, 410, 413, 415, 422 | parked: another try would not help |
| any other | tried again, not before its Retry-After |
| none | tried again soon; this never parks a message |

The guarded client refuses addresses that must not be called. Only the status and Retry-After of a response
are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.errors import TargetNotAllowed
from holdfast.jobs.machine import Clock
from holdfast.outbox.model import Delivered, Delivery, Message, Undelivered
from holdfast.outbox.transports.headers import as_lines
from holdfast.outbox.transports.targets import WebTarget
from holdfast.resilience.classify import parse_retry_after
from holdfast.values.urls import shown

AT_ONCE = 8
PERMANENT_STATUSES = frozenset({400, 410, 413, 415, 422})

#: Returns the headers that sign a message, given the secrets, its id, the time and its body.
Sign = Callable[[Sequence[str], str, datetime, bytes], Mapping[str, str]]


class WebhookTransport:
    """Sends the messages of *topics* to *address*."""

    def __init__(
        self, address: str, topics: Mapping[str, WebTarget], clock: Clock, calls: OutboundCalls, sign: Sign
    ) -> None:
        self._address, self._topics = address, topics
        self._clock, self._calls, self._sign = clock, calls, sign
        self._where = shown(address)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        return list(await asyncio.gather(*(self._post(message) for message in messages)))

    async def _post(self, message: Message) -> Delivery:
        headers = as_lines(message)
        if isinstance(headers, Undelivered):
            return headers
        async with self._slots:
            try:
                answer = await self._calls.call(
                    "POST",
                    self._address,
                    body=message.body,
                    headers={**headers, **self._webhook_headers(message, headers["holdfast-id"])},
                    most=0,
                )
            except TargetNotAllowed as error:
                return Undelivered(f"{self._where}: {error}")
            except TimeoutError:
                return Undelivered(f"{self._where} did not answer in time", away=True)
            except ConnectionError:
                return Undelivered(f"{self._where} cannot be reached", away=True)
        if 200 <= answer.status < 300:
            return Delivered()
        return Undelivered(
            f"{self._where} answered {answer.status}",
            lasting=answer.status in PERMANENT_STATUSES,
            after=parse_retry_after(answer.headers.get("retry-after"), self._clock.now()),
        )

    def _webhook_headers(self, message: Message, message_id: str) -> Mapping[str, str]:
        secret, now = self._topics[message.topic].secret, self._clock.now()
        headers = {"webhook-id": message_id, "holdfast-topic": quote(message.topic, safe="/:")}
        return {**headers, **(self._sign([secret], message_id, now, message.body) if secret else {})}
