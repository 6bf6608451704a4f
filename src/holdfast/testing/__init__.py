"""The testing kit: your tasks on the real engine, in memory, on a clock that only you advance.

with app_in_memory(app) as app: …     no database, a manual clock
await drain(app, advance=True)        run all jobs to their end, skipping every wait
assert_completed(app, send, args=…)   check the outcome

Names are imported on first use, because the pytest plug-in loads in every run, also in those without
Holdfast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.stores.memory import MemoryStore
    from holdfast.testing.asserts import assert_completed, assert_dead, assert_enqueued
    from holdfast.testing.clock import ManualClock
    from holdfast.testing.draining import Drained, drain, drain_sync
    from holdfast.testing.in_memory import app_in_memory

_MODULES = {
    "Drained": "holdfast.testing.draining",
    "ManualClock": "holdfast.testing.clock",
    "MemoryStore": "holdfast.stores.memory",
    "app_in_memory": "holdfast.testing.in_memory",
    "assert_completed": "holdfast.testing.asserts",
    "assert_dead": "holdfast.testing.asserts",
    "assert_enqueued": "holdfast.testing.asserts",
    "drain": "holdfast.testing.draining",
    "drain_sync": "holdfast.testing.draining",
}

__all__ = [
    "Drained",
    "ManualClock",
    "MemoryStore",
    "app_in_memory",
    "assert_completed",
    "assert_dead",
    "assert_enqueued",
    "drain",
    "drain_sync",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
