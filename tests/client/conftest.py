from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.client.world import CLIENTS, Live, living

Make = Callable[..., Any]


@pytest.fixture(scope="package")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with living(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(params=sorted(CLIENTS))
def make(request: pytest.FixtureRequest, live: Live) -> Iterator[Make]:
    """Makes a client, of either kind: at the live API with an admin's key, unless told otherwise."""
    with ExitStack() as stack:

        def new(url: str | None = None, **options: Any) -> Any:
            given = {"key": live.key, **options}
            return stack.enter_context(CLIENTS[request.param](url or live.url, **given))

        yield new


@pytest.fixture
def client(make: Make) -> Any:
    return make()
