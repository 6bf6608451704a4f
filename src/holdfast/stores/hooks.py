"""Run async code inside a transaction that must not wait for anything else."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from holdfast.errors import StoreError

T = TypeVar("T")


def run_to_end(hook: Awaitable[T]) -> T:
    """Run *hook* to its end without an event loop, and return its answer.

    It may await only its transaction, which never waits. Raise `StoreError` if it awaits anything else.
    """
    steps: Generator[Any, Any, T] = hook.__await__()
    try:
        steps.send(None)
    except StopIteration as done:
        answer: T = done.value
        return answer
    steps.close()
    raise StoreError("a hook may await only transaction.execute() here: it runs inside the commit")
