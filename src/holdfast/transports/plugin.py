"""A target that a plug-in brings (E19). It is not trusted: whatever it does, no message is lost to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.outbox import Delivered, Delivery, Message, Undelivered
from holdfast.engine import plugins
from holdfast.engine.transport import Transport
from holdfast.transports.targets import PluginTarget


class PluginTransport:
    """Passes messages on to the transport that the plug-in of this scheme makes; one that fails has delivered nothing."""

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
        """Return what became of each message: what the plug-in answers, `Undelivered` for all of them where it fails."""
        try:
            transport = await self._ready()
            return _read(await transport.deliver(messages), len(messages))
        except (Exception, SystemExit) as error:
            self._plugin.failed(error)
            why = f"the transport plug-in {self._plugin.name} failed: {type(error).__name__}"
            return [Undelivered(why, away=self._made is None)] * len(messages)

    async def close(self) -> None:
        """Close the plug-in's transport, where there is one. A failure is logged."""
        made, self._made = self._made, None
        try:
            if made is not None:
                await made.close()
        except (Exception, SystemExit) as error:
            self._plugin.failed(error)


def _read(answers: Any, count: int) -> list[Delivery]:
    """Return *answers* as a list; raise for anything but one answer for each message."""
    found = list(answers)
    if len(found) != count or not all(isinstance(answer, (Delivered, Undelivered)) for answer in found):
        raise TypeError(
            f"it answered {found!r:.60}; it must answer Delivered() or Undelivered(…) for each message"
        )
    return found
