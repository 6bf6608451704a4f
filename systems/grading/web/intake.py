"""Read a submission from a request, with limits on size and time.

A writing submission is JSON. A speaking submission is a form with a recording.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal, NamedTuple

import msgspec
from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from systems.grading.audio import LARGEST_AUDIO
from systems.grading.messages import LONGEST_TEXT, Skill
from systems.grading.web.problems import Refused

STALLED_SEC = 30.0
ENVELOPE = 64 * 1024
_LARGEST_JSON = 8 * LONGEST_TEXT
_CLOSE = {"connection": "close"}  # the rest of what is being sent is not read


class Submission(NamedTuple):
    """The content of a submission."""

    skill: Skill
    text: str | None = None
    audio: bytes | None = None


class _Writing(msgspec.Struct, forbid_unknown_fields=True):
    skill: Literal["writing", "speaking"]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)] | None = None


async def read_submission(request: Request) -> Submission:
    """Return the submission in *request*. Raise `Refused` if there is no valid one."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return await _speaking(request)
    if kind == "application/json":
        return _writing(await _body(request, _LARGEST_JSON))
    raise Refused(
        415,
        "INVALID",
        "Send JSON for writing, or a form (multipart/form-data) with audio for speaking.",
        _CLOSE,
    )


def _writing(body: bytes) -> Submission:
    try:
        body.decode()  # strict: refuses a lone surrogate in UTF-8
        fields = msgspec.json.decode(body, type=_Writing)
        fields.text.encode() if fields.text else None  # refuses an escaped lone surrogate
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.ValidationError) else "it is not valid JSON in UTF-8"
        raise Refused(422, "INVALID", f"This is not a submission: {reason[:300]}.") from None
    if fields.skill != "writing":
        raise Refused(422, "INVALID", "A speaking submission is a form with the fields skill and audio.")
    if fields.text is None or not fields.text.strip():
        raise Refused(422, "INVALID", "A writing submission needs a text.")
    if "\x00" in fields.text:
        raise Refused(422, "INVALID", "The text contains a NUL character; remove it.")
    return Submission("writing", text=fields.text)


async def _speaking(request: Request) -> Submission:
    stream = _chunks(request, LARGEST_AUDIO + ENVELOPE)
    try:
        form = await MultiPartParser(request.headers, stream, max_files=1, max_fields=5).parse()
    except (MultiPartException, ValueError, KeyError):
        raise Refused(400, "INVALID", "The form cannot be read; send skill and audio.", _CLOSE) from None
    try:
        file, skill = form.get("audio"), form.get("skill")
        if skill != "speaking" or not isinstance(file, UploadFile):
            raise Refused(422, "INVALID", 'A form has the fields skill ("speaking") and audio (a WAV file).')
        recording = await file.read(LARGEST_AUDIO + 1)
    finally:
        await form.close()
    if len(recording) > LARGEST_AUDIO:
        raise _too_large(LARGEST_AUDIO)
    if not recording:
        raise Refused(422, "INVALID", "The recording is empty.")
    return Submission("speaking", audio=recording)


async def _body(request: Request, max_bytes: int) -> bytes:
    return b"".join([chunk async for chunk in _chunks(request, max_bytes)])


async def _chunks(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > max_bytes:
        raise _too_large(max_bytes)
    stream, received = request.stream(), 0
    while True:
        try:
            async with asyncio.timeout(STALLED_SEC):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise ClientDisconnect from None  # a client that sends nothing for this long is gone
        if chunk is None:
            return
        received += len(chunk)
        if received > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


def _too_large(max_bytes: int) -> Refused:
    return Refused(413, "TOO_LARGE", f"This is larger than {max_bytes:,} bytes.", _CLOSE)
