"""`POST /v1/audio/transcriptions`: the transcript of a WAV file.

The stand-in does not recognize speech. It returns the comment (`ICMT`) of the file, or a sentence with its
length if there is no comment.
"""

from __future__ import annotations

import struct

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from systems.provider.problems import problem

#: The protocol's limit, in bytes.
LARGEST_FILE = 25 * 1024 * 1024


def routes() -> list[Route]:
    return [Route("/v1/audio/transcriptions", _transcribe, methods=["POST"])]


async def _transcribe(request: Request) -> Response:
    try:
        async with request.form(max_files=1, max_fields=20) as form:
            file, format_ = form.get("file"), str(form.get("response_format") or "json")
            if not isinstance(file, UploadFile) or not form.get("model"):
                return problem(400, "invalid_request_error", None, "The fields file and model are required.")
            audio = await file.read(LARGEST_FILE + 1)
    except MultiPartException:
        return problem(400, "invalid_request_error", None, "The form cannot be read.")
    if len(audio) > LARGEST_FILE:
        return problem(413, "invalid_request_error", None, "The file is too large.")
    try:
        text, seconds = read_wav(audio)
    except ValueError as error:
        return problem(400, "invalid_request_error", "invalid_file", f"The audio cannot be decoded: {error}.")
    if format_ == "text":
        return PlainTextResponse(text)
    more = {"duration": seconds, "language": "english"} if format_ == "verbose_json" else {}
    return JSONResponse({"text": text, **more, "usage": {"type": "duration", "seconds": round(seconds)}})


def read_wav(audio: bytes) -> tuple[str, float]:
    """Return the words of a WAV file and its length in seconds.

    Raise `ValueError` if it is not a WAV file.
    """
    if len(audio) < 12 or audio[:4] != b"RIFF" or audio[8:12] != b"WAVE":
        raise ValueError("it is not a WAV file")
    words, rate, size = "", 0, 0
    for name, content in _chunks(audio, 12):
        if name == b"fmt " and len(content) >= 16:
            rate = struct.unpack_from("<I", content, 8)[0]
        elif name == b"data":
            size = len(content)
        elif name == b"LIST" and content[:4] == b"INFO":
            for inner, comment in _chunks(content, 4):
                if inner == b"ICMT":
                    words = comment.rstrip(b"\0").decode(errors="replace")
    if not rate:
        raise ValueError("it has no byte rate")
    seconds = size / rate
    return words or f"A recording of {seconds:.1f} seconds.", seconds


def _chunks(data: bytes, place: int) -> list[tuple[bytes, bytes]]:
    """Return the names and contents of the RIFF chunks in *data*, beginning at *place*."""
    chunks = []
    while place + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, place)
        chunks.append((name, data[place + 8 : place + 8 + size]))
        place += 8 + size + size % 2
    return chunks
