from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.systems.screenshots.places import Inside, Web


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Web() as running:
        yield running


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    with Inside() as listening:
        yield listening
