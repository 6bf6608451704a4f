"""The queues of grading and their arguments. Every process declares the same ones.

grading.request ──► worker ──► grading.callback ──► main app
     ▲    │             └────► grading.dlq                └─refused─► grading.callback.dlq
     │    └─rejected, or delivered too often─► grading.dlq
     └──── grading.wait.<ms> ◄── put off: a message waits for that time and returns
"""

from __future__ import annotations

import math
from typing import Any

REQUESTS, CALLBACKS, DEAD, REFUSED = (
    "grading.request",
    "grading.callback",
    "grading.dlq",
    "grading.callback.dlq",
)
#: A message that is delivered this often crashes its worker each time. The ledger's count of crashes usually
#: ends it earlier. This limit holds if the worker dies before it can count.
DELIVERY_LIMIT = 20
#: Reading dead letters takes them out and returns them. RabbitMQ 4 drops a message that was returned 20 times
#: unless the queue sets a limit, and older versions have no value for "unlimited".
_UNLIMITED = 1_000_000_000
_COARSE_MS, _FINE_MS = 1_000, 250
_UNUSED_MS = 60_000


def queues() -> dict[str, dict[str, Any]]:
    """Return the arguments of every permanent queue, by name. All are durable."""

    def quorum(limit: int, dead_to: str | None = None) -> dict[str, Any]:
        arguments: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": limit}
        if dead_to is not None:
            arguments |= {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead_to,
                # Otherwise a dead letter is lost if the broker stops between the two queues.
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
        return arguments

    return {
        REQUESTS: quorum(DELIVERY_LIMIT, DEAD),
        CALLBACKS: quorum(DELIVERY_LIMIT, REFUSED),
        DEAD: quorum(_UNLIMITED),
        REFUSED: quorum(_UNLIMITED),
    }


def wait_queue(delay_ms: float) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of the queue in which a request waits for at least *delay_ms*.

    All messages of one queue wait equally long: the broker only expires the head of a queue, so a long wait
    would hold up a shorter one behind it. An unused queue expires, but never before its messages, because
    every sender declares it first.
    """
    step = _FINE_MS if delay_ms < 5_000 else _COARSE_MS
    ttl = max(step, math.ceil(delay_ms / step) * step)
    return f"grading.wait.{ttl}", {
        "x-message-ttl": ttl,
        "x-expires": ttl + _UNUSED_MS,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": REQUESTS,
    }
