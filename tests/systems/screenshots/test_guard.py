"""The guard by itself: what it refuses and how, what it passes on and how much of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from holdfast import UsageError
from holdfast.outbound import Resolve, TargetNotAllowed
from systems.screenshots.guard import Bounds, Guard, Pass, Rules, Violation, proxy
from systems.screenshots.guard.proxy import NAME_SECONDS, REFUSAL, REFUSAL_SECONDS
from tests.closed_addresses import CLOSED
from tests.systems.screenshots.places import Inside, Web, forever


async def nobody(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host}:{port} was looked up")


def answering(*answers: Sequence[str]) -> tuple[Resolve, list[str]]:
    """A resolver that gives these answers in turn, the last of them for ever; and what it was asked."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return resolve, asked


@asynccontextmanager
async def admitted(
    *allowed: tuple[str, int], resolve: Resolve = nobody, bounds: Bounds | None = None
) -> AsyncIterator[tuple[Pass, list[Violation]]]:
    told: list[Violation] = []
    guard = Guard(Rules(allowed=frozenset(allowed)), bounds=bounds, resolve=resolve)
    async with guard.admit(told.append) as given:
        yield given, told


async def ask(port: int, request: str | bytes) -> bytes:
    """All that the guard answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode() if isinstance(request, str) else request)
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def get(url: str, *headers: str) -> str:
    return "\r\n".join([f"GET {url} HTTP/1.1", "Host: whatever", *headers, "", ""])


def connect(authority: str) -> str:
    return f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"


def bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@pytest.mark.parametrize("way", [connect, lambda place: get(f"http://{place}/")], ids=["connect", "get"])
async def test_all_closed_addresses_get_one_answer_equal_in_text_and_time(
    way: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:  # S1
    """The time is that of `_hold`, which every refusal goes through; another test measures that by a clock of its own."""
    assert len(CLOSED) == 37
    hold, held = proxy._wait_for_multiple, list[float]()

    async def noted(began: float, every: float = REFUSAL_SECONDS) -> None:
        held.append(every)
        await hold(began, every)

    monkeypatch.setattr(proxy, "_wait_for_multiple", noted)

    async def timed(address: str) -> tuple[bytes, float]:
        async with admitted() as (given, told):
            began = time.monotonic()
            answer = await ask(given.port, way(f"{bracketed(address)}:443"))
            assert told == [Violation.BLOCKED]
            return answer, time.monotonic() - began

    answers = await asyncio.gather(*map(timed, CLOSED))
    assert {answer for answer, _ in answers} == {REFUSAL}
    assert all(seconds >= REFUSAL_SECONDS for _, seconds in answers)
    assert held == [REFUSAL_SECONDS] * len(CLOSED)


@pytest.mark.parametrize("way", [connect, lambda place: get(f"http://{place}/")], ids=["connect", "get"])
async def test_a_name_that_leads_to_a_closed_address_is_answered_like_one_that_does_not_exist(
    way: Callable[[str], str],
) -> None:  # S1
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("unknown")

    async def asked(resolve: Resolve) -> tuple[bytes, list[Violation], bool]:
        async with admitted(resolve=resolve) as (given, told):
            began = time.monotonic()
            answer = await ask(given.port, way("pages.example:443"))
            return answer, told, time.monotonic() - began >= NAME_SECONDS

    # One that is open beside it changes nothing.
    closed = [answering(["93.184.216.34", address])[0] for address in [*CLOSED, "fe80::1%lo"]]
    nothing, *answers = await asyncio.gather(*map(asked, [unknown, *closed]))
    assert nothing[1:] == ([], True)
    assert all(answer == nothing for answer in answers)


@pytest.mark.parametrize("took", [0.0, 0.2, 1.3])
async def test_the_time_of_a_lookup_does_not_tell_what_it_found(
    monkeypatch: pytest.MonkeyPatch, took: float
) -> None:  # S1
    now, slept = asyncio.get_running_loop().time(), []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now + took)
    await proxy._wait_for_multiple(now, NAME_SECONDS)
    monkeypatch.undo()
    assert took + slept[0] == pytest.approx(NAME_SECONDS if took < NAME_SECONDS else 3 * NAME_SECONDS)


@pytest.mark.parametrize(
    "place",
    [
        "127.1:80",
        "2130706433:80",
        "0x7f000001:80",
        "0177.0.0.1:80",
        "a@127.0.0.1:80",
        "127.0.0.1.:80",
        "%6c:80",
    ],
)
async def test_other_spellings_of_an_address_are_refused_and_not_looked_up(place: str) -> None:  # S1
    async with admitted() as (given, told):
        assert await ask(given.port, get(f"http://{place}/")) == REFUSAL
        assert told == [Violation.BLOCKED]


@pytest.mark.parametrize("port", [22, 25, 5432, 6379, 8080, 65535])
async def test_ports_other_than_the_two_of_the_web_are_closed(port: int) -> None:  # S1
    async with admitted() as (given, told):
        assert await ask(given.port, connect(f"93.184.216.34:{port}")) == REFUSAL
        assert told == [Violation.BLOCKED]


async def test_a_name_that_answers_differently_the_second_time_gains_nothing() -> None:  # S1
    # The open place and the inner one share a port, so that only the address tells them apart.
    with Web("127.0.0.2") as web, Inside("127.0.0.1", web.port) as inside:
        web.page("/", "external")
        resolve, asked = answering(["127.0.0.2"], ["127.0.0.1"])
        async with admitted(("127.0.0.2", web.port), resolve=resolve) as (given, told):
            first = await ask(given.port, get(f"http://rebinding.example:{web.port}/"))
            assert first.endswith(b"external")
            assert asked == [
                "rebinding.example"
            ]  # once: between the check and the connection nobody is asked
            assert told == []
            assert await ask(given.port, get(f"http://rebinding.example:{web.port}/")) == b""
            assert (asked, told) == (["rebinding.example"] * 2, [])
        assert not inside.reached


async def test_a_request_is_passed_on_in_the_form_of_its_server(web: Web) -> None:
    web.page("/page", "hello", Alt_Svc='h3=":443"')
    async with admitted((web.host, web.port)) as (given, told):
        asked = get(
            f"{web.url}/page?a=\\b", "Proxy-Connection: keep-alive", "Proxy-Authorization: x", "X-Own: kept"
        )
        head, _, body = (await ask(given.port, asked)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"connection: close" in head.lower()
    assert b"alt-svc" not in head.lower()
    assert body == b"hello"
    sent = web.heads[-1].lower()
    assert "proxy-" not in sent
    assert "x-own: kept" in sent
    assert f"host: {web.host}:{web.port}" in sent
    assert told == []


async def test_a_second_request_on_the_same_connection_is_not_passed_on() -> None:  # S1
    behind: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
        )  # and it does not close, though asked to
        behind.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, admitted(("127.0.0.1", server.sockets[0].getsockname()[1])) as (given, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", given.port)
        writer.write((get(f"{url}/first") + get(f"{url}/second")).encode())
        answer = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
        assert answer.endswith(b"Connection: close\r\n\r\n1")
        writer.close()
        async with asyncio.timeout(20):
            assert await behind == b""


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1\r\n\r\n",
        "GET https://example.com/ HTTP/1.1\r\n\r\n",
        "GET file:///etc/passwd HTTP/1.1\r\n\r\n",
        "GET ftp://example.com/ HTTP/1.1\r\n\r\n",
        "CONNECT example.com HTTP/1.1\r\n\r\n",
        "CONNECT example.com:99999999 HTTP/1.1\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\n folded: x\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\nA: b\nHost: c\r\n\r\n",
        "\x16\x03\x01\x02\x00\r\n\r\n",
        "GET http://example.com/" + "a" * 100_000 + " HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_a_request_of_a_browser_is_not_answered(head: str) -> None:
    async with admitted() as (given, _):
        assert await ask(given.port, head) == b""


@pytest.mark.parametrize(
    "length", ["Transfer-Encoding: chunked", "Content-Length: 1\r\nContent-Length: 2", "Content-Length: -1"]
)
async def test_a_body_without_one_plain_length_is_not_passed_on(web: Web, length: str) -> None:
    seen = len(web.asked)
    async with admitted((web.host, web.port)) as (given, _):
        assert await ask(given.port, get(f"{web.url}/page", length)) == b""
    assert len(web.asked) == seen


async def test_tunnels_and_upgrades_carry_bytes_both_ways() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"connection: upgrade" in head.lower()
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        writer.write(await reader.readexactly(4))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upgrade = "GET {} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nping"
    async with server, admitted(("127.0.0.1", port)) as (given, told):
        direct = await ask(given.port, upgrade.format(f"http://127.0.0.1:{port}/"))
        tunnelled = await ask(given.port, connect(f"127.0.0.1:{port}") + upgrade.format("/"))
    assert direct.startswith(b"HTTP/1.1 101")
    assert direct.endswith(b"\r\n\r\nping")
    assert tunnelled.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 101")
    assert tunnelled.endswith(b"\r\n\r\nping")
    assert told == []


async def test_what_cannot_be_reached_is_no_refusal() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError("unknown")

    with Inside() as closed:
        port = closed.port
    async with admitted(("127.0.0.1", port), resolve=unknown) as (given, told):
        assert await ask(given.port, get("http://nosuch.example/")) == b""
        assert (await ask(given.port, connect(f"127.0.0.1:{port}"))).startswith(b"HTTP/1.1 502 ")
        assert told == []


async def test_more_bytes_than_a_job_may_move_end_it(web: Web) -> None:  # S1
    web.answer("/endless", forever)
    bounds = Bounds(bytes_down=1_000_000)
    async with admitted((web.host, web.port), bounds=bounds) as (given, told):
        got = await ask(given.port, get(f"{web.url}/endless"))
        assert len(got) <= 1_000_000 + 1000
        assert told == [Violation.TOO_MUCH]


async def test_more_bytes_than_a_job_may_send_end_it(web: Web) -> None:
    async with admitted((web.host, web.port), bounds=Bounds(bytes_up=100_000)) as (given, told):
        await ask(given.port, get(f"{web.url}/page", "Content-Length: 500000").encode() + b"x" * 500_000)
        assert told == [Violation.TOO_MUCH]


async def test_more_connections_than_a_job_may_open_end_it(web: Web) -> None:
    web.page("/page", "hello")
    async with admitted((web.host, web.port), bounds=Bounds(connections=3)) as (given, told):
        answers = [await ask(given.port, get(f"{web.url}/page")) for _ in range(4)]
        assert [bool(answer) for answer in answers] == [True, True, True, False]
        assert told == [Violation.TOO_MUCH]


async def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    async with admitted(bounds=Bounds(head_seconds=0.1)) as (given, _):
        assert await ask(given.port, "GET http://slow.exam") == b""


async def test_the_end_of_a_job_ends_its_connections() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        async with admitted(("127.0.0.1", port)) as (given, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", given.port)
            writer.write(connect(f"127.0.0.1:{port}").encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", given.port)


def test_settings_open_ports_and_single_places() -> None:
    rules = Rules.read(
        {"SCREENSHOTS_PORTS": "8080, 8443", "SCREENSHOTS_ALLOW": "127.0.0.1:8001 [::1]:8002,Pages.test:81"}
    )
    assert rules.ports == {80, 443, 8080, 8443}
    assert rules.allowed == {("127.0.0.1", 8001), ("::1", 8002), ("pages.test", 81)}
    rules.target("http://127.0.0.1:8001/")
    rules.target("http://93.184.216.34:8443/")
    for closed in (
        "http://127.0.0.1:8002/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8443/",
        "http://93.184.216.34:8001/",
    ):
        with pytest.raises(TargetNotAllowed):
            rules.target(closed)
    assert Rules.read({}) == Rules()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("PORTS", "http"),
        ("PORTS", "0"),
        ("PORTS", "70000"),
        ("ALLOW", "127.0.0.1"),
        ("ALLOW", ":80"),
        ("ALLOW", "a:b"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named_in_one_line(variable: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"SCREENSHOTS_{variable} contains '.*'; it is a list of") as told:
        Rules.read({f"SCREENSHOTS_{variable}": text})
    assert "\n" not in str(told.value)
