"""The port of the relay's targets, and the topics that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.domain.outbox import Delivery, Message, TopicPolicy

JSON = "application/json"


class Transport(Protocol):
    """A target of messages: a broker, a stream, an address.

    One that is away raises nothing and loses nothing: it answers `Undelivered` for what it could not confirm, and tries to
    be there again by the next call. `Delivered` is said only after the target's own positive confirm. Calls may overlap;
    one that is cancelled leaves the transport usable.
    """

    async def open(self) -> None:
        """Get ready, as far as is possible without the target: it may be away."""

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        """What became of each, in the same order. They are sent in this order and confirmed together."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Where the messages of one name go. *to* is an address with its password: it is shown to nobody."""

    name: str
    to: str = field(repr=False)
    policy: TopicPolicy
    target: Any = field(repr=False)  #: what its kind wants to know beside the address (`transports.targets`)


def content_type(message: Message) -> str:
    return _plain(message.headers).get("content-type", JSON)


def own_headers(message: Message) -> dict[str, str]:
    """The headers without the content type, which every target has its own place for."""
    return {name: value for name, value in message.headers.items() if name.lower() != "content-type"}


def _plain(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
