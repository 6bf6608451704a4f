from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import DATABASES
from tests.databases import new_database, new_file
from tests.systems.converter.gateways import RunningGateway
from tests.systems.converter.sites import RunningSite

#: Of the site that most tests share: long enough to be seen between two attempts.
BASE_DELAY_MS = 150


@pytest.fixture(scope="module")
def faulty_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with RunningGateway(tmp_path_factory.mktemp("gateway"), "--size", "2", "--faults") as running:
        yield running


@pytest.fixture(scope="module", params=DATABASES)
def database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A fresh store of each kind, for all tests of a module."""
    if request.param == "sqlite":
        yield new_file(tmp_path_factory.mktemp("store") / "jobs.db")
        return
    with new_database(request.getfixturevalue("postgres")) as url:
        yield url


@pytest.fixture(scope="module")
def shared_site(
    database_url: str, faulty_gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSite]:
    folder = tmp_path_factory.mktemp("site")
    knobs: dict[str, Any] = {"RETRY_BASE_DELAY_MS": str(BASE_DELAY_MS)}
    with RunningSite(folder, database_url, faulty_gateway, **knobs) as running:
        yield running


@pytest.fixture
def site(shared_site: RunningSite, faulty_gateway: RunningGateway) -> Iterator[RunningSite]:
    """The site of the module, for somebody who was never there, with a gateway that works."""
    shared_site.http = shared_site.browser()
    yield shared_site
    shared_site.close_browsers()
    faulty_gateway.http.delete("/faults")
