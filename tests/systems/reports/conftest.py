from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.postgres import Postgres
from tests.systems.provider.providers import RunningProvider
from tests.systems.reports.world import World

STORES = ["sqlite", pytest.param("postgres", marks=pytest.mark.service)]
_numbers = itertools.count(1)


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
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture(params=STORES)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh store of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = f"reports_{next(_numbers)}"
    yield server.create_database(name)
    server.drop_database(name)


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
