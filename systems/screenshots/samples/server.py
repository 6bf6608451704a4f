"""The server of the sample pages. It serves only the files in `PAGES`."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_FOLDER = Path(__file__).parent
#: The file and the media type of each path.
PAGES: dict[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/article": ("article.html", "text/html; charset=utf-8"),
    "/colours": ("colours.html", "text/html; charset=utf-8"),
    "/long": ("long.html", "text/html; charset=utf-8"),
    "/chart.svg": ("chart.svg", "image/svg+xml"),
}


class SampleServer:
    """Serves the sample pages: `with SampleServer() as server: server.url`. Port 0 means any free port."""

    def __init__(self, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), _Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def serve(self) -> None:
        """Serve until another thread leaves the `with` block."""
        self._server.serve_forever(poll_interval=0.1)

    def __enter__(self) -> SampleServer:
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10  # closes idle connections

    def do_GET(self) -> None:
        page = PAGES.get(self.path.partition("?")[0])
        body = (_FOLDER / page[0]).read_bytes() if page else b"There is no such page.\n"
        self.send_response(200 if page else 404)
        self.send_header("Content-Type", page[1] if page else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base's
        pass
