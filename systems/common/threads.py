"""Run blocking work in a thread, so that it does not block the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Given = TypeVarTuple("Given")


async def in_thread(work: Callable[[Unpack[Given]], T], *given: *Given) -> T:
    """Run *work* in a thread and return its result.

    A cancelled caller waits until the thread is done: a thread cannot be stopped, and may still use what the
    caller is about to close. (`anyio.to_thread` does the same for twice the processor time.)
    """
    working = asyncio.get_running_loop().run_in_executor(None, work, *given)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        if not working.cancelled():
            working.exception()  # marks it as retrieved; no caller is left to receive it
        raise
