"""The engine's server and those of the systems keep the same bounds on their clients. Real processes, real sockets."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: How often a server under test looks at its connections; by default that is every 15 s.
LOOK_SECONDS = 0.5
_QUICK = f"""
import runpy, sys
from holdfast.server import connection, run
connection.LOOK_SECONDS, run.GRACE_SECONDS = {LOOK_SECONDS}, 3600
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
SHOP = "from holdfast import Holdfast\napp = Holdfast('sqlite:///jobs.db')\n\n@app.task\nasync def convert(pdf: str): ...\n"

#: Each server: its module and arguments, a path that anybody may ask for, and one that takes a body.
SERVERS = {
    "engine": (("holdfast", "serve", "shop:app"), "/livez", "/api/v1/jobs"),
    "converter": (("systems.converter.web",), "/healthz", "/api/upload"),
    "reports": (("systems.reports.web",), "/healthz", "/reports"),
    "grading": (("systems.grading.web",), "/healthz", "/submissions"),
    "screenshots": (("systems.screenshots.web",), "/livez", "/api/v1/screenshots"),
    "gateway": (("systems.converter.gateway", "--size", "1"), "/healthz", "/convert"),
    "provider": (("systems.provider",), "/healthz", "/v1/chat/completions"),
}


class Running:
    """One server as a process of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        words, self.open_path, self.body_path = SERVERS[name]
        (folder / "shop.py").write_text(SHOP)
        environment = os.environ | {
            "DATABASE_URL": "sqlite:///data.db",
            "HOLDFAST_DATABASE_URL": "",
            "CALLBACK_SECRETS": "0123456789abcdef0123456789abcdef",
            "CALLBACK_SECRET": "0123456789abcdef0123456789abcdef",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), str(folder)]),
            "HOLDFAST_LOG_LEVEL": "error",
            **{
                name: str(folder / name.lower())
                for name in ("UPLOADS_DIR", "RESULTS_DIR", "AUDIO_DIR", "IMAGES_DIR")
            },
            "SESSION_KEY_FILE": str(folder / "session.key"),
            "LEDGER": str(folder / "ledger.db"),
        }
        self._log = (folder / "stderr").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _QUICK, *words, "--port", "0"],
            cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=self._log, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("ready: ", "API:")):
                self.port = int(line.split("://", 1)[1].split("/")[0].rpartition(":")[2])
                return
        self._log.seek(0)
        raise AssertionError(f"{name} did not start: {self._log.read()[-2000:]}")

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return code

    def connect(self, seconds: float = 60) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def ask(self, *lines: str, path: str | None = None, method: str = "GET", version: str = "1.1") -> bytes:
        """What is answered to a head with exactly these header lines; the server closes the connection after it."""
        head = "\r\n".join(
            [f"{method} {path or self.open_path} HTTP/{version}", *lines, "Connection: close", "", ""]
        )
        with self.connect() as asking:
            asking.sendall(head.encode("latin-1"))
            return read_all(asking)

    def memory(self) -> int:
        """The most memory it has used so far, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return 1024 * int(line.split()[1])

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def read_all(asking: socket.socket) -> bytes:
    told = b""
    with contextlib.suppress(ConnectionError):
        while more := asking.recv(65_536):
            told += more
    return told


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(request.param, tmp_path_factory.mktemp(request.param))
    try:
        yield running
    finally:
        running.stop()


def test_a_head_without_end_takes_no_memory(server: Running) -> None:  # E66
    before, sent, piece = server.memory(), 0, b"x" * 65_536
    with server.connect() as asking, contextlib.suppress(OSError):
        asking.sendall(f"GET {server.open_path} HTTP/1.1\r\nHost: localhost\r\nX-Long: ".encode())
        while sent < 200_000_000:
            sent += asking.send(piece)
    assert sent < 50_000_000  # the rest was on its way
    assert server.memory() - before < 50_000_000
    assert status(server.ask("Host: localhost")) == 200


def test_a_pipelined_head_without_end_takes_no_memory_either(server: Running) -> None:  # E66
    before, sent, piece = server.memory(), 0, b"x" * 65_536
    with server.connect() as asking, contextlib.suppress(OSError):
        first = f"GET {server.open_path} HTTP/1.1\r\nHost: localhost\r\n"
        asking.sendall(f"{first}\r\n{first}X-Long: ".encode())
        while sent < 200_000_000:
            sent += asking.send(piece)
    assert sent < 50_000_000
    assert server.memory() - before < 50_000_000


def test_trailers_without_end_take_no_memory_either(server: Running) -> None:  # E66
    before, sent, piece = server.memory(), 0, b"x" * 65_536
    with server.connect() as asking, contextlib.suppress(OSError):
        head = f"POST {server.open_path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        asking.sendall(head.encode() + b"1\r\na\r\n0\r\nX-Long: ")
        while sent < 200_000_000:
            sent += asking.send(piece)
    assert sent < 50_000_000
    assert server.memory() - before < 50_000_000


def test_a_crowd_of_half_sent_heads_is_closed_and_keeps_nobody_out(server: Running) -> None:  # E66
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2_500:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    with contextlib.ExitStack() as open_ones:
        crowd = [open_ones.enter_context(server.connect()) for _ in range(1_100)]
        for one in crowd:
            with contextlib.suppress(OSError):  # closed already
                one.sendall(f"GET {server.open_path} HTTP/1.1\r\nHost: localhost\r\nX-Slow: ".encode())
            if one is crowd[-1] or one is crowd[550]:
                assert status(server.ask("Host: localhost")) == 200
        for one in crowd:
            assert read_all(one) == b""


def test_a_body_that_stops_coming_is_given_up(server: Running) -> None:  # E66
    lines = ["Host: localhost", "Content-Type: application/json", "Content-Length: 1000"]
    head = "\r\n".join([f"POST {server.body_path} HTTP/1.1", *lines, "", ""])
    with server.connect() as asking:
        asking.sendall(head.encode() + b'{"half')
        read_all(asking)  # to the end of the connection


@pytest.mark.parametrize(
    "lines",
    [
        ["Host: ["],
        ["Host: [::g]"],
        ["Host: a b"],
        ["Host: a/b"],
        ["Host: a@b"],
        ["Host: "],
        [],
        ["Host: localhost", "Host: localhost"],
        ["Host: localhost", "Origin: http://["],
        ["Host: localhost", "Origin: nonsense"],
        ["Host: localhost", "Origin: http://localhost/path"],
        ["Host: localhost", "Origin: http://localhost", "Origin: http://localhost"],
    ],
    ids=lambda lines: " + ".join(lines) or "no Host",
)
def test_a_malformed_missing_or_doubled_host_or_origin_is_400(
    server: Running, lines: list[str]
) -> None:  # E66
    assert status(server.ask(*lines)) == 400


@pytest.mark.parametrize(
    "lines",
    [
        ["Host: localhost"],
        ["Host: my_service.internal:8000"],
        ["Host: [::1]:8000"],
        ["Host: 127.0.0.1", "Origin: null"],
        ["Host: 127.0.0.1", "Origin: http://[::1]:80"],
        ["Host: 127.0.0.1", "Origin: moz-extension://0f1e"],
    ],
    ids=" + ".join,
)
def test_a_proper_host_and_origin_are_taken(server: Running, lines: list[str]) -> None:
    assert status(server.ask(*lines)) == 200
    assert status(server.ask(version="1.0")) == 200  # which knows no Host


@pytest.mark.parametrize(
    "asked", [("GET", "open"), ("GET", "/nothing"), ("DELETE", "open"), ("GET", "malformed")], ids=str
)
def test_every_answer_has_its_security_headers_once(server: Running, asked: tuple[str, str]) -> None:  # E66
    method, path = asked
    if path == "malformed":
        with server.connect() as asking:
            asking.sendall(b"this is no request\r\n\r\n")
            answer = read_all(asking)
    else:
        answer = server.ask("Host: localhost", path=None if path == "open" else path, method=method)
    head = answer.lower().partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head.count(b"x-content-type-options: nosniff") == 1
    if path != "malformed":
        assert [line for line in head if line.startswith(b"cache-control:")] == [b"cache-control: no-store"]


def test_an_answer_that_nobody_reads_is_dropped(tmp_path: Path) -> None:  # E66
    running = Running("engine", tmp_path)
    try:
        before = running.open_files()
        crowd = []
        for _ in range(20):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            one.connect(("127.0.0.1", running.port))
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # the answers pile up, and then the requests
                for _ in range(500):
                    one.send(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            crowd.append(one)
        until = time.monotonic() + 60
        while running.open_files() > before + 2:
            assert time.monotonic() < until, running.open_files()
            time.sleep(0.1)
        for one in crowd:
            one.close()
    finally:
        running.stop()


def test_sigterm_ends_a_server_in_order(tmp_path: Path) -> None:
    running = Running("grading", tmp_path)
    with running.connect() as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(9) == b"HTTP/1.1 "
        assert running.stop() in (0, -15)  # it waits for requests only, not for an idle connection
        assert read_all(idle).endswith(b'{"status":"ok"}')


@pytest.mark.parametrize("name", ["converter", "grading"])
def test_an_open_page_does_not_delay_the_end_of_its_server(name: str, tmp_path: Path) -> None:  # E31
    running = Running(name, tmp_path)  # it would wait an hour for what runs
    with running.connect() as page:
        page.sendall(b"GET /changes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received = b""
        while b"event: changed" not in received:
            received += page.recv(65_536)
        running.stop()
        assert read_all(page).endswith(b"0\r\n\r\n")  # its stream has ended, and was not cut off
