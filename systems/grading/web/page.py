"""The page at `/`, where learners submit writing or speaking, and see their grades."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from starlette.routing import BaseRoute, Route

from systems.common.pages.changes import Changes
from systems.common.pages.files import page_routes
from systems.grading.audio import LARGEST_AUDIO
from systems.grading.messages import LONGEST_TEXT
from systems.grading.samples import ESSAY, speech
from systems.grading.tasks import Grading
from systems.grading.web.callers import LOCAL, Callers
from systems.grading.web.problems import Refused


class Page:
    """The page's files, its session, and the stream of changes."""

    def __init__(self, grading: Grading, callers: Callers) -> None:
        self._grading, self._callers = grading, callers
        self.changes = Changes(grading.app, ["grade"])

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the page, of the samples, and of the stream."""
        samples = {
            "samples/essay.txt": (ESSAY.encode(), "text/plain; charset=utf-8"),
            "samples/speech.wav": (speech(), "audio/wav"),
        }
        names = ("page.html", "page.css", "page.js", "icon.svg")
        return [
            *page_routes("systems.grading.web", *names, samples=samples),
            *self._callers.sign_in.routes(self._session),
            Route("/changes", self._follow, methods=["GET"]),
        ]

    async def _follow(self, request: Request) -> Response:
        return self.changes.answer((await self._callers.of(request)).owner)

    async def _session(self, request: Request) -> dict[str, Any]:
        """Return who is signed in, and what may be submitted."""
        try:
            caller = await self._callers.of(request)
        except Refused:
            return {"caller": None}
        return {
            "caller": {"owner": caller.owner, "role": "owner" if caller.owner is not None else caller.name},
            "can_sign_out": caller.name != LOCAL,
            "can_submit": caller.changes,
            "can_retry": caller.operates,
            "longest_text": LONGEST_TEXT,
            "largest_audio": LARGEST_AUDIO,
            "sla_sec": {skill: self._grading.sla(skill).total_seconds() for skill in ("writing", "speaking")},
        }
