"""The client for URLs that users gave, against real servers on loopback."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import TargetNotAllowed
from holdfast.outbound import HostUnreachable, Outbound
from holdfast.outbound.client import Resolve
from holdfast.values.addresses import networks
from tests.loopback import close

pytestmark = pytest.mark.anyio

LOOPBACK = networks("127.0.0.0/8")
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers every connection by *serve*, and keeps what was asked."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self._serve, self._context = serve, context
        self.asked: list[str] = []
        self.sent = 0
        self.names: list[str | None] = []

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._handle, "127.0.0.1", 0, ssl=self._context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        return self

    async def __aexit__(self, *error: object) -> None:
        await close(self._server)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.decode())
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def says(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return serve


def resolves_to(*answers: Sequence[str]) -> Resolve:
    """One answer after the other, the last for ever."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


async def post(client: Outbound, url: str) -> tuple[int, bytes]:
    answer = await client.call("POST", url, body=b'{"a": 1}', headers={"content-type": "application/json"})
    return answer.status, answer.body


async def test_it_sends_what_it_is_given_and_reads_the_answer() -> None:
    async with Server(
        says(b"HTTP/1.1 201 Created\r\nRetry-After: 7\r\ncontent-length: 2\r\n\r\nok")
    ) as server:
        client = Outbound(allowed=LOOPBACK, resolve=resolves_to(["127.0.0.1"]))
        answer = await client.call("POST", f"http://hooks.example:{server.port}/a?b=%20c", body=b"xyz")
    assert (answer.status, answer.body, answer.headers["retry-after"]) == (201, b"ok", "7")
    [asked] = server.asked
    assert asked.startswith("POST /a?b=%20c HTTP/1.1\r\n")
    assert f"host: hooks.example:{server.port}\r\n" in asked.lower()
    assert "content-length: 3\r\n" in asked.lower()


async def test_loopback_is_closed_unless_it_is_allowed() -> None:  # E61
    async with Server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as server:
        with pytest.raises(TargetNotAllowed):
            await post(Outbound(), server.url)
        with pytest.raises(TargetNotAllowed):
            await post(Outbound(resolve=resolves_to(["127.0.0.1"])), f"http://hooks.example:{server.port}/")
    assert server.asked == []


async def test_one_closed_address_among_the_answers_is_enough() -> None:
    client = Outbound(resolve=resolves_to(["93.184.216.34", "10.0.0.1"]))
    with pytest.raises(TargetNotAllowed):
        await post(client, "http://hooks.example/")


async def test_a_name_that_answers_differently_the_second_time_gains_nothing() -> None:  # E61
    """What was checked is what is connected to: the server behind the other answer is never spoken to."""
    outside = networks("192.0.2.0/24")  # leads nowhere, but is not refused
    async with Server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as inside:
        # To whoever asks again, this very name leads inside.
        url = f"http://localhost:{inside.port}/"
        client = Outbound(resolve=resolves_to(["192.0.2.1"], ["127.0.0.1"]), allowed=outside)
        await client.check_address(url)  # as when it was saved
        with pytest.raises(TargetNotAllowed):
            await post(client, url)
        client = Outbound(resolve=resolves_to(["192.0.2.1"], ["127.0.0.1"]), allowed=outside, seconds=0.3)
        with pytest.raises((TimeoutError, HostUnreachable)):
            await post(client, url)
    assert inside.asked == []


async def test_a_redirect_is_an_answer_like_any_other() -> None:  # E61
    async with Server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as inside:
        answer = f"HTTP/1.1 302 Found\r\nlocation: {inside.url}\r\ncontent-length: 0\r\n\r\n".encode()
        async with Server(says(answer)) as server:
            assert await post(Outbound(allowed=LOOPBACK), server.url) == (302, b"")
    assert inside.asked == []


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Server(says(b"HTTP/1.1 200 OK\r\n\r\n")) as proxy,
        Server(says(b"HTTP/1.1 204 No Content\r\n\r\n")) as server,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert (await post(Outbound(allowed=LOOPBACK), server.url))[0] == 204
    assert proxy.asked == []


async def test_an_endless_answer_is_read_to_a_bound() -> None:  # E61
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()
            sent += 10_000

    async with Server(endless) as server:
        status, body = await post(Outbound(allowed=LOOPBACK), server.url)
        assert (status, len(body)) == (200, 64_000)
        answer = await Outbound(allowed=LOOPBACK).call("POST", server.url, most=0)
        assert (answer.status, answer.body) == (200, b"")
    assert sent < 30_000_000


async def test_a_bomb_is_not_unpacked() -> None:  # E61
    bomb = gzip.compress(b"0" * 50_000_000)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(bomb)}\r\n\r\n".encode()
    async with Server(says(head + bomb)) as server:
        _, body = await post(Outbound(allowed=LOOPBACK), server.url)
    assert body == bomb[:64_000]
    assert "accept-encoding: identity" in server.asked[0].lower()


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nx: "])
async def test_a_slow_drip_ends_when_its_time_is_up(before: bytes) -> None:  # E61
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(before or b"H")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with Server(drip) as server:
        async with asyncio.timeout(30) as bound:
            with pytest.raises((TimeoutError, HostUnreachable)):
                await post(Outbound(allowed=LOOPBACK, seconds=0.3), server.url)
        assert not bound.expired()


async def test_a_body_that_drips_ends_when_its_time_is_up() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with Server(drip) as server:
        with pytest.raises(TimeoutError, match=r"no answer within 0\.3 s"):
            await post(Outbound(allowed=LOOPBACK, seconds=0.3), server.url)
        assert (await Outbound(allowed=LOOPBACK).call("POST", server.url, most=0)).status == 200


@pytest.mark.parametrize(
    "answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 999999 X\r\n\r\n", b"\x00" * 500_000]
)
async def test_what_does_not_speak_http_is_unreachable(answer: bytes) -> None:
    async with Server(says(answer)) as server:
        with pytest.raises(HostUnreachable, match=r"^it could not be reached$"):
            await post(Outbound(allowed=LOOPBACK), server.url)


async def test_nobody_there_is_unreachable() -> None:
    async with Server(says(b"")) as server:
        port = server.port

    async def fails(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(HostUnreachable):
        await post(Outbound(allowed=LOOPBACK), f"http://127.0.0.1:{port}/")
    with pytest.raises(HostUnreachable):
        await post(Outbound(resolve=fails), "http://hooks.example/")


async def test_another_address_of_the_same_name_is_tried() -> None:
    async with Server(says(b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        client = Outbound(allowed=LOOPBACK, resolve=resolves_to(["127.0.0.9", "127.0.0.1"]))
        assert (await post(client, f"http://hooks.example:{server.port}/"))[0] == 204


@asynccontextmanager
async def tls_server(tmp_path: Path, name: str) -> AsyncIterator[tuple[Server, ssl.SSLContext]]:
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", f"{tmp_path}/key", "-out", f"{tmp_path}/cert", "-subj", f"/CN={name}"]
    subprocess.run(
        ["openssl", *made, *files, "-addext", f"subjectAltName=DNS:{name}"], check=True, capture_output=True
    )
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(f"{tmp_path}/cert", f"{tmp_path}/key")
    async with Server(says(b"HTTP/1.1 204 No Content\r\n\r\n"), theirs) as server:
        theirs.set_servername_callback(lambda sock, asked, context: server.names.append(asked))
        yield server, ssl.create_default_context(cafile=f"{tmp_path}/cert")


async def test_the_name_stays_in_the_handshake_and_the_certificate_is_checked(tmp_path: Path) -> None:  # E61
    resolve = resolves_to(["127.0.0.1"])
    async with tls_server(tmp_path, "hooks.example") as (server, trusting):
        client = Outbound(allowed=LOOPBACK, resolve=resolve, context=trusting)
        assert (await post(client, f"https://hooks.example:{server.port}/"))[0] == 204
        assert server.names == ["hooks.example"]
        for context, host in ((trusting, "other.example"), (None, "hooks.example")):
            client = Outbound(allowed=LOOPBACK, resolve=resolve, context=context)
            with pytest.raises(HostUnreachable, match="certificate cannot be trusted"):
                await post(client, f"https://{host}:{server.port}/")
