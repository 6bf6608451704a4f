"""The routes of the queue page (C7) and of a sample PDF.

The page's files are beside this module. It needs no build step and loads nothing from other sites.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

from fastapi import Request, Response
from starlette.routing import BaseRoute, Route

from systems.converter.samples import article
from systems.converter.web.callers import Callers

_FILES = {
    "/": ("queue.html", "text/html; charset=utf-8"),
    "/queue.css": ("queue.css", "text/css; charset=utf-8"),
    "/queue.js": ("queue.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


def page_routes(callers: Callers) -> list[BaseRoute]:
    """Return the routes of the page's files. They are read once."""
    folder = files("systems.converter.web") / "static"
    page = [
        _route(path, (folder / name).read_bytes(), kind, callers if path == "/" else None)
        for path, (name, kind) in _FILES.items()
    ]
    return [*page, _route("/sample.pdf", article(), "application/pdf", None)]


def _route(path: str, content: bytes, kind: str, callers: Callers | None) -> Route:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"content-type": kind, "etag": tag, "cache-control": "no-cache"}

    async def serve(request: Request) -> Response:
        if callers is not None:  # the first request of the page's script then has a cookie
            await callers.of(request)
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return Route(path, serve, methods=["GET"])
