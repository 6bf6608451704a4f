"""A TCP proxy that injects faults, which are switched while it runs, for blocking and async callers alike.

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

        loss = proxy.lose_answer()                  # the server commits, its answer is lost, the connection dies
        loss = proxy.lose_answer("INSERT")          # the next INSERT; None: any statement (and fetchval)
        loss = proxy.lose_request(b"COMMIT")        # the request is lost: the server never sees it
        assert loss.wait(20)                        # it has happened

`Proxy(host, port, postgres=False)` stands before any other server; its `lose_answer(text)` drops the next bytes that
contain *text*, and cuts that connection.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from devservices.server import routed

T = TypeVar("T")

LENGTH = struct.Struct("!I")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Loss(threading.Event):
    """Bytes that the proxy will drop. The event is set when it has dropped them."""

    def __init__(self, what: bytes) -> None:
        super().__init__()
        self.what = what


class Cut(Exception):
    """Ends a connection by a reset."""


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
        """Inject no faults from now on."""
        self.delay = 0.0
        self.trickle = 0
        self.black_hole = False
        self.refuse = False
        self.answer_to_lose: Loss | None = None
        self.request_to_lose: Loss | None = None

    def reset(self) -> int:
        """Cut every live connection with a TCP reset, and return their number."""
        return self._call(self._reset())

    def flap(self, times: int = 3, seconds: float = 2.0) -> None:
        """Cut and refuse connections *times* times within *seconds*. At the end they pass again."""
        for _ in range(times):
            self.refuse = True
            self.reset()
            time.sleep(seconds / times / 2)
            self.refuse = False
            time.sleep(seconds / times / 2)

    def lose_answer(self, tag: str | None = "COMMIT") -> Loss:
        """Drop the next answer whose command tag starts with *tag*, once the server is done, and cut that connection."""
        self.answer_to_lose = Loss((tag or "").encode())
        return self.answer_to_lose

    def lose_request(self, containing: bytes = b"COMMIT") -> Loss:
        """Drop the next bytes of a client that contain *containing*, and cut that connection."""
        self.request_to_lose = Loss(containing)
        return self.request_to_lose

    def route(self, url: str) -> str:
        """Return the same URL, through this proxy."""
        return routed(url, self.host, self.port)

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
        # No connection comes in any more. Those on their way become links first, because only links are reset.
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
        loss = self.request_to_lose
        if loss and loss.what in chunk:
            self.request_to_lose = None
            loss.set()
            raise Cut
        return chunk

    def _answer(self, chunk: bytes) -> bytes:
        loss = self.answer_to_lose
        if loss and loss.what in chunk:
            self.answer_to_lose = None
            loss.set()
            raise Cut
        return chunk


class Answers:
    """The answers of a PostgreSQL server on one connection. They are passed on, except those that are to be lost.

    An answer is rows (D), then its command tag (C), then, when the transaction's end is on disk, ReadyForQuery (Z).
    An answer cut short by a row limit, as asyncpg's fetchval and fetchrow ask for, ends with s and no tag instead.
    Rows are held back until their tag is known. A lost answer is dropped up to the Z, so the server is surely done.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.begun = False
        self.raw = bytearray()
        self.rows = bytearray()
        self.loss: Loss | None = None

    def __call__(self, chunk: bytes) -> bytes:
        self.raw += chunk
        out = bytearray()
        while message := self._next():
            kind = message[:1]
            if self.loss:
                if kind == b"Z":
                    self.loss.set()
                    raise Cut
            elif kind == b"D" and self.proxy.answer_to_lose:
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
        loss = self.proxy.answer_to_lose
        if loss is None or not tag.startswith(loss.what):
            return False
        self.proxy.answer_to_lose = None
        self.loss = loss
        return True


def close(writer: asyncio.StreamWriter, *, cut: bool) -> None:
    """End a connection in order, or with a reset."""
    if cut:
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.transport.abort()
    else:
        writer.close()
