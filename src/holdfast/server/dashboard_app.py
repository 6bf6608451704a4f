"""The dashboard: files that are built from web/, served beside the API under any prefix.

The files never reach the engine: pages read and change everything through the API, with a session. Where the dashboard is
mounted is not configured anywhere. Each page says how to get from its address to the root (`<base href="../">`), which is the same
whether a proxy strips a prefix or not.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from mimetypes import guess_type
from pathlib import Path
from urllib.parse import quote

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

FOLDER = Path(__file__).parent / "dashboard_files"
#: Written by tools/dashboard while there are no files: "building", or what is missing.
STATE = "state.txt"
_BASE = '<base href="./"'
_API = ("/api/", "/livez", "/readyz", "/metrics")
_FOREVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class _File:
    content: bytes
    compressed: bytes | None
    kind: str


class Dashboard:
    """Stands around the API *app* and answers every path that is not the API's.

    Args:
        app: The API.
        frame_ancestors: The sites that may show the dashboard in a frame, as in a Content-Security-Policy.
        folder: Where the built files are.
    """

    def __init__(self, app: ASGIApp, *, frame_ancestors: str, folder: Path = FOLDER) -> None:
        self._app, self._folder = app, folder
        self._built: tuple[int, dict[str, _File]] = 0, {}
        self._headers = {
            "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
            " connect-src 'self'; base-uri 'self'; form-action 'none';"
            f" frame-ancestors {frame_ancestors}; require-trusted-types-for 'script'; trusted-types 'none'",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or path.startswith(_API):
            await self._app(scope, receive, send)
            return
        response = self._respond(scope, path)
        response.headers.update(
            {name: value for name, value in self._headers.items() if name not in response.headers}
        )
        await response(scope, receive, send)

    def _respond(self, scope: Scope, path: str) -> Response:
        if scope["method"] not in ("GET", "HEAD"):
            return Response("the dashboard takes GET\n", 405, {"Allow": "GET, HEAD"}, "text/plain")
        if not path:  # mounted, and called without the slash: pages would look for their files beside it
            return Response(status_code=307, headers={"Location": f"{_raw(scope).rpartition('/')[2]}/"})
        files = self._files()
        if "index.html" not in files:
            return self._missing()
        file = files.get(path[1:])
        if file is not None and path != "/index.html":
            return self._asset(scope, file)
        if path.startswith("/assets/"):
            return Response(
                "this file is of another version; reload the page\n", 404, media_type="text/plain"
            )
        page = files["index.html"].content.decode().replace(_BASE, f'<base href="{_way_to_root(scope)}"', 1)
        return Response(page, media_type="text/html")

    def _asset(self, scope: Scope, file: _File) -> Response:
        """Return a file. Its name changes with its content, so browsers keep it."""
        headers = {"Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
        if file.compressed is None or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            return Response(file.content, headers=headers, media_type=file.kind)
        return Response(file.compressed, headers=headers | {"Content-Encoding": "gzip"}, media_type=file.kind)

    def _files(self) -> dict[str, _File]:
        """Return the built files by path. They are read again after another build, which replaces the folder."""
        try:
            version = (self._folder / "index.html").stat().st_mtime_ns
            if version != self._built[0]:
                self._built = version, _read(self._folder)
        except FileNotFoundError:
            return {}
        return self._built[1]

    def _missing(self) -> Response:
        try:
            state = (self._folder / STATE).read_text()
        except FileNotFoundError:
            state = "It is not built. Run `python3 tools/dashboard` in the clone, or install the package from a wheel."
        is_building = state == "building"
        text = "It is being built. This page reloads by itself." if is_building else state
        refresh = '<meta http-equiv="refresh" content="2">' if is_building else ""
        page = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Holdfast</title>{refresh}</head>
<body><h1>The dashboard is not there yet</h1><pre>{html.escape(text)}</pre>
<p>Workers, the API and the command line work without it.</p></body></html>"""
        return Response(page, 503, {"Retry-After": "2"}, "text/html")


def _way_to_root(scope: Scope) -> str:
    """Return the relative URL of the root. Slashes are counted as the browser has sent them: a name may contain `%2F`."""
    root = scope.get("root_path", "")
    above = root.count("/") if scope["path"].startswith(root) else 0
    return "../" * (_raw(scope).count("/") - above - 1) or "./"


def _raw(scope: Scope) -> str:
    """Return the path as the browser has sent it."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.decode("latin-1")


def _read(folder: Path) -> dict[str, _File]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".gz":
            packed = path.with_name(f"{path.name}.gz")
            kind = guess_type(path.name)[0] or "application/octet-stream"
            content = packed.read_bytes() if packed.exists() else None
            found[path.relative_to(folder).as_posix()] = _File(path.read_bytes(), content, kind)
    return found
