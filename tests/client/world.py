"""A live API on loopback with a real worker on SQLite, a doorman before it who can be rude, and short words for clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import isasyncgen, iscoroutine
from pathlib import Path
from typing import Any, TypeVar

from holdfast import Cron, Fatal, Holdfast
from holdfast.client import AsyncClient, Client
from holdfast.client.environment import RealEnvironment
from holdfast.server.run import address_of, listen, served
from tests.loopback import close

T = TypeVar("T")
WAIT = "20s"


def new_app(url: str) -> Holdfast:
    app = Holdfast(url, poll="20ms", outbound_allow="127.0.0.0/8")

    @app.task(http=True)
    async def convert(pdf: str, pages: int = 1) -> str:
        return f"{pdf}:{pages}"

    @app.task(depends_on="gateway")
    async def refuse(why: str) -> str:
        raise Fatal(why, code="REFUSED")

    app.schedule(convert, Cron("0 3 * * *"), name="nightly", args={"pdf": "n"})
    return app


@dataclass
class Live:
    """The API and everything behind it, in a thread of its own."""

    app: Holdfast
    loop: asyncio.AbstractEventLoop
    url: str
    port: int
    key: str  #: of an admin

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def new_key(self, role: str, owner: str | None = None) -> str:
        return self.do(self.app.keys.create(role, owner=owner))[1]

    @contextmanager
    def doorman(self) -> Iterator[Doorman]:
        doorman = Doorman(self.port)
        self.do(doorman.open())
        try:
            yield doorman
        finally:
            self.do(doorman.close())

    def cut(self, doorman: Doorman) -> None:
        self.loop.call_soon_threadsafe(doorman.cut)


@contextmanager
def living(folder: Path) -> Iterator[Live]:
    ready: list[Live] = []
    up, stop = threading.Event(), asyncio.Event()

    async def run() -> None:
        app = new_app(f"sqlite:///{folder}/live.db")
        with listen("127.0.0.1", 0) as listening:
            async with app, served(app, listening, "127.0.0.1", rate=None):
                working = asyncio.create_task(app.run_worker(concurrency=4))
                _, secret = await app.keys.create("admin", name="tests")
                port = listening.getsockname()[1]
                ready.append(Live(app, asyncio.get_running_loop(), address_of(listening), port, secret))
                up.set()
                await stop.wait()
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    def go() -> None:
        try:
            asyncio.run(run())
        finally:
            up.set()

    thread = threading.Thread(target=go, name="live")
    thread.start()
    up.wait(20)
    try:
        yield ready[0]
    finally:
        if ready:
            ready[0].loop.call_soon_threadsafe(stop.set)
        thread.join(20)


class Doorman:
    """Stands before the API. What he does to each new connection is in *orders*; with none he lets it pass.

    bytes: he answers so himself. `LOSE`: the request arrives, its answer does not. `SHUT`: he takes it and hangs up.
    """

    LOSE, SHUT = "lose", "shut"

    def __init__(self, port: int) -> None:
        self._target = port
        self.orders: list[bytes | str] = []
        self.seen: list[bytes] = []  #: the first bytes of every connection
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def close(self) -> None:
        await close(self._server)
        self.cut()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Break all connections now."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.read(65536)
        if not request:
            return
        self.seen.append(request)
        order = self.orders.pop(0) if self.orders else None
        if isinstance(order, bytes):
            writer.write(order)
            await writer.drain()
            return
        if order == self.SHUT:
            return
        inner_reader, inner = await asyncio.open_connection("127.0.0.1", self._target)
        self._open.add(inner)
        try:
            inner.write(request)
            if order == self.LOSE:
                rest = asyncio.create_task(_pipe(reader, inner))  # a body may come after its head
                await inner_reader.read(1)
                rest.cancel()
                return
            back = asyncio.create_task(_pipe(inner_reader, writer))
            await _pipe(reader, inner)
            await back
        finally:
            self._open.discard(inner)
            inner.transport.abort()


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
        sink.close()


def canned(status: int, body: str = "", *headers: str, media: str = "application/problem+json") -> bytes:
    head = [f"HTTP/1.1 {status} Told", f"Content-Length: {len(body.encode())}", "Connection: close"]
    head += [f"Content-Type: {media}", *headers, "", body]
    return "\r\n".join(head).encode()


class Hurried(RealEnvironment):
    """Pauses are written down and not waited for."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.keys = 0

    def new_key(self) -> str:
        self.keys += 1
        return super().new_key()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        super().sleep(min(seconds, 0.02))

    async def sleep_async(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await super().sleep_async(min(seconds, 0.02))


class Driven:
    """An `AsyncClient` that is called as if it were a `Client`: one text for both."""

    def __init__(self, *given: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*given, **options)
        self._streams: list[AsyncIterator[Any]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)

        def call(*given: Any, **options: Any) -> Any:
            made = verb(*given, **options)
            if iscoroutine(made):
                return self._runner.run(made)
            assert isasyncgen(made)
            return self._drive(made)

        return call

    def _drive(self, stream: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(stream))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(stream.aclose())

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


#: Each is called by the same tests.
CLIENTS: dict[str, Callable[..., Any]] = {"sync": Client, "async": Driven}
