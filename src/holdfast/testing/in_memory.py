"""An existing app, in memory for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.app import Holdfast
from holdfast.engine.ports import Clock
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock


@contextmanager
def app_in_memory(app: Holdfast, *, clock: Clock | None = None) -> Iterator[Holdfast]:
    """Inside the block *app* has an empty memory store and this *clock* (a new `ManualClock` if none is given).

    Tasks, hooks, middleware and settings are the app's own. Afterwards it has the store it had before.
    """
    clock = clock or ManualClock()
    with app.replaced(store=MemoryStore(clock), clock=clock):
        yield app
