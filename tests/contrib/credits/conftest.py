"""Apps that sell jobs, on each database that a user may have, and the worlds of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.contrib.credits import Credits
from tests.apps import Database, new_app
from tests.contract.conftest import one_session, pytest_itemcollected, world  # noqa: F401 - fixtures


def new_shop(url: str, **settings: Any) -> Holdfast:
    """An app that declares credits."""
    return new_app(url, extensions=[Credits()], **settings)


@pytest.fixture
def db(database_url: str) -> Database:
    """With the tables of credits, and a table `note (text)` of the user's own."""
    with ThreadPoolExecutor(1) as thread:  # the test may run on an event loop
        thread.submit(asyncio.run, new_shop(database_url).migrate()).result()
    found = Database(database_url)
    found.prepare()
    return found


@pytest.fixture
def app(db: Database) -> Iterator[Holdfast]:
    app = new_shop(db.url)
    yield app
    app.runtime.close_sync()
