"""Reads a submission from a request: JSON for writing, a form with a recording for speaking. Bounded in size and in time."""

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
    skill: Skill
    text: str | None = None
    audio: bytes | None = None


class _Writing(msgspec.Struct, forbid_unknown_fields=True):
    skill: Literal["writing", "speaking"]
    text: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT)] | None = None


async def read_submission(request: Request) -> Submission:
    """`Refused` for everything that is none."""
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
        body.decode()  # strictly: a lone surrogate in UTF-8 is no text
        given = msgspec.json.decode(body, type=_Writing)
        given.text.encode() if given.text else None  # an escaped half of a character is none either
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        words = str(error) if isinstance(error, msgspec.ValidationError) else "it is not proper JSON in UTF-8"
        raise Refused(422, "INVALID", f"This is no submission: {words[:300]}.") from None
    if given.skill != "writing":
        raise Refused(422, "INVALID", "A speaking submission is a form with the fields skill and audio.")
    if given.text is None or not given.text.strip():
        raise Refused(422, "INVALID", "A writing submission needs a text.")
    if "\x00" in given.text:
        raise Refused(422, "INVALID", "The text holds a character (NUL) that no text has.")
    return Submission("writing", text=given.text)


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
        sound = await file.read(LARGEST_AUDIO + 1)
    finally:
        await form.close()
    if len(sound) > LARGEST_AUDIO:
        raise _too_large(LARGEST_AUDIO)
    if not sound:
        raise Refused(422, "INVALID", "The recording is empty.")
    return Submission("speaking", audio=sound)


async def _body(request: Request, most: int) -> bytes:
    return b"".join([chunk async for chunk in _chunks(request, most)])


async def _chunks(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:18]) > most:
        raise _too_large(most)
    stream, taken = request.stream(), 0
    while True:
        try:
            async with asyncio.timeout(STALLED_SEC):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise ClientDisconnect from None  # a client that sends nothing for this long is gone
        if chunk is None:
            return
        taken += len(chunk)
        if taken > most:
            raise _too_large(most)
        yield chunk


def _too_large(most: int) -> Refused:
    return Refused(413, "TOO_LARGE", f"This is larger than {most:,} bytes.", _CLOSE)
