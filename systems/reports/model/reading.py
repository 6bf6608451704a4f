"""Reading an answer, whole or as a stream, and never more of it than a report may have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from systems.reports.codes import Code
from systems.reports.failures import Trouble
from systems.reports.model.errors import of_body

#: A stream has this many bytes around each byte of its text at most: pieces of one character each.
_ENVELOPE = 500
_LONGEST_LINE = 4_000_000


class Enough(Exception):
    """More came than may."""


@dataclass(slots=True)
class Said:
    """What the model has said so far."""

    most: int  #: bytes of text
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
        if not isinstance(piece, str) or not piece:
            return
        size = len(piece.encode(errors="surrogatepass"))
        if self.size + size > self.most:
            self.parts.append(piece[: max(self.most - self.size, 0)])
            self.overflow = True
            raise Enough
        self.size += size
        self.parts.append(piece)

    def take(self, body: Any, headers: Mapping[str, str], part: str) -> None:
        """Note a body of the protocol; *part* is where its choices say something: `message` or `delta`."""
        if not isinstance(body, dict):
            raise _broken()
        if body.get("error"):
            raise of_body(body["error"], headers)
        if isinstance(body.get("model"), str):
            self.model = body["model"][:200]
        if isinstance(body.get("usage"), dict):
            self.usage = body["usage"]
        choices = body.get("choices")
        if not isinstance(choices, list):
            raise _broken()
        for choice in choices[:1]:
            said = choice.get(part) if isinstance(choice, dict) else None
            if not isinstance(said, dict):
                raise _broken()
            if isinstance(said.get("refusal"), str):
                self.refusal = (self.refusal + said["refusal"])[:1000]
            if isinstance(choice.get("finish_reason"), str):
                self.finish = choice["finish_reason"][:40]
            self.add(said.get("content"))


async def read_whole(pieces: AsyncIterator[bytes], said: Said, headers: Mapping[str, str]) -> None:
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > 6 * said.most + 100_000:  # JSON may write six bytes for one
            said.overflow = True
            said.parts.append(body[: said.most].decode(errors="replace"))
            return
    try:
        said.take(_decoded(bytes(body)), headers, "message")
    except Enough:
        return
    if said.finish is None:
        raise _broken()


async def read_stream(pieces: AsyncIterator[bytes], said: Said, headers: Mapping[str, str]) -> None:
    """Server-sent events. One that ends without a reason, or without its last mark, was broken off."""
    done = False
    try:
        async for line in _lines(pieces, most=_ENVELOPE * said.most + 1_000_000):
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            said.take(_decoded(data), headers, "delta")
    except Enough:
        said.overflow = True
        return
    if not done and said.finish is None:
        raise Trouble(Code.MODEL_UNREACHABLE, "the stream ended in the middle")
    if said.finish is None:
        raise _broken()


async def _lines(pieces: AsyncIterator[bytes], *, most: int) -> AsyncIterator[bytes]:
    rest, taken = b"", 0
    async for piece in pieces:
        taken += len(piece)
        if taken > most or len(rest) > _LONGEST_LINE:
            raise Enough
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise _broken() from None


def _broken() -> Trouble:
    """200, and not an answer of the protocol: a proxy's page, or half of something. It may be one next time."""
    return Trouble(Code.MODEL_5XX, "the model answered 200 with something that is no answer")
