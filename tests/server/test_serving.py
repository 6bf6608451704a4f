"""A real server on loopback, and clients that lie about their bodies; and the API as a part of somebody else's site."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Holdfast
from holdfast.engine.access import Role
from holdfast.errors import UsageError
from holdfast.server import access, api, run
from holdfast.server.run import address_of, listen, make_server, served
from tests.server.world import API, House, new_app, new_house

pytestmark = pytest.mark.anyio

LIMIT = 1_000_000 + 64 * 1024
BODY = b'{"task": "convert", "args": {"pdf": "a"}}'


class Served(House):
    port: int = 0


@pytest.fixture
async def house() -> AsyncIterator[Served]:
    app = new_app()
    listening = listen("127.0.0.1", 0)
    async with served(app, listening, "127.0.0.1", rate=None) as server:
        house = Served(app, server.site)
        house.port = listening.getsockname()[1]
        yield house


async def raw(house: Served, *pieces: bytes, patience: float = 20) -> bytes:
    """Send bytes as they are; all that comes back until the server closes or waits for more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(patience):
            head = await reader.readuntil(b"\r\n\r\n")
            length = [
                int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            return head + (await reader.readexactly(length[0]) if length else await reader.read())
    finally:
        writer.close()


def head(*lines: str, path: str = "jobs", method: str = "POST") -> bytes:
    given = [
        f"{method} {API}/{path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        *lines,
        "",
        "",
    ]
    return "\r\n".join(given).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes(house: Served) -> None:  # E66
    for length in (LIMIT + 1, 10**10, 10**19):
        answer = await raw(house, head(f"Content-Length: {length}"))
        assert status(answer) == 413
        assert b'"TOO_LARGE"' in answer
        assert b"connection: close" in answer.lower()


async def test_a_body_without_end_is_cut_off_at_the_limit(house: Served) -> None:  # E66
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(head("Transfer-Encoding: chunked"))
    sent, chunk = 0, b" " * 65_536
    answered = asyncio.ensure_future(reader.readuntil(b"\r\n\r\n"))
    try:
        async with asyncio.timeout(20):
            while not answered.done() and sent < 50 * LIMIT:
                writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                try:
                    await writer.drain()
                except ConnectionError:
                    break
                sent += len(chunk)
                await asyncio.sleep(0)
            assert status(await answered) == 413
        assert sent < 10 * LIMIT  # what was on its way; a server that takes all of it never answers
    finally:
        writer.close()
    assert sum((await house.app.jobs.counts()).values()) == 0


@pytest.mark.parametrize(
    ("lines", "body"),
    [
        (["Content-Length: -5"], b""),
        (["Content-Length: +41"], BODY),
        (["Content-Length: 0x29"], BODY),
        (["Content-Length: 41, 5"], BODY),
        (["Content-Length: 41", "Content-Length: 5"], BODY),
        (["Content-Length: 41", "Transfer-Encoding: chunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding: gzip, chunked"], b"0\r\n\r\n"),
        (["Transfer-Encoding: chunked"], b"zz\r\n"),
        (["Content-Length: 10"], BODY),  # cut short: the rest is no request
        (["X-Bad: a\rb", "Content-Length: 41"], BODY),
        (["Content-Length: 41", "Bad Header: x"], BODY),
    ],
)
async def test_a_request_that_two_servers_would_cut_differently_is_refused(
    house: Served, lines: list[str], body: bytes
) -> None:  # E66
    answer = await raw(house, head(*lines), body)
    assert status(answer) in (400, 501)
    assert sum((await house.app.jobs.counts()).values()) == 0


async def test_line_breaks_in_an_id_are_inert(house: Served) -> None:  # E66
    answer = await raw(house, head(path="jobs/a%0d%0aX-Injected:%201", method="GET"))
    assert status(answer) == 404
    assert b"x-injected" not in answer.lower().partition(b"\r\n\r\n")[0]


async def test_clients_that_never_finish_do_not_keep_others_waiting(house: Served) -> None:  # E66
    slow = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(100)]
    try:
        for _, writer in slow:
            writer.write(head("Content-Length: 1000")[:-2] + b"X-Slow: ")
        assert status(await raw(house, head(f"Content-Length: {len(BODY)}"), BODY)) == 201
    finally:
        for _, writer in slow:
            writer.close()


async def test_a_server_believes_no_header_about_its_client(house: Served) -> None:  # E66
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{house.port}", verify=False) as client:
        assert (await client.get(f"{API}/jobs")).status_code == 200
        assert (await client.get(f"{API}/jobs", headers={"X-Forwarded-For": "127.0.0.1"})).status_code == 401
        assert "server" not in (await client.get(f"{API}/jobs")).headers


async def test_a_flood_of_guesses_refuses_no_valid_key_of_the_same_address(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.setattr(access, "CACHED_FOR", 0.01)  # so that the valid key is looked up again and again
    good, ends = await house.as_(Role.VIEWER), asyncio.Event()
    guessed: list[int] = []

    async def guess(name: int) -> None:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{house.port}", verify=False) as client:
            while not ends.is_set():
                key = {"Authorization": f"Bearer guess-{name}-{len(guessed)}"}
                guessed.append((await client.get(f"{API}/workers", headers=key)).status_code)

    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{house.port}", verify=False) as client:
        guessers = [asyncio.create_task(guess(name)) for name in range(8)]
        told = []
        while len(guessed) < 1_000:
            told.append((await client.get(f"{API}/workers", headers=good)).status_code)
            await asyncio.sleep(0.02)
        ends.set()
        await asyncio.gather(*guessers)
    assert set(told) == {200}
    assert set(guessed) == {401, 429}


# -- the end ------------------------------------------------------------------------------------------------------------
async def test_an_idle_connection_does_not_keep_the_server_from_stopping() -> None:
    listening = listen("127.0.0.1", 0)
    async with served(new_app(), listening, "127.0.0.1") as server:
        async with httpx2.AsyncClient() as client:
            assert (await client.get(f"{address_of(listening)}/livez")).status_code == 200
            assert server.server_state.connections
            server.stop()
    assert not server.server_state.connections


class Holding:
    """Keeps what an app is asked to store until it may go on."""

    def __init__(self, app: Holdfast) -> None:
        self.begun, self.go_on, self._send = asyncio.Event(), asyncio.Event(), app.runtime.send
        app.runtime.send = self.send  # type: ignore[method-assign, assignment]

    async def send(self, *jobs: Any) -> Any:
        self.begun.set()
        await self.go_on.wait()
        return await self._send(*jobs)


async def test_a_request_under_way_is_answered_before_the_server_ends() -> None:
    app, listening = new_app(), listen("127.0.0.1", 0)
    holding, address = Holding(app), address_of(listening)
    async with httpx2.AsyncClient(timeout=20) as client:
        async with served(app, listening, "127.0.0.1", rate=None) as server:
            json_body = {"task": "note", "args": {"text": "last"}}
            asked = asyncio.create_task(client.post(f"{address}{API}/jobs", json=json_body))
            await asyncio.wait_for(holding.begun.wait(), 20)
            server.stop()
            asyncio.get_running_loop().call_soon(holding.go_on.set)
        assert (await asked).status_code == 201


async def test_a_request_that_takes_too_long_is_cut_off_when_the_server_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "GRACE_SECONDS", 0.05)
    app, listening = new_app(), listen("127.0.0.1", 0)
    holding, address = Holding(app), address_of(listening)
    async with httpx2.AsyncClient(timeout=20) as client:
        async with served(app, listening, "127.0.0.1", rate=None):
            json_body = {"task": "note", "args": {"text": "late"}}
            asked = asyncio.create_task(client.post(f"{address}{API}/jobs", json=json_body))
            await asyncio.wait_for(holding.begun.wait(), 20)
        with pytest.raises(httpx2.HTTPError):
            (await asked).raise_for_status()


# -- who is let in ------------------------------------------------------------------------------------------------------
def test_keys_can_be_left_out_on_loopback_only() -> None:  # E66
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.com"):
        with pytest.raises(UsageError, match="loopback only"):
            make_server(new_app(), host, no_auth=True)
    make_server(new_app(), "127.0.0.1", no_auth=True)


async def test_beyond_loopback_everybody_needs_a_key() -> None:  # E66
    house = House(app := new_app(), make_server(app, "0.0.0.0").site)
    async with house.client("127.0.0.1") as client:
        assert (await client.get(f"{API}/jobs")).status_code == 401
        assert (await client.get(f"{API}/jobs", headers=await house.as_(Role.VIEWER))).status_code == 200


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        assert address_of(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(
            UsageError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use; choose"
        ):
            listen("127.0.0.1", port)


async def test_the_api_is_mounted_under_a_path_of_another_site() -> None:  # E49, E66
    inner = new_house()
    site = FastAPI()
    site.mount("/internal/holdfast", inner.site)
    house = House(inner.app, site, inner.secrets)
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        there = f"/internal/holdfast{API}"
        made = await client.post(f"{there}/jobs", json=json.loads(BODY))
        assert made.headers["location"] == f"{there}/jobs/{made.json()['id']}"
        assert (await client.get(made.headers["location"])).status_code == 200
        told = (await client.get(f"{there}/openapi.json")).json()
        assert told["servers"] == [{"url": "/internal/holdfast"}]
        assert (await client.delete(f"{there}/jobs")).headers["allow"] == "GET, POST"
        assert (await client.get(f"{there}/nothing")).json()["code"] == "NOT_FOUND"
        assert (await client.get(f"{API}/jobs")).status_code == 404
    async with house.client() as client:
        assert (await client.get(f"{there}/jobs")).status_code == 401


async def test_middleware_of_a_site_sees_which_route_of_a_mounted_api_was_called() -> None:
    """Monitoring names requests by it (`/jobs/{job_id}`). By the URL, every job would have a name of its own."""
    inner, seen = new_house(), list[str]()

    class Monitor:
        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self._app(scope, receive, send)
            seen.append(scope["route"].path)

    site = FastAPI()
    site.mount("/holdfast", inner.site)
    site.add_middleware(Monitor)
    house = House(inner.app, site, inner.secrets)
    async with house.client(headers=await house.as_(Role.ADMIN)) as client:
        assert (
            await client.get(f"/holdfast{API}/jobs/019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42")
        ).status_code == 404
        assert (await client.post(f"/holdfast{API}/jobs", json=json.loads(BODY))).status_code == 201
    assert seen == [f"{API}/jobs/{{job_id}}", f"{API}/jobs"]


def test_importing_holdfast_does_not_import_the_framework() -> None:
    code = (
        "import sys, holdfast, holdfast.app, holdfast.server; holdfast.Holdfast('memory://');"
        "print([name for name in ('fastapi', 'starlette', 'uvicorn', 'pydantic') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def test_an_app_without_the_framework_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.server.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[server\]'"):
        api(Holdfast("memory://"))


@pytest.mark.parametrize("command", ["serve", "up"])
def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path, command: str) -> None:  # E67
    (tmp_path / "shop.py").write_text(
        "from holdfast import Holdfast\napp = Holdfast('sqlite:///jobs.db')\n\n@app.task\nasync def convert(pdf: str): ...\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", command, "shop:app", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"HOLDFAST_DATABASE_URL": ""},
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        address = next(line for line in lines if line.startswith("API:")).removeprefix("API:").strip()
        made = httpx2.post(f"{address}/jobs", json=json.loads(BODY), timeout=30, verify=False)
        assert made.status_code == 201
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()
