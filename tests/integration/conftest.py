"""An app on each store that a user may have: one file of SQLite, one database of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.integration.world import Database, new_app

POSTGRES = pytest.param("postgres", marks=pytest.mark.service)


def database(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Database:
    if kind == "postgres":
        return Database(request.getfixturevalue("postgres_url"))
    return Database(f"sqlite:///{tmp_path / 'jobs.db'}")


@pytest.fixture(params=["sqlite", POSTGRES])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A migrated database with a table `note (text)` of the user's own."""
    found = database(request, request.param, tmp_path)
    found.prepare()
    return found


@pytest.fixture
def app(db: Database) -> Iterator[Holdfast]:
    app = new_app(db.url)
    yield app
    if app._portal is not None:
        app._portal.close()
