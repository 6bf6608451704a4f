"""What the tests of dispatch share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from devservices.rabbitmq import RabbitMq
from devservices.redis import RedisServer
from holdfast.engine import dispatcher, leader
from holdfast.logging import Log
from holdfast.maintenance import dispatch
from holdfast.worker import dispatched
from tests.conftest import installed


@pytest.fixture(scope="session")
def own_redis() -> Iterator[RedisServer]:
    """One that may be killed."""
    with installed(RedisServer) as running:
        yield running


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that a test need not wait out."""
    monkeypatch.setattr(dispatch, "COMPARE_EVERY", 0.1)
    monkeypatch.setattr(dispatch, "LEAD_SECONDS", 0.5)
    monkeypatch.setattr(leader, "RENEW_EVERY", 0.1)
    monkeypatch.setattr(dispatched, "HOLDS_EVERY", 0.05)
    monkeypatch.setattr(dispatcher, "TRY_EVERY", 0.05)


@pytest.fixture
def broker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is never looked at for jobs that the broker hands out: whatever runs came through it."""

    async def look(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(dispatched.DispatchedJobs, "_claim_from_store", look)


@pytest.fixture
def store_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as a worker polls."""
    monkeypatch.setattr(dispatched, "SWEEP_EVERY", 0.1)


@pytest.fixture
def compared_once(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes are compared when the duty begins, and not again: whatever is offered later was told of."""
    monkeypatch.setattr(dispatch, "COMPARE_EVERY", 600)


@pytest.fixture(params=["redis", "rabbitmq"])
def server(request: pytest.FixtureRequest) -> RedisServer | RabbitMq:
    """One that may be killed."""
    found: RedisServer | RabbitMq = request.getfixturevalue(f"own_{request.param}")
    return found


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the log says of the broker's coming and going, and how loud."""
    words: list[tuple[str, str]] = []

    class Loud(Log):
        def _emit(self, level: int, event: str, facts: dict[str, Any], *, stack: bool = False) -> None:
            words.append((logging.getLevelName(level), event))

    monkeypatch.setattr(dispatcher, "log", Loud("holdfast.dispatch"))
    return words
