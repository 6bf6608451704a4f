"""The client of the gateway: send a PDF, check the XML that comes back, and write it to disk."""

from __future__ import annotations

import os
import xml.parsers.expat
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx2

from systems.common.parts import Part
from systems.common.threads import in_thread

_PIECE = 256 * 1024
#: The largest XML that is accepted, in bytes. No PDF of 50 MB results in more.
MAX_XML = 1024**3


class BrokenAnswer(Exception):
    """The gateway answered with success, but its response is not well-formed XML."""


class Wellformed:
    """An incremental check that XML is well-formed. It keeps nothing of what it reads."""

    def __init__(self) -> None:
        self._parser = xml.parsers.expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._size = 0

    def feed(self, piece: bytes, *, last: bool = False) -> None:
        """Check the next piece. Raise `BrokenAnswer` at the first error."""
        self._size += len(piece)
        if self._size > MAX_XML:
            raise BrokenAnswer("the answer does not end")
        try:
            self._parser.Parse(piece, last)
        except xml.parsers.expat.ExpatError as error:
            raise BrokenAnswer(f"the answer is not XML: {error}") from None

    def _refuse(self, *_: Any) -> None:
        raise BrokenAnswer("the answer has a document type, which no mapping writes")


class Source:
    """A PDF to send.

    It is opened in a thread, since that reads from disk; *first* holds all of a small file.
    """

    def __init__(self, pdf: Path) -> None:
        self._file = pdf.open("rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size
        self.first = self._file.read(_PIECE)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    @property
    def content(self) -> bytes | AsyncIterator[bytes]:
        return self.first if self.size == len(self.first) else self._pieces()

    async def _pieces(self) -> AsyncIterator[bytes]:
        piece = self.first
        while piece:
            yield piece
            piece = await in_thread(self._file.read, _PIECE)


async def ask_gateway(
    client: httpx2.AsyncClient, source: Source, mapping: str, part: Part, *, correlation: str
) -> int:
    """Send *source*, publish the XML as *part*, and return the status of the response.

    A call in a thread costs as much as reading a small file. So each piece is held until the next one comes,
    and the last piece, mostly the only one, is written and published in a single call.

    Raises:
        httpx2.HTTPError: The gateway failed or cannot be reached.
        BrokenAnswer: The response is not XML.
        OSError: The local disk failed.
    """
    reader, held = Wellformed(), b""
    async with client.stream(
        "POST",
        _address(client.base_url, mapping),
        content=source.content,
        headers={"content-length": str(source.size), "x-request-id": correlation},
    ) as answer:
        if answer.status_code != 200:
            await answer.aread()
            answer.raise_for_status()
            raise BrokenAnswer(f"the gateway answered {answer.status_code}")
        async for piece in answer.aiter_bytes(_PIECE):
            if held:
                await in_thread(_write, reader, part, held)
            held = piece
    await in_thread(_publish, reader, part, held)
    return answer.status_code


@lru_cache(maxsize=32)
def _address(base: httpx2.URL, mapping: str) -> httpx2.URL:
    # Cached: building a URL takes as long as all that the engine does for a job.
    return base.join("convert").copy_merge_params({"mapping": mapping})


def _write(reader: Wellformed, part: Part, piece: bytes) -> None:
    reader.feed(piece)
    part.write(piece)


def _publish(reader: Wellformed, part: Part, piece: bytes) -> None:
    _write(reader, part, piece)
    reader.feed(b"", last=True)
    part.publish()


def detail_of(response: Any) -> str:
    """Return the reason in the gateway's error response, or "" if it has none."""
    try:
        detail = response.json()["detail"]
    except Exception:  # not JSON, not an object, or no such key: perhaps a proxy answered
        return ""
    return detail if isinstance(detail, str) else ""
