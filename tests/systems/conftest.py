"""For the tests of several systems."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

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


@pytest.fixture(scope="module")
def window(chromium: str) -> Iterator[Browser]:
    """A Chromium that opens our pages. Its own sandbox does not work for root, nor in most containers."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
