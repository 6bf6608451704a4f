"""What the requests to one API share: its app, its callers and their rates. Routes find it by the request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from holdfast.app import Holdfast
from holdfast.engine.access import Action
from holdfast.engine.requests import Requests
from holdfast.jobs.machine import Clock
from holdfast.resilience.limits import Rate
from holdfast.server.access import CALLER, KeyCache, WithoutKey
from holdfast.server.body_limits import HEADERS
from holdfast.server.event_reader import EventReader
from holdfast.server.pagination import Pages
from holdfast.server.rate_limits import RateLimits
from holdfast.server.rendering import Renderer
from holdfast.server.session_cookie import SessionCookies
from holdfast.wiring import thread_pool

#: Threads that encode large rows. They start with the first such row.
_RENDERING = 2


class ApiContext:
    """The parts of one API."""

    def __init__(
        self,
        app: Holdfast,
        clock: Clock,
        *,
        rate: Rate | None,
        without_key: WithoutKey,
        extension_routes: Sequence[APIRoute] = (),
    ) -> None:
        self.app, self.clock, self.extension_routes = app, clock, extension_routes
        self.requests = Requests(app.runtime)
        self.sessions = SessionCookies(app.runtime.read_secret_keys, clock, app.runtime.ids.secret)
        self.keys = KeyCache(app.keys, clock, without_key, self.sessions)
        self.rates = None if rate is None else RateLimits(self.requests, clock, rate)
        self.pages = Pages(app.runtime.url)
        self.event_reader = EventReader(app, clock)
        self.renderer = Renderer(thread_pool(_RENDERING))
        self.document: dict[str, Any] | None = (
            None  #: made at the first request for it, because that takes 0.2 s
        )
        self.metrics = app.metrics  # counts from now on, not from the first scrape on

    def close(self) -> None:
        """End the streams, which would not end by themselves."""
        self.event_reader.close()

    async def admit(self, request: Request, action: Action | None) -> None:
        """Authenticate the caller, count the request, and check that the caller may do this.

        Without an *action* any known caller is admitted. Raises `Problem` to refuse the request.
        """
        caller = await self.keys.caller(request)
        request.scope[CALLER] = caller
        if self.rates is not None:
            request.scope[HEADERS] += await self.rates.take(caller.scope)
        if action is not None:
            caller.may(action)
