"""No test leaves a connection to the collector because a server of its closed at the wrong moment."""

import asyncio
import gc
import socket
from collections.abc import Iterator
from contextlib import contextmanager

CLOSED = b""


@contextmanager
def without_collecting() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def call(server: asyncio.Server) -> socket.socket:
    return socket.create_connection(server.sockets[0].getsockname(), timeout=5)


async def one_more_turn_of_the_loop() -> None:
    await asyncio.sleep(0)


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def test_a_connection_on_its_way_in_ends_with_its_server() -> None:
    async def close_meanwhile() -> socket.socket:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        caller = call(server)
        await one_more_turn_of_the_loop()
        await one_more_turn_of_the_loop()  # accepted, and not yet known to the server
        server.close()
        return caller

    with without_collecting(), asyncio.run(close_meanwhile()) as caller:
        assert caller.recv(1) == CLOSED


def test_a_connection_nobody_began_to_serve_ends_with_the_loop() -> None:
    async def cancel_all_before_they_begin() -> socket.socket:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        caller = call(server)
        while not (serving := [task for task in asyncio.all_tasks() if "hang_up" in repr(task)]):
            await one_more_turn_of_the_loop()
        serving[0].cancel()
        server.close()
        return caller

    with without_collecting(), asyncio.run(cancel_all_before_they_begin()) as caller:
        assert caller.recv(1) == CLOSED
