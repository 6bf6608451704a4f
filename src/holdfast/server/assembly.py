"""Builds the API: routes, layers, and the problems for errors that the framework finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Scope

from holdfast import __version__
from holdfast.app import Holdfast
from holdfast.errors import HoldfastError, UsageError
from holdfast.jobs.machine import Clock
from holdfast.processes import following_overrides
from holdfast.resilience.limits import Rate
from holdfast.server.access import WithoutKey
from holdfast.server.body_limits import ENVELOPE, BodyLimits
from holdfast.server.context import ApiContext
from holdfast.server.dashboard_app import Dashboard
from holdfast.server.problems import Problem
from holdfast.server.routes import ROUTES
from holdfast.server.routing import PREFIX, ApiRoute, context_of
from holdfast.wiring import SystemClock

#: The problems for statuses of the framework's own errors.
_BY_STATUS = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    422: "INVALID",
}


class Api(FastAPI):
    """FastAPI without its layers for errors: `BodyLimits` answers them all, and each layer costs every request (ADR 29)."""

    def build_middleware_stack(self) -> ASGIApp:
        app: ASGIApp = AsyncExitStackMiddleware(self.router)
        for layer in reversed(self.user_middleware):
            app = layer.cls(app, *layer.args, **layer.kwargs)
        return app


def build(
    app: Holdfast,
    *,
    rate: Rate | str | None = "6000/min",
    without_key: WithoutKey | str = WithoutKey.NEVER,
    clock: Clock | None = None,
    dashboard: bool = False,
) -> FastAPI:
    """Return the API of *app*, with the *dashboard* around it; see `api` and `dashboard` in `holdfast.server`."""
    try:
        access = WithoutKey(without_key)
    except ValueError:
        raise UsageError(f"without_key is {without_key!r}; it is one of {', '.join(WithoutKey)}") from None
    site = Api(
        title="Holdfast",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    added = _extension_routes(app)
    site.state.context = ApiContext(
        app,
        clock or SystemClock(),
        rate=None if rate is None else Rate.read(rate),
        without_key=access,
        extension_routes=added,
    )
    # Not by `include_router`, which would search for the route of every request twice.
    site.router.routes.extend((*ROUTES, *added))
    site.add_middleware(
        BodyLimits,
        limit=app.runtime.payload_limit + ENVELOPE,
        new_id=app.runtime.new_id,
        explain=_explain,
    )
    if dashboard:
        site.add_middleware(Dashboard, frame_ancestors=app.runtime.settings.frame_ancestors)
    return site


def _extension_routes(app: Holdfast) -> list[ApiRoute]:
    """Return the routes of the app's extensions. Raises `UsageError` for one that skips the checks of callers."""
    found = []
    for name, extension in app.extensions.items():
        for route in extension.routes():
            if not isinstance(route, ApiRoute) or not route.path.startswith(f"{PREFIX}/"):
                raise UsageError(
                    f"the extension {name} has a route {route!r:.80}; make it with `holdfast.server.routing.router`, below {PREFIX}"
                )
            found.append(route)
    return found


def table(site: FastAPI) -> Iterator[ApiRoute]:
    """Yield every route of the API. Raises `UsageError` for a route without an action."""
    for route in site.router.routes:
        if not isinstance(route, ApiRoute):
            raise UsageError(f"{route!r:.80} was not made by `holdfast.server.routing.router`")
        yield route


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """Follow overrides of policies, and record the last uses of keys at the end.

    A mounted app has no lifespan. There uses are recorded on the way, and overrides are read when the database is opened.
    """
    context = site.state.context
    async with following_overrides(context.app.runtime):
        yield
    await context.keys.record_uses(now=True)


# -- errors of the framework ------------------------------------------------------------------------------------------
async def _explain(scope: Scope, error: Exception) -> Exception:
    """Return the problem for an error of the framework; return any other error as it is."""
    if not isinstance(error, HTTPException) or isinstance(error, Problem):
        return error
    request = Request(scope)
    if error.status_code in (404, 405):
        try:  # which paths exist is shown to callers with a key only
            await context_of(request).admit(request, None)
        except (Problem, HoldfastError) as refusal:
            return refusal
    return _by_status(request, error)


def _by_status(request: Request, error: HTTPException) -> Problem:
    match error.status_code:
        case 404:
            return Problem("NOT_FOUND", "no route has this path; GET /api/v1/openapi.json lists them")
        case 405:
            allow = ", ".join(sorted(_methods(request.app.router.routes, request)))
            return Problem("METHOD_NOT_ALLOWED", f"this path takes: {allow}", headers={"Allow": allow})
    return Problem(_BY_STATUS.get(error.status_code, "BAD_REQUEST"), "the request cannot be read")


def _methods(routes: list[BaseRoute], request: Request) -> set[str]:
    """Return the methods of all routes that fit the path best: `/jobs/batch` is not the path of a job, though it fits."""
    fitting = [
        route
        for route in routes
        if isinstance(route, ApiRoute) and route.matches(dict(request.scope))[0] is not Match.NONE
    ]
    fewest = min((len(route.param_convertors) for route in fitting), default=0)
    closest = [route.methods or () for route in fitting if len(route.param_convertors) == fewest]
    return {method for methods in closest for method in methods}
