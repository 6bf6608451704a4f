"""Run an existing app in memory for the duration of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.jobs.machine import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock


@contextmanager
def app_in_memory(app: Holdfast, *, clock: Clock | None = None) -> Iterator[Holdfast]:
    """Give *app* an empty memory store and this *clock* inside the block.

    Without a *clock* it gets a new `ManualClock`.
    Tasks, hooks, middleware and settings stay the app's own. After the block it has its former store again.
    """
    clock = clock or ManualClock()
    with app.runtime.replaced(store=MemoryStore(clock), clock=clock):
        yield app
