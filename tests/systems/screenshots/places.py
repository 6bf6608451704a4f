"""Places for the browser to go: a web of our own, and inner places that nobody may ever reach."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """A server whose pages a test writes: `web.page("/x", "<p>…")`, `web.answer("/y", function)`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._answers: dict[str, Answer] = {}
        self.asked: list[str] = []  #: paths, in the order of their coming
        self.heads: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(handler) -> None:
                path = handler.path.partition("?")[0]
                answer = self._answers.get(path)  # before it is told: a test may have another then
                self.asked.append(path)
                self.heads.append(str(handler.headers))
                try:
                    answer(handler) if answer else _send(handler, b"no such page", status=404)
                except OSError:
                    handler.close_connection = True

            do_POST = do_GET

            def log_message(handler, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.host, self.port = host, self._server.server_port
        self.url = f"http://{host}:{self.port}"

    def __enter__(self) -> Web:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str, body: str | bytes, *, kind: str = "text/html", **headers: str) -> str:
        """Its address."""
        data = body.encode() if isinstance(body, str) else body
        return self.answer(path, lambda handler: _send(handler, data, kind=kind, headers=headers))

    def redirect(self, path: str, to: str) -> str:
        return self.answer(path, lambda handler: _send(handler, b"", status=302, headers={"Location": to}))

    def answer(self, path: str, answer: Answer) -> str:
        self._answers[path] = answer
        return self.url + path


def _send(
    handler: BaseHTTPRequestHandler,
    body: bytes,
    *,
    status: int = 200,
    kind: str = "text/html",
    headers: Mapping[str, str] | None = None,
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def forever(
    handler: BaseHTTPRequestHandler,
    *,
    piece: bytes = b"<p>more</p>" * 100,
    kind: str = "text/html",
    begin: bytes = b"",
) -> None:
    """An answer without an end, as fast as it is taken."""
    handler.close_connection = True
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.end_headers()
    handler.wfile.write(begin)
    while True:
        handler.wfile.write(piece)


def hang(handler: BaseHTTPRequestHandler) -> None:
    """No answer until the other side has had enough."""
    handler.close_connection = True
    handler.connection.settimeout(60)
    handler.connection.recv(1)


class Inside:
    """A TCP and a UDP port that count who came. Nobody may."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._tcp = socket.socket()
        self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tcp.bind((host, port))
        self._tcp.listen(64)
        self.host, self.port = host, int(self._tcp.getsockname()[1])
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind((host, self.port))
        for one in (self._tcp, self._udp):
            one.setblocking(False)
        self.url = f"http://{host}:{self.port}/secret"

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *error: object) -> None:
        self._tcp.close()
        self._udp.close()

    @property
    def reached(self) -> bool:
        """Whether anybody came. The kernel keeps who knocks until it is asked, so nothing is missed in between."""
        for knock in (self._tcp.accept, lambda: self._udp.recv(10)):
            try:
                knock()
            except BlockingIOError:
                continue
            return True
        return False


def until(true: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Whether it became true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    """Whether it runs. One that has ended may keep its number until somebody asks for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
