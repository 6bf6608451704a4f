"""A parser of server-sent events, from bytes to events. It does no I/O.

The position in a stream is the number of its last complete event. An event that was cut off is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from holdfast.client.errors import BadAnswer

MEDIA_TYPE = "text/event-stream"
#: The largest accepted event, in bytes: larger than any that the server sends.
_LONGEST = 64 * 1024 * 1024


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a job.

    The kind `reset` means that events were removed before they could be sent: read the state again.
    """

    id: str  #: give it as `after` to continue after this event
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
    """The parts of a CloudEvent that are used here."""

    time: datetime
    data: _Data


_read = msgspec.json.Decoder(_Envelope).decode


@dataclass(slots=True)
class StreamReader:
    """Parses the bytes of a stream over one or more connections."""

    last: str | None = None  #: the number of the last complete event, where the next connection continues
    retry_seconds: float = 2.0  #: how long the server asks to wait before the next connection
    _rest: bytearray = field(default_factory=bytearray)
    _id: str | None = None
    _kind: str = ""
    _data: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Begin a new connection: drop the incomplete event of the last one."""
        self._rest.clear()
        self._id, self._kind, self._data = None, "", []

    def feed(self, chunk: bytes) -> list[StreamEvent]:
        """Return the events that are complete with *chunk*.

        Raises:
            BadAnswer: The stream does not hold events of the API.
        """
        self._rest += chunk
        if len(self._rest) > _LONGEST:
            raise BadAnswer("an event of the stream does not end; check the URL")
        # Only LF ends a line: a text may contain other line breaks, such as U+2028.
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        events = []
        for line in lines:
            event = self._take(line.removesuffix(b"\r").decode(errors="replace"))
            if event is not None:
                events.append(event)
        return events

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
        if not data:  # a keep-alive; its number is the position in the stream
            return None
        if kind:
            return StreamEvent(id=self.last or "0", kind=kind)
        try:
            envelope = _read(data)
        except msgspec.DecodeError as error:
            raise BadAnswer(
                f"the stream holds something other than events ({error}); check the URL"
            ) from None
        facts = envelope.data
        return StreamEvent(
            id=self.last or "0",
            kind=facts.event,
            at=envelope.time,
            job_id=facts.job_id,
            task=facts.task,
            queue=facts.queue,
            owner=facts.owner,
            attempt=facts.attempt,
            epoch=facts.epoch,
            meta=facts.meta,
        )
