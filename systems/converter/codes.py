"""The ten codes that people and programs see (C3), and what each says in its two tenses (C8).

Everything else that can go wrong inside has one of them as its public name. While a job will be tried again the
message says so; once it has failed it promises nothing that will not come.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
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


class Known(NamedTuple):
    status: int  #: of the answer in which it stands
    trying: str  #: while it will be tried again; the same as *final* for what is never tried again
    final: str


def _ended(status: int, text: str) -> Known:
    return Known(status, text, text)


CODES: dict[Code, Known] = {
    Code.NOT_PDF: _ended(400, "Only PDF files are supported."),
    Code.TOO_LARGE: _ended(413, "File exceeds 50 MB limit."),
    Code.GW_4XX: _ended(422, "Couldn’t convert this file with the selected mapping."),
    Code.GW_5XX: Known(
        502,
        "Converter service is having an issue. We’ll retry shortly.",
        "Converter service had an issue, and trying again did not help. Use Retry later.",
    ),
    Code.GW_TIMEOUT: Known(
        504,
        "Conversion is taking too long. We’ll retry.",
        "Conversion took too long each time. Use Retry, or a smaller file.",
    ),
    Code.IO_ERROR: Known(
        500,
        "Temporary storage issue. We’ll retry.",
        "The file could not be stored. Use Retry later.",
    ),
    Code.NOT_READY: _ended(409, "Conversion not finished yet."),
    Code.EXPIRED: _ended(404, "File was removed by retention. Re-upload to regenerate."),
    Code.FORBIDDEN: _ended(403, "This file isn’t yours."),
    Code.UNKNOWN: Known(
        500,
        "Something unexpected went wrong. We’ll retry.",
        "Something unexpected went wrong. Use Retry, or tell us if it stays.",
    ),
}

#: What a failure says that brings no words of its own: the breaker's, in the mode `fail_fast`.
DECLARED = {Code.GW_5XX.value: "Converter service is having an issue. Use Retry later."}

#: Inner code → public one. Those of the gateway and of this system first, then those of the engine.
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
    "MEMORY": Code.IO_ERROR,  # the worker's own: this machine is short of it
}


def public_code(inner: str | None, *, local_pressure: bool = False) -> Code:
    """The public name of what went wrong. *local_pressure*: memory ran out here, not in the gateway."""
    if inner == "MEMORY_ERROR" and local_pressure:
        return Code.IO_ERROR
    name = inner or ""
    return Code(name) if name in Code.__members__ else _PUBLIC.get(name, Code.UNKNOWN)


def message(code: Code, *, final: bool, words: str = "") -> str:
    """One line for people. *words* are the gateway's own and stand behind it if they are safe to show."""
    known = CODES[code]
    line = known.final if final else known.trying
    shown = safe_words(words)
    return f"{line} {shown}" if shown else line


def safe_words(words: str) -> str:
    """The gateway's words, or nothing: too long, more than a line, or with something in it that is not for people
    (a path, an address, markup, a trace)."""
    text = words.strip()
    if not 0 < len(text) <= 200 or not text.isprintable():
        return ""
    if any(sign in text for sign in ("/", "\\", "<", ">", "{", "}", "://", "Traceback", "Error(", "@")):
        return ""
    return text
