"""Server-sent events, from bytes to events. Pure.

A stream is known by the last number it has told. What was cut off in the middle has not been told, and comes again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from holdfast.client.errors import BadAnswer

MEDIA_TYPE = "text/event-stream"
#: Longer than any event that the server makes.
_LONGEST = 64 * 1024 * 1024


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Of kind `reset` it is a word to the listener: events were removed before it could hear them,
    so what it knows is to be read anew."""

    id: str  #: give it as `after` to go on behind it
    kind: str
    at: datetime | None = None
    job_id: str | None = None
    task: str | None = None
    queue: str | None = None
    owner: str | None = None
    attempt: int = 0
    epoch: int = 0
    meta: dict[str, Any] = {}


class _Data(msgspec.Struct):
    event: str
    job_id: str | None = None
    task: str | None = None
    queue: str | None = None
    owner: str | None = None
    attempt: int = 0
    epoch: int = 0
    meta: dict[str, Any] = {}


class _Envelope(msgspec.Struct):
    """A CloudEvent, as far as it is of interest here."""

    time: datetime
    data: _Data


_read = msgspec.json.Decoder(_Envelope).decode


@dataclass(slots=True)
class StreamReader:
    """Takes the bytes of one connection after another."""

    last: str | None = None  #: the number to come back with: of the last event that was complete
    retry_seconds: float = 2.0  #: how long the server wants to be left alone before that
    _rest: bytearray = field(default_factory=bytearray)
    _id: str | None = None
    _kind: str = ""
    _data: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Of a new connection: what the last one left unfinished is void."""
        self._rest.clear()
        self._id, self._kind, self._data = None, "", []

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """The events that are complete with *chunk*."""
        self._rest += chunk
        if len(self._rest) > _LONGEST:
            raise BadAnswer("an event of the stream does not end; check the URL")
        # Only these are ends of lines: a text may hold others, such as U+2028, as a character.
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        found = []
        for line in lines:
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                found.append(event)
        return found

    def _take(self, line: str) -> StreamEvent | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "id":
                self._id = value
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "retry" if value.isdecimal():
                self.retry_seconds = min(int(value[:9]) / 1000, 60.0)
        return None

    def _dispatch(self) -> StreamEvent | None:
        number, kind, data = self._id, self._kind, "\n".join(self._data)
        self._id, self._kind, self._data = None, "", []
        if number is not None:
            self.last = number
        if not data:  # a sign of life; its number says how far all of this has come
            return None
        if kind:
            return StreamEvent(id=self.last or "0", kind=kind)
        try:
            told = _read(data)
        except msgspec.DecodeError as error:
            raise BadAnswer(f"the stream holds something else than events ({error}); check the URL") from None
        facts = told.data
        return StreamEvent(
            id=self.last or "0",
            kind=facts.event,
            at=told.time,
            job_id=facts.job_id,
            task=facts.task,
            queue=facts.queue,
            owner=facts.owner,
            attempt=facts.attempt,
            epoch=facts.epoch,
            meta=facts.meta,
        )
