"""The verbs of messages for others: publish them in one transaction with anything else, and see to those that wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from holdfast.domain.outbox import Lag, Message
from holdfast.engine.engine import Engine


class OutboxVerbs(ABC):
    @abstractmethod
    async def engine(self) -> Engine:
        """The engine of the running event loop."""

    def current_trace(self) -> str | None:
        """The traceparent that messages carry; None: none."""
        return None

    async def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        id: str | None = None,  # noqa: A002 - as `enqueue` calls it
        connection: Any = None,
    ) -> str:
        """Tell others: the message's id, once it is stored. A relay delivers it at least once, those of one *key* in their
        order. With a *connection* it is part of the transaction that is open there: both are there, or neither is.

        *payload* is anything that can be JSON, or bytes as they are. One whose *id* is known already is not stored twice.
        """
        engine = await self.engine()
        message = engine.new_message(
            topic, payload, key=key, headers=headers, message_id=id, trace=self.current_trace()
        )
        await engine.publish([message], connection)
        return message.id

    async def messages(
        self,
        *,
        topic: str | None = None,
        state: str | None = None,
        key: str | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Message]:
        """By number, from the one behind *after* on; *state* is "waiting", "published" or "parked"."""
        return await (await self.engine()).messages(
            topic=topic, state=state, key=key, after=after, limit=limit
        )

    async def message(self, message_id: str) -> Message:
        """The message as it is now. `UnknownMessage` when there is none, or none any more."""
        return await (await self.engine()).message(message_id)

    async def replay_messages(self, topic: str, *, first: int = 0, last: int | None = None) -> int:
        """Deliver published and parked messages of a topic once more, by their numbers (*last* included); how many. Their ids
        are the same, so that a receiver may pass by what it has seen."""
        return await (await self.engine()).replay_messages(topic, first=first, last=last)

    async def replay_message(self, message_id: str) -> None:
        """Deliver one that is published or parked once more. `Conflict` when it waits already."""
        await (await self.engine()).replay_message(message_id)

    async def park_message(self, message_id: str, *, reason: str) -> None:
        """Take a waiting message out of line until it is replayed. `Conflict` when it does not wait."""
        await (await self.engine()).park_message(message_id, reason=reason)

    async def discard_message(self, message_id: str, *, reason: str, by: str = "api") -> None:
        """Give a parked message up, for good: it is never delivered, and an event says whose decision that was and why.
        `Conflict` when it is not parked."""
        await (await self.engine()).discard_message(message_id, reason=reason, by=by)

    async def message_lags(self) -> list[Lag]:
        """How every topic stands in which anything waits or is parked."""
        return await (await self.engine()).message_lags()
