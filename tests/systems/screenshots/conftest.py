from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from holdfast import UsageError
from systems.screenshots.browser.chromium import find_program
from tests.systems.screenshots.places import Inside, Web


@pytest.fixture(scope="session")
def program() -> str:
    try:
        return find_program(os.environ)
    except UsageError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true: {missing}")
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Web() as running:
        yield running


@pytest.fixture(scope="module")
def inside() -> Iterator[Inside]:
    with Inside() as listening:
        yield listening
