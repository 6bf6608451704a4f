"""An address: every message is one POST, signed by Standard Webhooks where the topic has a secret.

| answer | what becomes of it |
|---|---|
| 2xx | delivered |
| 400, 410, 413, 415, 422 | parked: no further try will help |
| anything else | tried again, not before its Retry-After |
| none | tried again in a moment, whatever the message is |

Only what the guarded client may call is called. Of an answer nothing but its status and Retry-After is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import quote

from holdfast.domain.classify import parse_retry_after
from holdfast.domain.outbox import Delivered, Delivery, Message, Undelivered
from holdfast.domain.urls import shown
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.ports import Clock
from holdfast.errors import TargetNotAllowed
from holdfast.transports.headers import as_lines
from holdfast.transports.targets import WebTarget

AT_ONCE = 8
HOPELESS = frozenset({400, 410, 413, 415, 422})

#: Secrets, the message's id, now, its body: the headers that sign it.
Sign = Callable[[Sequence[str], str, datetime, bytes], Mapping[str, str]]


class WebhookTransport:
    def __init__(
        self, address: str, topics: Mapping[str, WebTarget], clock: Clock, calls: OutboundCalls, sign: Sign
    ) -> None:
        self._address, self._topics = address, topics
        self._clock, self._calls, self._sign = clock, calls, sign
        self._where = shown(address)
        self._places = asyncio.Semaphore(AT_ONCE)

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
        async with self._places:
            try:
                answer = await self._calls.call(
                    "POST",
                    self._address,
                    body=message.body,
                    headers={**headers, **self._signed(message, headers["holdfast-id"])},
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
            lasting=answer.status in HOPELESS,
            after=parse_retry_after(answer.headers.get("retry-after"), self._clock.now()),
        )

    def _signed(self, message: Message, message_id: str) -> Mapping[str, str]:
        secret, now = self._topics[message.topic].secret, self._clock.now()
        told = {"webhook-id": message_id, "holdfast-topic": quote(message.topic, safe="/:")}
        return {**told, **(self._sign([secret], message_id, now, message.body) if secret else {})}
