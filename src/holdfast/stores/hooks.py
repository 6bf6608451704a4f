"""Hooks inside a transaction that nobody may be kept waiting for."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any

from holdfast.errors import StoreError


def run_to_end(hook: Awaitable[None]) -> None:
    """Run a hook where there is no event loop to wait in: it may await its transaction, which never waits, alone."""
    steps: Generator[Any, Any, None] = hook.__await__()
    try:
        steps.send(None)
    except StopIteration:
        return
    steps.close()
    raise StoreError("a hook may await only transaction.execute() here: it runs inside the commit")
