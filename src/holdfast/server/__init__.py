"""The front door for programs that are not Python: an HTTP API under /api/v1, as an ASGI app of its own or mounted in one.

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
    from holdfast.server.connection import ClientConnection

__all__ = ["api", "connection_of", "is_local", "rate_limit", "serve"]


def api(app: Holdfast, **options: Any) -> FastAPI:
    """The HTTP API of *app*: run it by any ASGI server, or mount it: `site.mount("/holdfast", api(app))`.

    Options: *rate*, how often one owner may call ("6000/min"; None: as often as it likes); *without_key*, whether calls
    from this machine need a key: "never" lets nobody in without one (the default), "until_first" lets this machine in
    while no key exists, "loopback" lets it in always. The last two are for servers that listen on loopback only.
    """
    with _needs_server():
        from holdfast.server.assembly import build
    return build(app, **options)


def serve(
    site: ASGIApp,
    host: str,
    port: int,
    *,
    most_requests: int | None = 1000,
    on_ready: Callable[[str], None] | None = None,
) -> bool:
    """Serve an ASGI application until SIGTERM or SIGINT, with the same bounds as `holdfast serve`.

    Heads are limited to 64 kB, slow clients and those that read no answers are closed, malformed `Host` and `Origin` headers
    are answered 400, and every answer carries `X-Content-Type-Options: nosniff` and, unless *site* sets its own,
    `Cache-Control: no-store`. What proxies say about their clients (`X-Forwarded-For`) is ignored.

    Args:
        site: The application, e.g. a FastAPI app that mounts `api(app)`.
        host: The address to listen on.
        port: The port; 0 takes any that is free.
        most_requests: How many requests are answered at a time; more get 503. None: no limit.
        on_ready: Called with the server's address once it answers.

    Returns:
        Whether the application started.

    Raises:
        UsageError: The port cannot be listened on.
    """
    with _needs_server():
        from holdfast.server import run
    return run.serve(site, host, port, most_requests=most_requests, on_ready=on_ready)


def is_local(request: Request) -> bool:
    """Return whether a program on this machine sent *request*: no proxy, and no web page in a browser.

    The peer's address must be loopback, as must `Host` and, where it is sent, `Origin`; headers of proxies and requests that a
    browser makes for another site's page rule it out. Use it before you let anybody in without a key.
    """
    from holdfast.server.access import is_local

    return is_local(request)


def rate_limit(app: Holdfast, name: str, rate: str) -> Callable[[str], Awaitable[int | None]]:
    """Count the calls of a route of your own as the API counts its own: in the store, for all servers together.

    `uploads = rate_limit(app, "upload", "300/min")`, then `wait = await uploads(owner)` in the route.

    Args:
        app: The app whose store counts.
        name: What is counted, apart from everything else.
        rate: How many in which time, for each scope.

    Returns:
        A function that counts one call of a scope: None when it may go on, else after how many seconds to come again.
    """
    with _needs_server():
        from holdfast.server.problems import Problem
        from holdfast.server.rate_limits import RateLimits
    from holdfast.domain.limits import Rate
    from holdfast.wiring import SystemClock

    rates = RateLimits(app, SystemClock(), Rate.read(rate), name=name)

    async def take(scope: str) -> int | None:
        try:
            await rates.take(scope)
        except Problem as problem:
            return int(problem.facts["retry_after"])
        return None

    return take


def connection_of(scope: MutableMapping[str, Any]) -> ClientConnection | None:
    """Return the connection that a request came by, to `abort()` it; None where another server than `serve` runs."""
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
