"""An app whose relay processes can be killed at the worst moment.

RELAY_BROKER is its target; with RELAY_DIES a process ends by SIGKILL as soon as it wants to write down what was delivered.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from datetime import timedelta
from typing import Any

from holdfast import Holdfast
from holdfast.outbox.model import Taken
from holdfast.outbox.relay import route

TOPIC, QUEUE = "orders", "q.orders"


def add_topic(app: Holdfast, **options: Any) -> None:
    app.topic(TOPIC, exchange="x.orders", queue=QUEUE, declare=True, base="50ms", cap="200ms", **options)
    # Short, so that a test need not wait for the messages of a dead relay.
    vars(route).update(TAKEN_FOR=timedelta(seconds=2), DELIVER_WITHIN=1.5)


def make_app(url: str | None = None, broker: str | None = None, **options: Any) -> Holdfast:
    app = Holdfast(url, broker=broker or os.environ.get("RELAY_BROKER"), outbox_poll="200ms")
    add_topic(app, **options)
    return app


def die_before_marking(app: Holdfast) -> None:
    make = app.runtime.make_engine

    async def make_mortal() -> Any:
        engine = await make()

        async def die(taken: Collection[Taken]) -> int:
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        engine.store.outbox.delivered = die  # type: ignore[method-assign]
        return engine

    app.runtime._engines._opened = make_mortal


app = make_app() if os.environ.get("RELAY_BROKER") else Holdfast("memory://")
if os.environ.get("RELAY_DIES"):
    die_before_marking(app)
