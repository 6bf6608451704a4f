from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from tests.client.world import CLIENTS, Live, living

Make = Callable[..., Any]
#: Nothing here is encrypted, and to read the certificates of the world takes longer than most of these tests.
TRANSPORTS = {"sync": httpx2.HTTPTransport, "async": httpx2.AsyncHTTPTransport}


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with living(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(params=sorted(CLIENTS))
def make(request: pytest.FixtureRequest, live: Live) -> Iterator[Make]:
    """Makes a client, of either kind: at the live API with an admin's key, unless told otherwise."""
    with ExitStack() as stack:

        def new(url: str | None = None, **options: Any) -> Any:
            transport = TRANSPORTS[request.param](verify=False)
            given = {"key": live.key, "transport": transport, **options}
            return stack.enter_context(CLIENTS[request.param](url or live.url, **given))

        yield new


@pytest.fixture
def client(make: Make) -> Any:
    return make()
