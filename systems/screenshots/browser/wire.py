"""The messages between the browser's owner and its child process.

Each is sent as a length and MessagePack.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec

from systems.screenshots.codes import Code
from systems.screenshots.shot import Picture, Shot

#: The size of the largest message: a picture and its envelope.
MOST_BYTES = 64 << 20


class TakePicture(msgspec.Struct, frozen=True, tag=True):
    """Request number *number*: take this picture."""

    number: int
    shot: Shot


class CancelPicture(msgspec.Struct, frozen=True, tag=True):
    """The owner no longer waits for the picture of this request."""

    number: int


class PictureTaken(msgspec.Struct, frozen=True, tag=True):
    """The picture of a request."""

    number: int
    picture: Picture


class PictureFailed(msgspec.Struct, frozen=True, tag=True):
    """The failure of a request."""

    number: int
    code: Code
    detail: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child can take pictures."""


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """The child cannot start."""

    reason: str


ToChild = TakePicture | CancelPicture
ToOwner = Ready | StartFailed | PictureTaken | PictureFailed
T = TypeVar("T")


async def receive(reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """Read the next message. Raises `EOFError` when the other side is gone or sends something else."""
    try:
        size = int.from_bytes(await reader.readexactly(4))
        if size > MOST_BYTES:
            raise EOFError("the other side sends too much")
        return decoder.decode(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
        raise EOFError("the other side is gone") from error


def send(writer: asyncio.StreamWriter, message: ToChild | ToOwner) -> None:
    """Write *message*, without waiting until it is sent."""
    data = msgspec.msgpack.encode(message)
    writer.write(len(data).to_bytes(4) + data)
