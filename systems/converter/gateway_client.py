"""Asking the gateway: send a PDF, take in XML, and say what it was if that does not come."""

from __future__ import annotations

import xml.parsers.expat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import anyio.to_thread
import httpx2

from systems.common.parts import Part

_PIECE = 256 * 1024
#: More than this is no answer to a file of 50 MB.
MOST_XML = 1024**3


class BrokenAnswer(Exception):
    """The gateway said that all is well, and what it sent is not XML."""


class Wellformed:
    """Reads XML as it comes and keeps none of it. `BrokenAnswer` at the first thing that is wrong with it."""

    def __init__(self) -> None:
        self._parser = xml.parsers.expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._size = 0

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        self._size += len(piece)
        if self._size > MOST_XML:
            raise BrokenAnswer("the answer does not end")
        try:
            self._parser.Parse(piece, last)
        except xml.parsers.expat.ExpatError as error:
            raise BrokenAnswer(f"the answer is not XML: {error}") from None

    def _refuse(self, *_: Any) -> None:
        raise BrokenAnswer("the answer has a document type, which no mapping writes")


async def ask_gateway(
    client: httpx2.AsyncClient, pdf: Path, mapping: str, part: Part, *, correlation: str
) -> None:
    """Write the XML of *pdf* to *part*. Raises what httpx2 raises, `BrokenAnswer`, or `OSError` for our own disk."""
    source: IO[bytes] = await anyio.to_thread.run_sync(open, pdf, "rb")
    with source:
        size = source.seek(0, 2)
        source.seek(0)
        async with client.stream(
            "POST",
            "/convert",
            params={"mapping": mapping},
            content=_pieces(source),
            headers={"content-length": str(size), "x-request-id": correlation},
        ) as answer:
            if answer.status_code != 200:
                await answer.aread()
                answer.raise_for_status()
                raise BrokenAnswer(f"the gateway answered {answer.status_code}")
            reader = Wellformed()
            async for piece in answer.aiter_bytes(_PIECE):
                await anyio.to_thread.run_sync(_take, reader, part, piece)
            reader.feed(b"", last=True)


def _take(reader: Wellformed, part: Part, piece: bytes) -> None:
    reader.feed(piece)
    part.write(piece)


async def _pieces(source: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := await anyio.to_thread.run_sync(source.read, _PIECE):
        yield piece


def words_of(response: Any) -> str:
    """What the gateway gave as its reason, if it gave one."""
    try:
        detail = response.json()["detail"]
    except Exception:  # not JSON, not an object, no such key: an answer from who knows whom
        return ""
    return detail if isinstance(detail, str) else ""
