"""What every namespace of an app (`app.jobs`, `app.queues`, …) has in common: it finds the engine when a verb is called."""

from __future__ import annotations

from typing import Protocol

from holdfast.engine.engine import Engine


class EngineSource(Protocol):
    """Opens engines: the runtime of an app."""

    async def engine(self) -> Engine:
        """Return the engine of the running event loop. It is opened if it is not open yet."""


class Namespace:
    """Verbs that belong together. A namespace holds no state: many may exist for one app."""

    def __init__(self, source: EngineSource) -> None:
        self._source, self._engine = source, source.engine


class OpenEngine:
    """The source of one engine that is open: `Jobs(OpenEngine(engine))` is the namespace over it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def engine(self) -> Engine:
        return self._engine
