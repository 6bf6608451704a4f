"""The verbs of credits for code without an event loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from holdfast.engine.engine import Engine

T = TypeVar("T")


class EngineLoop(Protocol):
    """How sync code reaches an event loop."""

    async def engine(self) -> Engine: ...

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T: ...


class SyncCredits:
    """The verbs of `Credits`, as plain calls."""

    def __init__(self, verbs: object, portal: EngineLoop) -> None:
        self._verbs, self._portal = verbs, portal

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        found = None if verb.startswith("_") else getattr(self._verbs, verb, None)
        if found is None or not inspect.iscoroutinefunction(found):
            raise AttributeError(f"no verb {verb}")

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._portal.wait_for(found(*args, **kwargs))

        return call
