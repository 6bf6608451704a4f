"""The port of the relay's targets, and the topics that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.outbox.model import Delivery, Message, TopicPolicy

JSON = "application/json"


class Transport(Protocol):
    """A target of messages: a broker, a stream or an address.

    If the target is unavailable, the transport raises nothing and loses nothing: it returns `Undelivered` for each message
    that was not confirmed, and tries to connect again for the next call. It returns `Delivered` only after the target has
    confirmed the message. Calls may overlap. A call that is cancelled leaves the transport usable.
    """

    async def open(self) -> None:
        """Prepare as far as is possible without the target, which may be unavailable."""

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        """Send messages in this order, confirm them together, and return the outcome of each, in the same order."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Where the messages of a topic go. *to* is an address with its password and is never shown."""

    name: str
    to: str = field(repr=False)
    policy: TopicPolicy
    target: Any = field(repr=False)  #: the options of its kind of target (`transports.targets`)


def content_type(message: Message) -> str:
    return _plain(message.headers).get("content-type", JSON)


def own_headers(message: Message) -> dict[str, str]:
    """Return the headers without the content type, which every target sends in its own way."""
    return {name: value for name, value in message.headers.items() if name.lower() != "content-type"}


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
