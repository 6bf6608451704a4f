"""The plain-text page at `/` of a system that is an API: its name, its routes and what a request needs."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def front_page(title: str, routes: str | None, hint: str) -> Route:
    """Return the route of `/`.

    Args:
        title: One line that names the system.
        routes: The table of its routes, taken from the docstring of its module.
        hint: What a first request needs.
    """
    text = "\n\n".join(part.strip() for part in (title, routes or "", hint) if part) + "\n"
    headers = {"x-content-type-options": "nosniff", "cache-control": "no-store"}

    async def serve(_: Request) -> Response:
        return PlainTextResponse(text, headers=headers)

    return Route("/", serve, methods=["GET"])
