"""The page at `/`, where users request pictures, see them, and retry those that failed (S2)."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.routing import BaseRoute, Route

from systems.common.pages.changes import Changes
from systems.common.pages.files import page_routes
from systems.screenshots.records.books import TYPES
from systems.screenshots.tasks import Screenshots
from systems.screenshots.web.accounts import show_account
from systems.screenshots.web.callers import Callers
from systems.screenshots.web.problems import Refused


class Page:
    """The page's files, its session, and the stream of changes."""

    def __init__(self, screenshots: Screenshots, callers: Callers) -> None:
        self._screenshots, self._app, self._callers = screenshots, screenshots.app, callers
        self.changes = Changes(screenshots.app, TYPES)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the page."""
        return [
            *page_routes("systems.screenshots.web", "page.html", "page.css", "page.js", "icon.svg"),
            *self._callers.sign_in.routes(self._session),
            Route("/changes", self._follow, methods=["GET"]),
        ]

    async def _follow(self, request: Request) -> Response:
        caller = await self._callers.of(request)
        return self.changes.answer(caller.owner if caller.role == "owner" else None)

    async def _session(self, request: Request) -> dict[str, Any]:
        """Return who is signed in, what they can pay, and what pictures cost."""
        caller = await self._callers.find(request)
        if caller is None:
            return {"caller": None}
        tasks, samples = self._app.tasks, self._screenshots.settings.samples_url
        stuck_after = tasks[TYPES[0]].policy.stuck_after
        return {
            "caller": {"owner": caller.owner, "role": caller.role},
            "can_sign_out": True,
            "account": await self._account(caller.owner),
            "prices": {name: tasks[name].policy.extra["price"] for name in TYPES},
            "stuckAfterSec": stuck_after.total_seconds() if stuck_after else None,
            "samples": [f"{samples}/{name}" for name in ("article", "colours", "long")] if samples else [],
        }

    async def _account(self, owner: str) -> dict[str, Any] | None:
        try:
            return await show_account(self._app, owner)
        except Refused:  # it was never granted any credits
            return None
