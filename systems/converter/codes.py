"""The ten public error codes (C3), and the two messages of each (C8).

Every internal code maps to one of them. One message is shown while the job will be retried, the other once it
has failed. The second promises no retry.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    """A public error code."""

    NOT_PDF = "NOT_PDF"
    TOO_LARGE = "TOO_LARGE"
    GW_4XX = "GW_4XX"
    GW_5XX = "GW_5XX"
    GW_TIMEOUT = "GW_TIMEOUT"
    IO_ERROR = "IO_ERROR"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


class CodeInfo(NamedTuple):
    """The HTTP status and the messages of a code."""

    status: int  #: of the response that reports it
    trying: str  #: shown while the job will be retried; the same as *final* if it never is
    final: str  #: shown once the job has failed


def _never_retried(status: int, text: str) -> CodeInfo:
    return CodeInfo(status, text, text)


CODES: dict[Code, CodeInfo] = {
    Code.NOT_PDF: _never_retried(400, "Only PDF files are supported."),
    Code.TOO_LARGE: _never_retried(413, "File exceeds 50 MB limit."),
    Code.GW_4XX: _never_retried(422, "Couldn’t convert this file with the selected mapping."),
    Code.GW_5XX: CodeInfo(
        502,
        "Converter service is having an issue. We’ll retry shortly.",
        "Converter service had an issue, and trying again did not help. Use Retry later.",
    ),
    Code.GW_TIMEOUT: CodeInfo(
        504,
        "Conversion is taking too long. We’ll retry.",
        "Conversion took too long each time. Use Retry, or a smaller file.",
    ),
    Code.IO_ERROR: CodeInfo(
        500,
        "Temporary storage issue. We’ll retry.",
        "The file could not be stored. Use Retry later.",
    ),
    Code.NOT_READY: _never_retried(409, "Conversion not finished yet."),
    Code.EXPIRED: _never_retried(404, "File was removed by retention. Re-upload to regenerate."),
    Code.FORBIDDEN: _never_retried(403, "This file isn’t yours."),
    Code.UNKNOWN: CodeInfo(
        500,
        "Something unexpected went wrong. We’ll retry.",
        "Something unexpected went wrong. Use Retry, or tell us if it stays.",
    ),
}

#: Messages of failures that bring none: those by the breaker, in the mode `fail_fast`.
DECLARED = {Code.GW_5XX.value: "Converter service is having an issue. Use Retry later."}

#: Internal code → public code. First those of the gateway and of this system, then those of the engine.
_PUBLIC: dict[str, Code] = {
    "GW_UNAVAILABLE": Code.GW_5XX,
    "PARSE_ERROR": Code.GW_4XX,
    "VALIDATION_ERROR": Code.GW_4XX,
    "INVALID_MAPPING": Code.GW_4XX,
    "MEMORY_ERROR": Code.UNKNOWN,
    "NETWORK": Code.GW_5XX,
    "HTTP_5XX": Code.GW_5XX,
    "THROTTLED": Code.GW_5XX,
    "CIRCUIT_OPEN": Code.GW_5XX,
    "CERTIFICATE": Code.GW_5XX,
    "HTTP_4XX": Code.GW_4XX,
    "CALL_TIMEOUT": Code.GW_TIMEOUT,
    "EXECUTION_TIMEOUT": Code.GW_TIMEOUT,
    "TIMEOUT": Code.GW_TIMEOUT,
    "DISK_FULL": Code.IO_ERROR,
    "PERMISSION": Code.IO_ERROR,
    "NOT_FOUND": Code.IO_ERROR,
    "MEMORY": Code.IO_ERROR,  # the worker itself ran out of memory
}


def public_code(inner: str | None, *, local_pressure: bool = False) -> Code:
    """Return the public code of an internal one.

    *local_pressure* means that memory ran out on this machine, not in the gateway.
    """
    if inner == "MEMORY_ERROR" and local_pressure:
        return Code.IO_ERROR
    name = inner or ""
    return Code(name) if name in Code.__members__ else _PUBLIC.get(name, Code.UNKNOWN)


def message(code: Code, *, final: bool, words: str = "") -> str:
    """Return the message of *code*. The gateway's own *words* follow it if they are safe to show."""
    info = CODES[code]
    line = info.final if final else info.trying
    detail = safe_words(words)
    return f"{line} {detail}" if detail else line


def safe_words(words: str) -> str:
    """Return the gateway's words, or "" if they are not fit to show.

    They are not if they are too long, have several lines, or contain a path, an address, markup or a trace.
    """
    text = words.strip()
    if not 0 < len(text) <= 200 or not text.isprintable():
        return ""
    if any(sign in text for sign in ("/", "\\", "<", ">", "{", "}", "://", "Traceback", "Error(", "@")):
        return ""
    return text
