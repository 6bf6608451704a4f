"""The queues of grading, as data: the first process declares them, and all declare the same.

grading.request ──► worker ──► grading.callback ──► main app
     ▲    │             └────► grading.dlq                └─refused─► grading.callback.dlq
     │    └─rejected, or delivered too often─► grading.dlq
     └──── grading.wait.<ms> ◄── put off: a message stays for its time and goes back
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
#: A message that was delivered this often without an answer takes its worker down each time. The worker's own count of
#: crashes ends it before; this holds where the worker could not count.
DELIVERY_LIMIT = 20
#: A look at the dead letters takes them out and puts them back; from RabbitMQ 4 on a queue that says nothing drops a message
#: that came back 20 times. There is no word for "never" that older ones know.
_LOOKS = 1_000_000_000
_COARSE_MS, _FINE_MS = 1_000, 250
_UNUSED_MS = 60_000


def queues() -> dict[str, dict[str, Any]]:
    """Name → arguments of every queue that is always there; all durable."""

    def quorum(limit: int, dead_to: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": limit}
        if dead_to is not None:
            found |= {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": dead_to,
                # Or a dead letter is lost when the broker stops between the two queues.
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
            }
        return found

    return {
        REQUESTS: quorum(DELIVERY_LIMIT, DEAD),
        CALLBACKS: quorum(DELIVERY_LIMIT, REFUSED),
        DEAD: quorum(_LOOKS),
        REFUSED: quorum(_LOOKS),
    }


def wait_queue(delay_ms: float) -> tuple[str, dict[str, Any]]:
    """The queue in which a request waits for at least *delay_ms*, and its arguments.

    All messages of one queue wait equally long: the broker looks at the head of a queue only, and a long wait before a
    short one would hold it up. A queue that was not declared for a while goes away, always after what is in it: a process that
    sends to it declares it first.
    """
    step = _FINE_MS if delay_ms < 5_000 else _COARSE_MS
    ttl = max(step, math.ceil(delay_ms / step) * step)
    return f"grading.wait.{ttl}", {
        "x-message-ttl": ttl,
        "x-expires": ttl + _UNUSED_MS,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": REQUESTS,
    }
