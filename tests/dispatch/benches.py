"""A broker of each kind: the real server, and what dispatches through it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from holdfast.dispatch.memory import MemoryDispatch
from holdfast.dispatch.rabbitmq import RabbitDispatch
from holdfast.dispatch.redis import RedisDispatch
from holdfast.engine.dispatch import Dispatch, DispatchEntry, DispatchHint
from holdfast.jobs.job import JobId, Lane
from holdfast.wiring import SystemClock, SystemIds

LANE, OTHER = Lane("default", "email"), Lane("über/längere Wörter*", "let:ter}", "post", "eu", True)
SERVERS = {"redis": "own_redis", "rabbitmq": "own_rabbitmq"}
_ids = SystemIds()
_numbers = itertools.count(1)


def a_dispatch(kind: str, address: str | None = None, name: str | None = None) -> Dispatch:
    name = name or f"t{next(_numbers)}"
    if kind == "memory":
        return MemoryDispatch(SystemClock())
    assert address is not None
    return RedisDispatch(address, name) if kind == "redis" else RabbitDispatch(address, name)


def an_entry(
    lane: Lane = LANE,
    *,
    delay: float = 0,
    priority: int = 0,
    generation: int = 1,
    job_id: JobId | None = None,
) -> DispatchEntry:
    return DispatchEntry(job_id or _ids.job_id(), generation, lane, priority, timedelta(seconds=delay))


def hints(*entries: DispatchEntry) -> list[DispatchHint]:
    return [DispatchHint(entry.job_id, entry.generation) for entry in entries]


def address_of(kind: str, servers: Mapping[str, Any]) -> str | None:
    url: str | None = servers[kind].url() if kind in servers else None
    return url
