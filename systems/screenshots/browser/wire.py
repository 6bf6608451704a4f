"""What passes between the browser's owner and the child: a length, then a message."""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from systems.screenshots.codes import Code
from systems.screenshots.shot import Picture, Shot

#: The largest message: a picture with something around it.
MOST_BYTES = 64 << 20


class Order(msgspec.Struct, frozen=True, tag=True):
    number: int
    shot: Shot


class Drop(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for this order any more."""

    number: int


class Taken(msgspec.Struct, frozen=True, tag=True):
    number: int
    picture: Picture


class Refused(msgspec.Struct, frozen=True, tag=True):
    number: int
    code: Code
    detail: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class Broken(msgspec.Struct, frozen=True, tag=True):
    """The child cannot begin."""

    reason: str


ToChild = Order | Drop
ToOwner = Ready | Broken | Taken | Refused
T = TypeVar("T")


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """`EOFError` when the other side is gone, or speaks of something else."""
    try:
        size = int.from_bytes(await reader.readexactly(4))
        if size > MOST_BYTES:
            raise EOFError("the other side sends too much")
        return decoder.decode(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
        raise EOFError("the other side is gone") from error


def send(writer: asyncio.StreamWriter, message: ToChild | ToOwner) -> None:
    data = msgspec.msgpack.encode(message)
    writer.write(len(data).to_bytes(4) + data)
