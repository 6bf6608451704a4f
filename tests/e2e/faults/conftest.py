"""The two databases on which every fault is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.faults.world import Site
from tests.services.postgres import Postgres

POSTGRES = pytest.param("postgres", marks=pytest.mark.service)


@pytest.fixture
async def sqlite_site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path) as site:
        yield site


@pytest.fixture
async def postgres_site(postgres: Postgres, postgres_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with Site(postgres_url, tmp_path) as site:
        yield site


@pytest.fixture(params=["sqlite", POSTGRES])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    """A migrated database of either kind."""
    url = (
        request.getfixturevalue("postgres_url")
        if request.param == "postgres"
        else f"sqlite:///{tmp_path / 'jobs.db'}"
    )
    async with Site(url, tmp_path) as made:
        yield made
