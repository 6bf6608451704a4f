"""What the routes of one API share: the app they open, who asks, and how often. Routes are for all APIs of a process; each has
a `ApiContext` of its own, which they find by the request."""

from __future__ import annotations

from fastapi import Request

from holdfast.app import Holdfast
from holdfast.domain.access import Action
from holdfast.domain.limits import Rate
from holdfast.engine.ports import Clock, Store
from holdfast.server.access import CALLER, KeyCache, WithoutKey
from holdfast.server.body_limits import HEADERS
from holdfast.server.event_reader import EventReader
from holdfast.server.pagination import Pages
from holdfast.server.rate_limits import RateLimits
from holdfast.server.rendering import Renderer
from holdfast.wiring import thread_pool

#: Threads that make JSON of large rows; they begin when the first is asked for.
_RENDERING = 2


class ApiContext:
    def __init__(self, app: Holdfast, clock: Clock, *, rate: Rate | None, without_key: WithoutKey) -> None:
        self.app, self.clock = app, clock
        self.keys = KeyCache(app, clock, without_key)
        self.rates = None if rate is None else RateLimits(app, clock, rate)
        self.pages = Pages(app.url)
        self.feed = EventReader(app, clock)
        self.renderer = Renderer(thread_pool(_RENDERING))
        self.metrics = app.metrics  # counts from now on, not from the first scrape on

    def close(self) -> None:
        """Let what would not end by itself come to its end."""
        self.feed.close()

    async def admit(self, request: Request, action: Action | None) -> None:
        """Find out who asks, count it, and check that it may; a problem where not. None: anybody who is known."""
        caller = await self.keys.caller(request)
        request.scope[CALLER] = caller
        if self.rates is not None:
            request.scope[HEADERS] += await self.rates.take(caller.scope)
        if action is not None:
            caller.may(action)

    async def store(self) -> Store:
        return (await self.app.engine()).store
