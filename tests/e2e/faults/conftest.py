"""The two databases on which every fault is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from devservices.postgres import Postgres
from tests.e2e.faults.world import Site


@pytest.fixture
async def sqlite_site(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(sqlite_url, tmp_path) as site:
        yield site


@pytest.fixture
async def postgres_site(postgres: Postgres, postgres_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(postgres_url, tmp_path) as site:
        yield site


@pytest.fixture
async def site(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(database_url, tmp_path) as made:
        yield made
