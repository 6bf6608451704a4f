"""Reads an answer of the model, whole or as a stream, up to the size limit of a report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.model.errors import of_body

#: The most bytes that a stream may have for each byte of its text, as when each event holds one character.
_ENVELOPE = 500
_LONGEST_LINE = 4_000_000


class TooLarge(Exception):
    """The response exceeds the size limit."""


@dataclass(slots=True)
class PartialAnswer:
    """The part of an answer that was received so far."""

    most: int  #: the most bytes of text
    parts: list[str] = field(default_factory=list)
    size: int = 0
    finish: str | None = None
    refusal: str = ""
    model: str = ""
    usage: Mapping[str, Any] | None = None
    overflow: bool = False

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, piece: object) -> None:
        """Append a piece of text. Raises `TooLarge`, and keeps what fits, when the text exceeds the limit."""
        if not isinstance(piece, str) or not piece:
            return
        size = len(piece.encode(errors="surrogatepass"))
        if self.size + size > self.most:
            self.parts.append(piece[: max(self.most - self.size, 0)])
            self.overflow = True
            raise TooLarge
        self.size += size
        self.parts.append(piece)

    def take(self, body: Any, headers: Mapping[str, str], part: str) -> None:
        """Read a body of the protocol; *part* is the key of a choice's content, `message` or `delta`.

        Raises `Trouble` for an error object or a malformed body, and `TooLarge`.
        """
        if not isinstance(body, dict):
            raise _malformed()
        if body.get("error"):
            raise of_body(body["error"], headers)
        if isinstance(body.get("model"), str):
            self.model = body["model"][:200]
        if isinstance(body.get("usage"), dict):
            self.usage = body["usage"]
        choices = body.get("choices")
        if not isinstance(choices, list):
            raise _malformed()
        for choice in choices[:1]:
            content = choice.get(part) if isinstance(choice, dict) else None
            if not isinstance(content, dict):
                raise _malformed()
            if isinstance(content.get("refusal"), str):
                self.refusal = (self.refusal + content["refusal"])[:1000]
            if isinstance(choice.get("finish_reason"), str):
                self.finish = choice["finish_reason"][:40]
            self.add(content.get("content"))


async def read_whole(
    pieces: AsyncIterator[bytes], partial: PartialAnswer, headers: Mapping[str, str]
) -> None:
    """Read a response that is one JSON body into *partial*. One that is too large sets its `overflow`."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > 6 * partial.most + 100_000:  # an escape in JSON has up to six bytes for one
            partial.overflow = True
            partial.parts.append(body[: partial.most].decode(errors="replace"))
            return
    try:
        partial.take(_decoded(bytes(body)), headers, "message")
    except TooLarge:
        return
    if partial.finish is None:
        raise _malformed()


async def read_stream(
    pieces: AsyncIterator[bytes], partial: PartialAnswer, headers: Mapping[str, str]
) -> None:
    """Read a response of server-sent events into *partial*. One that is too large sets its `overflow`.

    Raises `Trouble` when the stream ends without a finish reason.
    """
    done = False
    try:
        async for line in _lines(pieces, most=_ENVELOPE * partial.most + 1_000_000):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            partial.take(_decoded(data), headers, "delta")
    except TooLarge:
        partial.overflow = True
        return
    if not done and partial.finish is None:
        raise Trouble(Code.MODEL_UNREACHABLE, "the stream ended in the middle")
    if partial.finish is None:
        raise _malformed()


async def _lines(pieces: AsyncIterator[bytes], *, most: int) -> AsyncIterator[bytes]:
    rest, total = b"", 0
    async for piece in pieces:
        total += len(piece)
        if total > most or len(rest) > _LONGEST_LINE:
            raise TooLarge
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _malformed() from None


def _malformed() -> Trouble:
    """Return the error for a 200 that does not follow the protocol, such as a proxy's page.

    The next call may succeed.
    """
    return Trouble(Code.MODEL_5XX, "the model answered 200 with a malformed body")
