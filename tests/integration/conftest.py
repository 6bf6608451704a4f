"""An app on each store that a user may have: one file of SQLite, one database of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from tests.apps import Database, new_app


@pytest.fixture
def db(database_url: str) -> Database:
    """With a table `note (text)` of the user's own."""
    found = Database(database_url)
    found.prepare()
    return found


@pytest.fixture
def app(db: Database) -> Iterator[Holdfast]:
    app = new_app(db.url)
    yield app
    if app.runtime._portal is not None:
        app.runtime._portal.close()
