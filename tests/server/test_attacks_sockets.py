"""Attacks on the bytes: requests that two servers would cut differently, clients that never finish, heads without end.
Against real sockets, with each of the parsers that a server may have."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.server import connection, run
from holdfast.server.connection import LONGEST_HEAD, ClientConnection
from holdfast.server.run import listen, served
from tests.server.test_serving import BODY, Served, head, raw, status
from tests.server.world import API, new_app

pytestmark = pytest.mark.anyio

SMUGGLED = head(f"Content-Length: {len(BODY)}") + BODY


@pytest.fixture(params=[H11Protocol, HttpToolsProtocol], ids=["h11", "httptools"])
async def house(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    class Protocol(ClientConnection):
        inner_class = request.param

    monkeypatch.setattr(run, "ClientConnection", Protocol)
    monkeypatch.setattr(run, "KEEP_ALIVE_SECONDS", 3600)  # so that what closes a connection is what is tested
    app, listening = new_app(), listen("127.0.0.1", 0)
    async with served(app, listening, "127.0.0.1", rate=None) as server:
        assert server.config.http is Protocol
        house = Served(app, server.site)
        house.port = listening.getsockname()[1]
        yield house


async def until_closed(house: Served, sent: bytes, seconds: float, first: float | None = None) -> bytes:
    """All that comes back, the *first* of it within so many seconds. It is not read further where the server leaves the
    connection open for more requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    told = b""
    try:
        writer.write(sent)
        async with asyncio.timeout(first or seconds) as patience:
            while more := await reader.read(65_536):
                told += more
                patience.reschedule(asyncio.get_running_loop().time() + seconds)
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return told


async def stored(house: Served) -> int:
    return sum((await house.app.jobs.counts()).values())


#: One request for whoever believes the one header, two for whoever believes the other.
SMUGGLING = {
    "CL.TE": head(f"Content-Length: {5 + len(SMUGGLED)}", "Transfer-Encoding: chunked")
    + b"0\r\n\r\n"
    + SMUGGLED,
    "TE.CL": head("Transfer-Encoding: chunked", "Content-Length: 4")
    + f"{len(SMUGGLED):x}\r\n".encode()
    + SMUGGLED
    + b"\r\n0\r\n\r\n",
    "TE.TE": head("Transfer-Encoding: chunked", "Transfer-Encoding: identity") + b"0\r\n\r\n" + SMUGGLED,
    "TE with a tab": head("Transfer-Encoding:\tchunked", "Content-Length: 4") + b"0\r\n\r\n" + SMUGGLED,
    "TE with a space before the colon": head("Transfer-Encoding : chunked") + b"0\r\n\r\n" + SMUGGLED,
    "TE misspelled": head("Transfer-Encoding: xchunked", "Content-Length: 4") + b"0\r\n\r\n" + SMUGGLED,
    "TE in a list": head("Transfer-Encoding: chunked, identity") + b"0\r\n\r\n" + SMUGGLED,
    "TE wrapped up": head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n" + SMUGGLED,
    "CL.CL": head("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}") + SMUGGLED,
    "CL list": head(f"Content-Length: 0, {len(SMUGGLED)}") + SMUGGLED,
    "folded TE": head("Transfer-Encoding:\r\n chunked", "Content-Length: 4") + b"0\r\n\r\n" + SMUGGLED,
    "chunk size with a sign": head("Transfer-Encoding: chunked") + b"+0\r\n\r\n" + SMUGGLED,
    "chunk size in 0x": head("Transfer-Encoding: chunked") + b"0x0\r\n\r\n" + SMUGGLED,
    "chunk size without end": head("Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n" + SMUGGLED,
    "NUL in a name": head("X\x00-Y: 1", "Content-Length: 0") + SMUGGLED,
    "bare CR ends a line": head("X: 1\rContent-Length: 0") + SMUGGLED,
}


@pytest.mark.parametrize("name", SMUGGLING)
async def test_no_request_travels_inside_of_another(house: Served, name: str) -> None:  # E66
    told = await until_closed(house, SMUGGLING[name], seconds=1, first=20)
    assert status(told) in (400, 411, 413, 422, 501), told[:300]
    assert b" 201 " not in told
    assert await stored(house) == 0


@pytest.mark.parametrize(
    "line",
    [
        f"POST {API}/jobs",
        f"POST {API}/jobs HTTP/9.9",
        f"POST  {API}/jobs HTTP/1.1",
        f"PO\x00ST {API}/jobs HTTP/1.1",
        f"POST {API}/jobs\x00 HTTP/1.1",
        f"POST {API}/jo\nbs HTTP/1.1",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        "PRI * HTTP/2.0",
        "",
    ],
)
async def test_what_is_not_a_request_is_refused_and_the_server_goes_on(
    house: Served, line: str
) -> None:  # E66
    sent = f"{line}\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n".encode("latin-1")
    told = await until_closed(house, sent, seconds=0.5)
    assert not told or status(told) >= 400, told[:300]
    assert status(await raw(house, head(f"Content-Length: {len(BODY)}"), BODY)) == 201


@pytest.mark.parametrize("kind", ["one endless line", "endless lines", "an endless path"])
async def test_a_head_without_end_is_cut_off(house: Served, kind: str) -> None:  # E66
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    begin = {"one endless line": head("X: ")[:-4], "endless lines": head()[:-2], "an endless path": b"GET /"}[
        kind
    ]
    more = b"X-More: 1\r\n" * 500 if kind == "endless lines" else b"x" * 5000
    sent = len(begin)
    try:
        writer.write(begin)
        async with asyncio.timeout(30):
            while sent < 50 * LONGEST_HEAD and not reader.at_eof():
                writer.write(more)
                await writer.drain()
                sent += len(more)
                await asyncio.sleep(0)
    except ConnectionError:
        pass
    finally:
        writer.close()
    assert sent < 20 * LONGEST_HEAD  # what was on its way
    assert status(await raw(house, head(f"Content-Length: {len(BODY)}"), BODY)) == 201


#: Each holds a connection for as long as it is let.
SLOW = {
    "nothing": b"",
    "half a head": head("X-Slow: ")[:-4],
    "half a body": head("Content-Length: 1000") + b'{"task"',
    "a chunk that does not come": head("Transfer-Encoding: chunked") + b"5\r\nab",
    "half a head after a request": head(path="jobs", method="GET") + b"GET /api",
}


@pytest.mark.parametrize("name", SLOW)
async def test_who_does_not_finish_is_let_go(
    house: Served, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # E66
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
    writer.write(SLOW[name])
    async with asyncio.timeout(30):
        told = await reader.read()
    writer.close()
    assert told.startswith(b"HTTP/1.1 200" if "after" in name else b""), told
    assert await stored(house) == 0


async def test_who_waits_for_its_answer_is_not_let_go(house: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.05)
    kept = house.app.queues.workers

    async def slow() -> Any:
        await asyncio.sleep(0.5)
        return await kept()

    monkeypatch.setattr(house.app.queues, "workers", slow)
    assert status(await raw(house, head(path="workers", method="GET"))) == 200


async def test_a_crowd_that_never_finishes_keeps_nobody_waiting(house: Served) -> None:  # E66
    crowd = [await asyncio.open_connection("127.0.0.1", house.port) for _ in range(200)]
    drip = head("Content-Length: 100000")
    try:
        for number, (_, writer) in enumerate(crowd):
            writer.write(drip[: len(drip) - number % 3] if number % 2 else drip + b"x")
        for _ in range(10):
            for _, writer in crowd:
                writer.write(b"x")
            assert status(await raw(house, head(f"Content-Length: {len(BODY)}"), BODY)) == 201
    finally:
        for _, writer in crowd:
            writer.close()


def test_a_body_does_not_wait_for_the_acknowledgement_of_its_head() -> None:
    with listen("127.0.0.1", 0) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        with client, accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
