"""For the tests of several systems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="module")
def window(chromium: str) -> Iterator[Browser]:
    """A Chromium that opens our pages. Its own sandbox does not work for root, nor in most containers."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
