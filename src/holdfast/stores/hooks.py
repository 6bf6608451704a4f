"""Hooks inside a transaction that nobody may be kept waiting for."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from holdfast.errors import StoreError

T = TypeVar("T")


def run_to_end(hook: Awaitable[T]) -> T:
    """Run a hook where there is no event loop to wait in: it may await its transaction, which never waits, alone."""
    steps: Generator[Any, Any, T] = hook.__await__()
    try:
        steps.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    steps.close()
    raise StoreError("a hook may await only transaction.execute() here: it runs inside the commit")
