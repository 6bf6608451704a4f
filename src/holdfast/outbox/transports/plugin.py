"""A target that a plug-in provides (E19). It is not trusted: whatever it does, no message is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.outbox.model import Delivered, Delivery, Message, Undelivered
from holdfast.outbox.transport import Transport
from holdfast.outbox.transports.targets import PluginTarget
from holdfast.tasks import plugins


class PluginTransport:
    """Passes messages to the transport of the plug-in for this scheme.

    One that fails counts as having delivered nothing.
    """

    def __init__(self, address: str, topics: Mapping[str, PluginTarget]) -> None:
        self._address = address
        self._options = {name: dict(target.options) for name, target in topics.items()}
        self._plugin = plugins.transport(address.partition("://")[0])
        self._made: Transport | None = None

    async def open(self) -> None:
        """Make and open the plug-in's transport. A failure is logged, and `deliver` tries again."""
        try:
            await self._ready()
        except (Exception, SystemExit) as error:
            self._plugin.failed(error)

    async def _ready(self) -> Transport:
        if self._made is None:
            made: Transport = self._plugin.make(self._address, self._options)
            await made.open()
            self._made = made
        return self._made

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        """Return the plug-in's answer for each message, or `Undelivered` for all if it fails."""
        try:
            transport = await self._ready()
            return _checked_answers(await transport.deliver(messages), len(messages))
        except (Exception, SystemExit) as error:
            self._plugin.failed(error)
            why = f"the transport plug-in {self._plugin.name} failed: {type(error).__name__}"
            return [Undelivered(why, away=self._made is None)] * len(messages)

    async def close(self) -> None:
        """Close the plug-in's transport, if it was opened. A failure is logged."""
        made, self._made = self._made, None
        try:
            if made is not None:
                await made.close()
        except (Exception, SystemExit) as error:
            self._plugin.failed(error)


def _checked_answers(answers: Any, count: int) -> list[Delivery]:
    """Return *answers* as a list. Raise `TypeError` unless there is one valid answer per message."""
    deliveries = list(answers)
    if len(deliveries) != count or not all(
        isinstance(answer, (Delivered, Undelivered)) for answer in deliveries
    ):
        raise TypeError(
            f"it answered {deliveries!r:.60}; it must answer Delivered() or Undelivered(…) for each message"
        )
    return deliveries
