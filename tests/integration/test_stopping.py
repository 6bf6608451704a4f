"""A worker is told to stop in the middle of a claim that asks for all the slots it has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.stores.memory.store import MemoryStore
from tests.apps import new_app


@pytest.mark.parametrize("concurrency", [1, 2, 3, 20])
async def test_a_worker_stops_although_its_only_slot_is_asked_for(
    concurrency: int, monkeypatch: pytest.MonkeyPatch
) -> None:  # E31
    app, asked, answer = new_app("memory://"), asyncio.Event(), asyncio.Event()

    async def claim(self: MemoryStore, *args: Any, **options: Any) -> list[Any]:
        asked.set()
        await answer.wait()
        return []

    monkeypatch.setattr(MemoryStore, "claim", claim)

    @app.task
    async def nothing() -> None: ...

    async with app:
        worker = asyncio.create_task(app.run_worker(concurrency=concurrency))
        await asked.wait()
        worker.cancel()  # as a signal does: stop in order
        for _ in range(10):
            await asyncio.sleep(0)
        answer.set()
        done, _ = await asyncio.wait([worker], timeout=20)
        assert done == {worker}
