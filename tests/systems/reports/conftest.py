from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systems.provider.providers import RunningProvider
from tests.systems.reports.world import World


@pytest.fixture(scope="session")
def running_provider() -> Iterator[RunningProvider]:
    with RunningProvider(key="sk-canary-0123456789") as running:
        yield running


@pytest.fixture
def provider(running_provider: RunningProvider) -> Iterator[RunningProvider]:
    running_provider.reset()
    yield running_provider
    running_provider.reset()


@pytest.fixture
def world(tmp_path: Path, database_url: str, provider: RunningProvider) -> World:
    """On each kind of store."""
    return World(tmp_path, database_url, provider, model_api_key="sk-canary-0123456789")


@pytest.fixture
def make_world(tmp_path: Path, sqlite_url: str, provider: RunningProvider) -> Callable[..., World]:
    """On SQLite, with knobs of the test's own."""

    def make(**knobs: Any) -> World:
        return World(tmp_path, sqlite_url, provider, **{"model_api_key": "sk-canary-0123456789", **knobs})

    return make
