"""The page at `/`, where users give documents, follow their reports step by step, and read them."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.routing import BaseRoute, Route

from systems.common.pages.changes import Changes
from systems.common.pages.files import page_routes
from systems.reports.chain import STEPS
from systems.reports.content import EXTENSIONS
from systems.reports.samples import SAMPLES
from systems.reports.schemas import schema_names
from systems.reports.tasks import Reports
from systems.reports.web.callers import Callers


class Page:
    """The page's files, its session, and the stream of changes."""

    def __init__(self, reports: Reports, callers: Callers) -> None:
        self._settings, self._callers = reports.settings, callers
        self.changes = Changes(reports.app, ["report"])

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the page, of the sample documents, and of the stream."""
        samples = {
            f"samples/{name}": (text.encode(), "text/plain; charset=utf-8") for name, text in SAMPLES.items()
        }
        names = ("page.html", "page.css", "page.js", "icon.svg")
        return [
            *page_routes("systems.reports.web", *names, samples=samples),
            *self._callers.sign_in.routes(self._session),
            Route("/changes", self._follow, methods=["GET"]),
        ]

    async def _follow(self, request: Request) -> Response:
        return self.changes.answer((await self._callers.of(request)).sees)

    async def _session(self, request: Request) -> dict[str, Any]:
        """Return who is signed in, and what can be requested."""
        caller = await self._callers.find(request)
        if caller is None:
            return {"caller": None}
        return {
            "caller": {"owner": caller.owner, "role": caller.role},
            "can_sign_out": True,
            "can_retry": caller.operates,
            "schemas": schema_names(self._settings.schemas_dir),
            "samples": list(SAMPLES),
            "extensions": list(EXTENSIONS),
            "max_bytes": self._settings.document_max_bytes,
            "steps": list(STEPS),
        }
