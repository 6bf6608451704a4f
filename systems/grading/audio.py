"""Decode recordings (WAV files), so that a broken one is refused before a paid call to the provider."""

from __future__ import annotations

import io
import struct
import wave
from typing import NamedTuple

#: The limit of the transcription protocol, in bytes.
LARGEST_AUDIO = 25 * 1024 * 1024
LONGEST_SECONDS = 20 * 60
_RATES = range(4_000, 192_001)


class Undecodable(Exception):
    """The recording cannot be decoded. The message says why."""


class Recording(NamedTuple):
    """The properties of a recording."""

    seconds: float
    rate: int
    channels: int


def decode(data: bytes) -> Recording:
    """Read every sample and return the recording's properties. Raise `Undecodable` if that fails."""
    if not data:
        raise Undecodable("the file is empty")
    try:
        with wave.open(io.BytesIO(data)) as file:
            channels, width, rate, frames = file.getparams()[:4]
            if not 1 <= channels <= 8 or rate not in _RATES:
                raise Undecodable(f"{channels} channels at {rate} Hz are not a recording of speech")
            if frames > LONGEST_SECONDS * rate:
                raise Undecodable(f"it is longer than {LONGEST_SECONDS // 60} minutes")
            samples = file.readframes(frames)
    except (wave.Error, EOFError, struct.error, ValueError, ZeroDivisionError, OverflowError) as error:
        raise Undecodable(str(error) or "it ends too early") from None
    if not frames or len(samples) != frames * channels * width:
        raise Undecodable(
            f"it has {len(samples)} bytes of sound, but its header announces {frames * channels * width}"
        )
    return Recording(frames / rate, rate, channels)


def make_recording(words: str = "", seconds: float = 0.5, rate: int = 8_000) -> bytes:
    """Return a WAV file with a tone, and *words* as its comment, for samples and tests.

    The stand-in provider returns the comment as the transcript.
    """
    frames = b"".join(
        struct.pack("<h", 8_000 if (n // 20) % 2 else -8_000) for n in range(int(seconds * rate))
    )
    comment = words.encode() + b"\0" * (1 + (len(words.encode()) + 1) % 2)
    info = b"INFO" + b"ICMT" + struct.pack("<I", len(comment)) + comment
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, rate * 2, 2, 16)
    body = b"WAVE" + head + b"data" + struct.pack("<I", len(frames)) + frames
    if words:
        body += b"LIST" + struct.pack("<I", len(info)) + info
    return b"RIFF" + struct.pack("<I", len(body)) + body
