from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from devservices.server import NotInstalled
from holdfast.server.dashboard_app import FOLDER
from tests.conftest import installed
from tests.dashboard.world import World, running

SECONDS = 15_000
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
#: Collects what the Content-Security-Policy has refused.
WATCH = "window.refused = []; addEventListener('securitypolicyviolation', e => refused.push(e.violatedDirective + ' ' + e.blockedURI))"


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """The dashboard must be built. Where it is not the tests are skipped; in CI they fail."""

    def find() -> None:
        if not (FOLDER / "index.html").exists():
            raise NotInstalled("the dashboard is not built: run `python3 tools/dashboard`")

    installed(find)


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("dashboard")) as found:
        yield found


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Its own sandbox does not work for root, nor in most containers; it opens our pages only.
        expect.set_options(timeout=SECONDS)
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


class Visitor:
    """A browser of one person. Every page is watched for refused content, errors and scripts that ask something."""

    def __init__(self, context: BrowserContext, world: World) -> None:
        self.context, self.world = context, world
        self.errors: list[str] = []
        #: Parts of messages that a test provokes.
        self.expected: list[str] = []
        context.set_default_timeout(SECONDS)
        context.add_init_script(WATCH)

    def sign_in(self, role: str = "admin", owner: str | None = None, place: str = "/") -> Visitor:
        _, secret = self.world.key(role, owner)
        opened = self.context.request.post(f"{self.world.url}{place}api/v1/session", data={"key": secret})
        assert opened.ok
        return self

    def open(self, path: str = "", place: str = "/") -> Page:
        page = self.context.new_page()
        page.on("pageerror", lambda error: self.errors.append(f"uncaught: {error}"))
        page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.goto(f"{self.world.url}{place}{path}")
        return page

    def check(self) -> None:
        refused = [line for page in self.context.pages for line in page.evaluate("window.refused")]
        assert refused == []
        assert [error for error in self.errors if not any(part in error for part in self.expected)] == []


@pytest.fixture
def visit(browser: Browser, world: World) -> Iterator[Callable[..., Visitor]]:
    """Return a function that makes a `Visitor`. At the end of the test its pages must be without errors."""
    with ExitStack() as stack:
        visitors: list[Visitor] = []

        def make(of: World = world, **options: Any) -> Visitor:
            context = stack.enter_context(browser.new_context(**{"viewport": DESK, **options}))
            visitors.append(Visitor(context, of))
            return visitors[-1]

        yield make
        for visitor in visitors:
            visitor.check()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, or a skipped test."""
    path = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"

    def find() -> str:
        if not path.exists():
            raise NotInstalled("no axe-core here: run `python3 tools/dashboard test`")
        return path.read_text(encoding="utf-8")

    return installed(find)
