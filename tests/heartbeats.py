"""Extend sessions as workers do: from a thread."""

from __future__ import annotations

import asyncio

from holdfast.engine.ports import Store
from holdfast.jobs.job import Session


async def extend(store: Store, session: Session) -> bool:
    """Extend the session by one heartbeat. Return False if it has ended."""
    heartbeat = store.heartbeat()
    try:
        return await asyncio.to_thread(heartbeat.beat, session)
    finally:
        await asyncio.to_thread(heartbeat.close)
