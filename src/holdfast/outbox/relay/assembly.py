"""Build a relay: one route for each address, so that topics with one address share its connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.errors import UsageError
from holdfast.jobs.machine import Clock
from holdfast.outbox.relay.pauses import Pauses
from holdfast.outbox.relay.relay import Relay
from holdfast.outbox.relay.route import Route
from holdfast.outbox.transport import Topic, Transport
from holdfast.values.urls import shown

#: Returns the transport for an address, with the options of each topic that goes there.
MakeTransport = Callable[[str, Mapping[str, Any], Clock], Transport]


def make_relay(engine: Engine, topics: Mapping[str, Topic], make_transport: MakeTransport) -> Relay:
    """Return a relay for *topics*. Raises `UsageError` when there are none."""
    if not topics:
        raise UsageError(
            "this app has no topics, so there is nothing to relay; declare one with app.topic(…)"
        )
    by_address: dict[str, list[Topic]] = {}
    for topic in topics.values():
        by_address.setdefault(topic.to, []).append(topic)
    pauses, settings = Pauses(engine.store, engine.clock), engine.settings
    routes = [
        Route(
            shown(address),
            make_transport(address, {topic.name: topic.target for topic in there}, engine.clock),
            {topic.name: topic.policy for topic in there},
            engine.store.outbox,
            engine.clock,
            engine.rng,
            batch=settings.outbox_batch,
            poll=settings.outbox_poll,
            pauses=pauses,
        )
        for address, there in by_address.items()
    ]
    return Relay(routes, topics, engine.store, engine.clock, settings.outbox_stale)
