"""The routes of a page's files. They need no build step and load nothing from other sites."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

#: Scripts and styles come from files of this server only, and no other page may frame this one.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SHARED = ("common.css", "common.js")

OnVisit = Callable[[Request], Awaitable[Any]]


def page_routes(
    package: str,
    *names: str,
    samples: Mapping[str, tuple[bytes, str]] | None = None,
    on_visit: OnVisit | None = None,
) -> list[BaseRoute]:
    """Return the routes of a page: `/` is the first file, and every other file has its own name.

    The files of all systems (`common.css`, `common.js`) are added. All are read once.

    Args:
        package: The package whose folder `static` has the files.
        names: The names of the files.
        samples: More contents with their media types, by name.
        on_visit: Called with each request for the page itself.
    """
    own, shared = files(package) / "static", files("systems.common.pages") / "static"
    contents = {name: ((own / name).read_bytes(), _kind(name)) for name in names}
    contents |= {name: ((shared / name).read_bytes(), _kind(name)) for name in _SHARED}
    contents |= samples or {}
    page, *_ = names
    return [
        _route("/" if name == page else f"/{name}", content, kind, on_visit if name == page else None)
        for name, (content, kind) in contents.items()
    ]


def _kind(name: str) -> str:
    return _KINDS[name.rpartition(".")[2]]


def _route(path: str, content: bytes, kind: str, on_visit: OnVisit | None) -> Route:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = PAGE_HEADERS | {"content-type": kind, "etag": tag, "cache-control": "no-cache"}

    async def serve(request: Request) -> Response:
        if on_visit is not None:
            await on_visit(request)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return Route(path, serve, methods=["GET"])
