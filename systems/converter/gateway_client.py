"""Asking the gateway: send a PDF, take in XML, and say what it was if that does not come."""

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


class Source:
    """A PDF to send. Made in a thread, as all that touches a disk; what is small is in *first* as a whole."""

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
    """Publish the XML of *source* as *part* and return the status of the answer.

    Raises what httpx2 raises, `BrokenAnswer`, or `OSError` for our own disk.

    A turn of a thread costs as much as a small file takes to be read, so each piece waits for the next: the last, which is
    mostly the only one, is written and published in one turn."""
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
                await in_thread(_take, reader, part, held)
            held = piece
    await in_thread(_publish, reader, part, held)
    return answer.status_code


@lru_cache(maxsize=32)
def _address(base: httpx2.URL, mapping: str) -> httpx2.URL:
    """Kept: to put an address together takes as long as all the engine does for a job."""
    return base.join("convert").copy_merge_params({"mapping": mapping})


def _take(reader: Wellformed, part: Part, piece: bytes) -> None:
    reader.feed(piece)
    part.write(piece)


def _publish(reader: Wellformed, part: Part, piece: bytes) -> None:
    _take(reader, part, piece)
    reader.feed(b"", last=True)
    part.publish()


def words_of(response: Any) -> str:
    """What the gateway gave as its reason, if it gave one."""
    try:
        detail = response.json()["detail"]
    except Exception:  # not JSON, not an object, no such key: an answer from who knows whom
        return ""
    return detail if isinstance(detail, str) else ""
