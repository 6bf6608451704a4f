"""For the tests of several systems."""

from __future__ import annotations

import os

import pytest

from holdfast import UsageError
from systems.screenshots.browser.chromium import find_program


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program; without it the test is skipped, but in CI it fails."""
    try:
        return find_program(os.environ)
    except UsageError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true: {missing}")
        pytest.skip(str(missing))
