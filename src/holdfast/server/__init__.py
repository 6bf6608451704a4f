"""The HTTP API, under /api/v1, and the dashboard: an ASGI application to run by itself or to mount in another.

`serve` runs any ASGI application with the protections of the engine's own server. FastAPI and uvicorn are imported when a
function is called, never by `import holdfast`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from fastapi import FastAPI, Request
    from starlette.types import ASGIApp

    from holdfast.app import Holdfast
    from holdfast.jobs.machine import Clock
    from holdfast.resilience.limits import Rate
    from holdfast.server.connection import ClientConnection

__all__ = ["api", "connection_of", "dashboard", "is_local", "rate_limit", "serve"]


def api(
    app: Holdfast,
    *,
    rate: Rate | str | None = "6000/min",
    without_key: str = "never",
    clock: Clock | None = None,
) -> FastAPI:
    """Return the HTTP API of *app*. Run it with any ASGI server, or mount it: `site.mount("/holdfast", api(app))`.

    Args:
        app: The app whose jobs callers reach.
        rate: How often one owner may call. None sets no limit.
        without_key: Which callers need no key: "never" none, "until_first" programs on this machine while no key
            exists, "loopback" programs on this machine. Use the last two only for servers that listen on loopback.
        clock: For tests.
    """
    with _needs_server():
        from holdfast.server.assembly import build
    return build(app, rate=rate, without_key=without_key, clock=clock)


def dashboard(app: Holdfast, *, rate: Rate | str | None = "6000/min", clock: Clock | None = None) -> FastAPI:
    """Return the dashboard of *app* with the API beside it. Mount it under any path: `site.mount("/jobs", dashboard(app))`.

    People sign in with a key of the API. The settings `environment` and `frame_ancestors` apply.

    Args:
        app: The app to show.
        rate: How often one owner may call the API. None sets no limit.
        clock: For tests.
    """
    with _needs_server():
        from holdfast.server.assembly import build
    return build(app, rate=rate, clock=clock, dashboard=True)


def serve(
    site: ASGIApp,
    host: str,
    port: int,
    *,
    most_requests: int | None = 1000,
    on_ready: Callable[[str], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> bool:
    """Serve an ASGI application until SIGTERM or SIGINT, with the same bounds as `holdfast serve`.

    The headers of a request are limited to 64 kB. Connections of slow clients, and of clients that do not read responses,
    are closed. Malformed `Host` and `Origin` headers get 400. Every response has `X-Content-Type-Options: nosniff` and,
    unless *site* sets its own, `Cache-Control: no-store`. Headers that proxies set (`X-Forwarded-For`) are ignored.

    Args:
        site: The application, e.g. a FastAPI app that mounts `api(app)`.
        host: The address to listen on.
        port: The port; 0 chooses a free one.
        most_requests: How many requests are handled at a time; more get 503. None sets no limit.
        on_ready: Called with the server's address once it answers.
        on_stop: Called when the server begins to stop; end streams here, or they end after 2 seconds.

    Returns:
        Whether the application started.

    Raises:
        UsageError: The server cannot listen on the port.
    """
    with _needs_server():
        from holdfast.server import run
    return run.serve(site, host, port, most_requests=most_requests, on_ready=on_ready, on_stop=on_stop)


def is_local(request: Request) -> bool:
    """Return whether a program on this machine sent *request*: no proxy, and no web page in a browser.

    The peer's address must be loopback, as must `Host` and, where it is sent, `Origin`; headers of proxies and requests that a
    browser makes for another site's page rule it out. Use it before you accept a request without a key.
    """
    from holdfast.server.access import is_local

    return is_local(request)


def rate_limit(app: Holdfast, name: str, rate: str) -> Callable[[str], Awaitable[int | None]]:
    """Limit the rate of a route of your own as the API limits its routes: counted in the store, for all servers together.

    `uploads = rate_limit(app, "upload", "300/min")`, then `wait = await uploads(owner)` in the route.

    Args:
        app: The app whose store counts.
        name: The name of this count. Routes with the same name are counted together.
        rate: How many calls of one scope are allowed in which time, such as "300/min".

    Returns:
        A function that counts one call of a scope. It returns None if the call is within the rate, and otherwise the
        number of seconds to wait.
    """
    with _needs_server():
        from holdfast.engine.requests import Requests
        from holdfast.server.problems import Problem
        from holdfast.server.rate_limits import RateLimits
    from holdfast.resilience.limits import Rate
    from holdfast.wiring import SystemClock

    rates = RateLimits(Requests(app.runtime), SystemClock(), Rate.read(rate), name=name)

    async def take(scope: str) -> int | None:
        try:
            await rates.take(scope)
        except Problem as problem:
            return int(problem.facts["retry_after"])
        return None

    return take


def connection_of(scope: MutableMapping[str, Any]) -> ClientConnection | None:
    """Return the connection of a request, to `abort()` it; None if another server than `serve` runs the application."""
    from holdfast.server.connection import connection_of

    return connection_of(scope)


@contextmanager
def _needs_server() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("holdfast"):
            raise
        raise UsageError(f"the HTTP API needs {error.name}; pip install 'holdfast[server]'") from None
