"""Puts the API together: routes, layers, and what errors are told as."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from holdfast import __version__
from holdfast.app import Holdfast
from holdfast.domain.limits import Rate
from holdfast.engine.ports import Clock
from holdfast.errors import HoldfastError, UsageError
from holdfast.server.access import WithoutKey
from holdfast.server.body_limits import ENVELOPE, BodyLimits
from holdfast.server.context import ApiContext
from holdfast.server.problems import Problem
from holdfast.server.routes import DIRECT, ROUTES
from holdfast.server.routing import ApiRoute, context_of
from holdfast.wiring import SystemClock

#: What is said of an error that the framework itself has found.
_BY_STATUS = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    413: "TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    422: "INVALID",
}


def build(
    app: Holdfast,
    *,
    rate: Rate | str | None = "6000/min",
    without_key: WithoutKey | str = WithoutKey.NEVER,
    clock: Clock | None = None,
) -> FastAPI:
    """See `holdfast.server.api`."""
    try:
        access = WithoutKey(without_key)
    except ValueError:
        raise UsageError(f"without_key is {without_key!r}; it is one of {', '.join(WithoutKey)}") from None
    door = ApiContext(
        app,
        clock or SystemClock(),
        rate=None if rate is None else Rate.read(rate),
        without_key=access,
    )
    site = FastAPI(
        title="Holdfast",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    site.state.door = door
    told: dict[str, Any] = {"limit": app.payload_limit + ENVELOPE, "new_id": app.new_id, "direct": DIRECT}
    # Past `include_router`, which would look for the route of every request twice.
    site.router.routes.extend(ROUTES)
    _tell_errors(site, BodyLimits(site.router, **told))
    site.add_middleware(BodyLimits, **told)
    return site


def table(site: FastAPI) -> Iterator[ApiRoute]:
    """Every route of the API, with the action that it is."""
    for route in site.router.routes:
        if not isinstance(route, ApiRoute):
            raise UsageError(f"{route!r:.80} was not made by `holdfast.server.routing.router`")
        yield route


@asynccontextmanager
async def _lifespan(site: FastAPI) -> AsyncIterator[None]:
    """Where the server runs it: a mounted app has none, and needs none."""
    yield
    await site.state.door.keys.touch(now=True)


# -- errors -----------------------------------------------------------------------------------------------------------
def _tell_errors(site: FastAPI, bodies: BodyLimits) -> None:
    async def ours(_request: Request, error: Exception) -> Response:
        return bodies.answer_to(error)

    async def framework(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code in (404, 405):
            try:  # what there is and what not is for those who have a key
                await context_of(request).admit(request, None)
            except (Problem, HoldfastError) as refused:
                return bodies.answer_to(refused)
        return bodies.answer_to(_by_status(request, error))

    site.add_exception_handler(HoldfastError, ours)
    site.add_exception_handler(Problem, ours)
    site.add_exception_handler(RequestValidationError, ours)
    site.add_exception_handler(HTTPException, framework)


def _by_status(request: Request, error: HTTPException) -> Problem:
    match error.status_code:
        case 404:
            return Problem("NOT_FOUND", "no route has this path; GET /api/v1/openapi.json lists them")
        case 405:
            allow = ", ".join(sorted(_methods(request.app.router.routes, request)))
            return Problem("METHOD_NOT_ALLOWED", f"this path takes: {allow}", headers={"Allow": allow})
    return Problem(_BY_STATUS.get(error.status_code, "BAD_REQUEST"), "the request cannot be read")


def _methods(routes: list[BaseRoute], request: Request) -> set[str]:
    """Of all routes of this path: the router itself tells of one only. `/jobs/batch` is no job's, though it fits."""
    fitting = [
        route
        for route in routes
        if isinstance(route, ApiRoute) and route.matches(dict(request.scope))[0] is not Match.NONE
    ]
    fewest = min((len(route.param_convertors) for route in fitting), default=0)
    closest = [route.methods or () for route in fitting if len(route.param_convertors) == fewest]
    return {method for methods in closest for method in methods}
