"""What the tests of the API share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.service)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store of each kind, with nothing in it."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
