"""What an app can do with topics: say where their messages go, and bring them there."""

from __future__ import annotations

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from holdfast.domain.duration import Duration
from holdfast.domain.outbox import LONGEST_NAME, TopicPolicy
from holdfast.engine.calling import Calls
from holdfast.engine.engine import Engine
from holdfast.engine.settings import Settings
from holdfast.engine.transport import Topic, shown
from holdfast.errors import UsageError
from holdfast.relay.relay import Relay
from holdfast.relay.route import Route
from holdfast.transports.targets import read_target
from holdfast.wiring import make_transport


class Relaying(ABC):
    """Mixed into `Holdfast`."""

    settings: Settings
    topics: dict[str, Topic]

    @abstractmethod
    async def engine(self) -> Engine: ...

    @abstractmethod
    def _calls(self) -> Calls: ...

    def topic(
        self,
        name: str,
        to: str | None = None,
        *,
        base: Duration = "1s",
        cap: Duration = "1m",
        max_tries: int | None = None,
        strict: bool = False,
        **target: Any,
    ) -> Topic:
        """Where messages of this name go: `app.topic("grading.request", to="amqp://…", exchange="grading")`.

        *to* is amqp://, redis://, nats://, https:// or memory://; by default `HOLDFAST_BROKER`. A message that was refused
        is tried again after *base*, doubled each time up to *cap*, and parked after *max_tries* (None: never). *strict*: a
        parked message holds up those of its key behind it. What else can be said depends on the kind of target
        (docs/how-to/publish-messages.md).
        """
        if not 0 < len(name) <= LONGEST_NAME:
            raise UsageError(f"a topic's name has 1 to {LONGEST_NAME} characters, not {len(name)}")
        if name in self.topics:
            raise UsageError(f"there is a topic named {name!r} already")
        address = to or self.settings.broker
        if address is None:
            raise UsageError(f"topic {name} has no target: say to='amqp://…', or set HOLDFAST_BROKER")
        policy = TopicPolicy(base=base, cap=cap, max_tries=max_tries, strict=strict)
        found = Topic(name=name, to=address, policy=policy, target=read_target(name, address, target))
        self.topics[name] = found
        return found

    def make_relay(self, engine: Engine) -> Relay:
        """A relay with one route for each address; topics with one address share its connection."""
        if not self.topics:
            raise UsageError(
                "this app has no topics, so there is nothing to relay; declare one with app.topic(…)"
            )
        by_address: dict[str, list[Topic]] = {}
        for topic in self.topics.values():
            by_address.setdefault(topic.to, []).append(topic)
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
            )
            for address, topics in by_address.items()
        ]
        return Relay(routes, self.topics, engine.store, engine.clock, self.settings.outbox_stale)

    async def run_relay(self, *, until_idle: bool = False, handle_signals: bool = False) -> None:
        """Deliver messages until cancelled or told to stop. *until_idle* returns when none waits any more."""
        relay = self.make_relay(await self.engine())
        async with AsyncExitStack() as stack:
            if handle_signals:
                running = asyncio.current_task()
                assert running is not None
                _stop_on_signals(_twice(relay.stop, running.cancel), stack)
            await relay.run(until_idle=until_idle)


def _twice(first: Callable[[], object], then: Callable[[], object]) -> Callable[[], None]:
    told: list[None] = []

    def act() -> None:
        (then if told else first)()
        told.append(None)

    return act


def _stop_on_signals(stop: Callable[[], None], stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
        stack.callback(loop.remove_signal_handler, number)
