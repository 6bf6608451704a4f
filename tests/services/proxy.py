"""A TCP proxy with faults that are switched while it runs, for blocking and async tests alike.

    with Proxy(server.host, server.port) as proxy:
        url = proxy.route(server.dsn)
        proxy.delay = 0.2            # each chunk, each way
        proxy.trickle = 1000         # bytes a second, each way
        proxy.black_hole = True      # nothing passes, nothing breaks; what was held passes when it ends
        proxy.refuse = True          # new connections are reset
        proxy.reset()                # live connections are reset now
        proxy.flap()                 # cut, refuse and let in again, three times within two seconds
        proxy.heal()

For PostgreSQL, the two ways a commit can be in doubt:

        meal = proxy.eat_answer()                   # the server commits, its answer is lost, the connection dies
        meal = proxy.eat_answer("INSERT")           # the next INSERT; None: any statement (and fetchval)
        meal = proxy.eat_request(b"COMMIT")         # the request is lost: the server never sees it
        assert meal.wait(20)                        # it has happened

`Proxy(host, port, postgres=False)` stands before any other server; its `eat_answer(words)` swallows the next bytes that
contain them, and cuts that connection.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")

LENGTH = struct.Struct("!I")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Meal(threading.Event):
    """What is to be eaten; set when it has been."""

    def __init__(self, what: bytes) -> None:
        super().__init__()
        self.what = what


class Cut(Exception):
    """This connection has to die."""


class Proxy:
    host = "127.0.0.1"

    def __init__(self, host: str, port: int, *, postgres: bool = True) -> None:
        self.target = (host, port)
        self._postgres = postgres
        self.port = 0
        self.heal()
        self._links: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None

    def heal(self) -> None:
        """No faults from now on."""
        self.delay = 0.0
        self.trickle = 0
        self.black_hole = False
        self.refuse = False
        self.answer_to_eat: Meal | None = None
        self.request_to_eat: Meal | None = None

    def reset(self) -> int:
        """Cut every live connection with a TCP reset; how many there were."""
        return self._call(self._reset())

    def flap(self, times: int = 3, seconds: float = 2.0) -> None:
        """As a server that comes and goes: away and back so often within so long, and back at the end."""
        for _ in range(times):
            self.refuse = True
            self.reset()
            time.sleep(seconds / times / 2)
            self.refuse = False
            time.sleep(seconds / times / 2)

    def eat_answer(self, tag: str | None = "COMMIT") -> Meal:
        """Swallow the next answer whose command tag starts so, once the server is done, and cut that connection."""
        self.answer_to_eat = Meal((tag or "").encode())
        return self.answer_to_eat

    def eat_request(self, containing: bytes = b"COMMIT") -> Meal:
        """Swallow the next bytes of a client that contain this, and cut that connection."""
        self.request_to_eat = Meal(containing)
        return self.request_to_eat

    def route(self, url: str) -> str:
        """The same URL, through this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{self.host}:{self.port}").geturl()

    @property
    def connections(self) -> int:
        return len(self._links)

    def start(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def close(self) -> None:
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- in the proxy's own thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        # None comes in any more, and those that are on their way become links first: links are what is reset.
        self._loop.remove_reader(self._server.sockets[0].fileno())
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await self._reset()
            await asyncio.sleep(0)
        self._server.close()
        await self._server.wait_closed()

    async def _reset(self) -> int:
        tasks = list(self._links)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return len(tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._links[task] = [writer]
        cut = True
        try:
            await self._while_black()
            if self.refuse:
                return
            up_reader, up_writer = await asyncio.open_connection(*self.target)
            writers.append(up_writer)
            pumps = {
                asyncio.create_task(self._pump(reader, up_writer, self._request)),
                asyncio.create_task(
                    self._pump(up_reader, writer, Answers(self) if self._postgres else self._answer)
                ),
            }
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                results = await asyncio.gather(*pumps, return_exceptions=True)
            cut = any(isinstance(result, Cut) for result in results)
        except asyncio.CancelledError:
            pass  # by reset(): the connection is cut below
        except OSError:
            pass  # the server is down: the client sees a reset
        finally:
            for end in writers:
                close(end, cut=cut)
            del self._links[task]

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, feed: Callable[[bytes], bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                chunk = feed(chunk)
                while chunk:
                    await self._while_black()
                    size = max(1, self.trickle // 20) if self.trickle else len(chunk)
                    writer.write(chunk[:size])
                    await writer.drain()
                    chunk = chunk[size:]
                    if self.trickle:
                        await asyncio.sleep(size / self.trickle)

    async def _while_black(self) -> None:
        while self.black_hole:  # noqa: ASYNC110 - a plain attribute is switched from any thread
            await asyncio.sleep(0.01)

    def _request(self, chunk: bytes) -> bytes:
        meal = self.request_to_eat
        if meal and meal.what in chunk:
            self.request_to_eat = None
            meal.set()
            raise Cut
        return chunk

    def _answer(self, chunk: bytes) -> bytes:
        meal = self.answer_to_eat
        if meal and meal.what in chunk:
            self.answer_to_eat = None
            meal.set()
            raise Cut
        return chunk


class Answers:
    """What a PostgreSQL server says on one connection: passed on as it comes, except what is to be eaten.

    An answer is rows (D), then its command tag (C), then, when the transaction's end is on disk, ReadyForQuery (Z).
    An answer cut short by a row limit, as asyncpg's fetchval and fetchrow ask for, ends with s and no tag instead.
    Rows are held back until their tag is known; what is eaten is eaten up to the Z, so the server is surely done.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.begun = False
        self.raw = bytearray()
        self.rows = bytearray()
        self.meal: Meal | None = None

    def __call__(self, chunk: bytes) -> bytes:
        self.raw += chunk
        out = bytearray()
        while message := self._next():
            kind = message[:1]
            if self.meal:
                if kind == b"Z":
                    self.meal.set()
                    raise Cut
            elif kind == b"D" and self.proxy.answer_to_eat:
                self.rows += message
            elif kind in (b"C", b"s") and self._matches(message[5:]):
                self.rows.clear()
            else:
                out += self.rows + message
                self.rows.clear()
        return bytes(out)

    def _next(self) -> bytes:
        if not self.raw:
            return b""
        # Before the session begins, a single byte answers a request for encryption.
        size = 1
        if self.begun or bytes(self.raw[:1]) not in (b"N", b"S", b"G"):
            self.begun = True
            if len(self.raw) < 5:
                return b""
            size += LENGTH.unpack_from(self.raw, 1)[0]
        if len(self.raw) < size:
            return b""
        message = bytes(self.raw[:size])
        del self.raw[:size]
        return message

    def _matches(self, tag: bytes) -> bool:
        meal = self.proxy.answer_to_eat
        if meal is None or not tag.startswith(meal.what):
            return False
        self.proxy.answer_to_eat = None
        self.meal = meal
        return True


def close(writer: asyncio.StreamWriter, *, cut: bool) -> None:
    """End a connection in order, or with a reset."""
    if cut:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.transport.abort()
    else:
        writer.close()
