from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from systems.screenshots.browser import Browser, Limits
from tests.systems.screenshots.api.world import Easel, World
from tests.systems.screenshots.places import Web


@pytest.fixture(scope="module")
async def browser(chromium: str, web: Web) -> AsyncIterator[Browser]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
        async with Browser(Limits(concurrency=2, seconds=15, selector_seconds=0.3)) as running:
            yield running


@pytest.fixture
def make_world(tmp_path: Path, sqlite_url: str) -> Callable[..., World]:
    """On SQLite, with an easel and knobs of the test's own."""

    def make(**knobs: Any) -> World:
        return World(tmp_path, sqlite_url, Easel(), **knobs)

    return make


@pytest.fixture
async def world(make_world: Callable[..., World]) -> AsyncIterator[World]:
    """On SQLite, with an easel; open, and a worker works."""
    async with make_world().open() as opened:
        yield opened


@pytest.fixture
async def real(
    tmp_path: Path, database_url: str, browser: Browser, monkeypatch: pytest.MonkeyPatch, web: Web
) -> AsyncIterator[World]:
    """On each kind of store, with a real Chromium; open, and a worker works."""
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    async with World(tmp_path, database_url, browser).open() as opened:
        yield opened


@pytest.fixture
async def real_on_sqlite(
    tmp_path: Path, sqlite_url: str, browser: Browser, monkeypatch: pytest.MonkeyPatch, web: Web
) -> AsyncIterator[World]:
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    async with World(tmp_path, sqlite_url, browser).open() as opened:
        yield opened
