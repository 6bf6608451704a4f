"""What an app can do with the topics that it has declared: bring their messages where they go."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack

from holdfast.domain.urls import shown
from holdfast.engine.engine import Engine
from holdfast.engine.outbound_calls import OutboundCalls
from holdfast.engine.settings import Settings
from holdfast.engine.transport import Topic
from holdfast.errors import UsageError
from holdfast.relay.pauses import Pauses
from holdfast.relay.relay import Relay
from holdfast.relay.route import DELIVER_WITHIN, Route
from holdfast.signals import stop_on_signals
from holdfast.wiring import make_transport


class Relaying(ABC):
    """Mixed into `Holdfast`."""

    settings: Settings
    topics: dict[str, Topic]

    @abstractmethod
    async def engine(self) -> Engine: ...

    @abstractmethod
    def _calls(self) -> OutboundCalls: ...

    def make_relay(self, engine: Engine) -> Relay:
        """A relay with one route for each address; topics with one address share its connection."""
        if not self.topics:
            raise UsageError(
                "this app has no topics, so there is nothing to relay; declare one with app.topic(…)"
            )
        by_address: dict[str, list[Topic]] = {}
        for topic in self.topics.values():
            by_address.setdefault(topic.to, []).append(topic)
        pauses = Pauses(engine.store, engine.clock)
        routes = [
            Route(
                shown(address),
                make_transport(
                    address, {topic.name: topic.target for topic in topics}, engine.clock, self._calls
                ),
                {topic.name: topic.policy for topic in topics},
                engine.store,
                engine.clock,
                engine.rng,
                batch=self.settings.outbox_batch,
                poll=self.settings.outbox_poll,
                pauses=pauses,
            )
            for address, topics in by_address.items()
        ]
        return Relay(routes, self.topics, engine.store, engine.clock, self.settings.outbox_stale)

    async def run_relay(self, *, until_idle: bool = False, handle_signals: bool = False) -> None:
        """Deliver messages until cancelled or told to stop. *until_idle* returns when none waits any more."""
        engine = await self.engine()
        relay = self.make_relay(engine)
        async with AsyncExitStack() as stack:
            if handle_signals:
                running = asyncio.current_task()
                assert running is not None
                stop = _twice(relay.stop, running.cancel)
                stop_on_signals(stop, stack, engine.clock, DELIVER_WITHIN)
            await relay.run(until_idle=until_idle)


def _twice(first: Callable[[], object], then: Callable[[], object]) -> Callable[[], None]:
    told: list[None] = []

    def act() -> None:
        (then if told else first)()
        told.append(None)

    return act
