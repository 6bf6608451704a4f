"""The codes that people and programs see, what each says in its two tenses, and whether it is tried again (P3, P4).

While a report will be tried again the message says so; once it has failed it promises nothing that will not come.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    # what was asked for
    INVALID_SOURCE = "INVALID_SOURCE"
    INVALID_SCHEMA = "INVALID_SCHEMA"
    INVALID_REQUEST = "INVALID_REQUEST"
    # the document
    MISSING_OBJECT = "MISSING_OBJECT"
    UNSUPPORTED_TYPE = "UNSUPPORTED_TYPE"
    CORRUPT_METADATA = "CORRUPT_METADATA"
    TOO_LARGE = "TOO_LARGE"
    NOT_TEXT = "NOT_TEXT"
    SOURCE_CHANGED = "SOURCE_CHANGED"
    # the model
    MODEL_TIMEOUT = "MODEL_TIMEOUT"
    MODEL_UNREACHABLE = "MODEL_UNREACHABLE"
    MODEL_THROTTLED = "MODEL_THROTTLED"
    MODEL_5XX = "MODEL_5XX"
    MODEL_4XX = "MODEL_4XX"
    # what it said
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_FILTERED = "MODEL_FILTERED"
    OUTPUT_CUT = "OUTPUT_CUT"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    NOT_JSON = "NOT_JSON"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    # our own places
    IO_ERROR = "IO_ERROR"
    WRITE_CONFLICT = "WRITE_CONFLICT"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


class Known(NamedTuple):
    status: int  #: of the answer in which it stands
    again: bool  #: whether it is tried again
    trying: str  #: while it will be; the same as *final* for what is never tried again
    final: str


def _fatal(status: int, text: str) -> Known:
    return Known(status, False, text, text)


def _passing(status: int, text: str, final: str) -> Known:
    return Known(status, True, f"{text} It will be tried again.", f"{text} {final}")


_LATER = "Trying again did not help; use Retry later."

CODES: dict[Code, Known] = {
    Code.INVALID_SOURCE: _fatal(422, "This source is not an address of a document that may be read here."),
    Code.INVALID_SCHEMA: _fatal(422, "This is not a JSON schema that can be used here."),
    Code.INVALID_REQUEST: _fatal(422, "This request cannot be understood."),
    Code.MISSING_OBJECT: _fatal(404, "There is no document at this address."),
    Code.UNSUPPORTED_TYPE: _fatal(415, "Documents of this kind cannot be read; send text."),
    Code.CORRUPT_METADATA: _fatal(422, "What the store says of the document does not fit its content."),
    Code.TOO_LARGE: _fatal(413, "The document is larger than may be sent to the model."),
    Code.NOT_TEXT: _fatal(422, "The document holds no text: it is empty, binary or encrypted."),
    Code.SOURCE_CHANGED: _fatal(409, "The document was changed while it was worked on; ask for it again."),
    Code.MODEL_TIMEOUT: _passing(504, "The model did not answer in time.", _LATER),
    Code.MODEL_UNREACHABLE: _passing(502, "The model could not be reached.", _LATER),
    Code.MODEL_THROTTLED: _passing(429, "The model is asked too often.", _LATER),
    Code.MODEL_5XX: _passing(502, "The model had an error of its own.", _LATER),
    Code.MODEL_4XX: _fatal(
        422, "The model refused the request; its settings or the document do not suit it."
    ),
    Code.MODEL_REFUSED: _fatal(422, "The model refused to answer for this document."),
    Code.MODEL_FILTERED: _fatal(422, "The provider's filter withheld the answer for this document."),
    Code.OUTPUT_CUT: _fatal(422, "The model's answer was cut off at its longest; raise MODEL_MAX_TOKENS."),
    Code.OUTPUT_TOO_LARGE: _fatal(422, "The model's answer was larger than any report may be."),
    Code.NOT_JSON: _fatal(422, "The model's answer is not JSON; it was kept for an operator."),
    Code.SCHEMA_MISMATCH: _fatal(
        422, "The model's answer does not fit the schema; it was kept for an operator."
    ),
    Code.IO_ERROR: _passing(503, "A store of documents, or the database, did not do it just now.", _LATER),
    Code.WRITE_CONFLICT: _fatal(409, "Another report has this name already; use Retry to write it anew."),
    Code.NOT_READY: _fatal(409, "The report is not finished yet."),
    Code.EXPIRED: _fatal(404, "This was removed by retention, or never existed."),
    Code.FORBIDDEN: _fatal(403, "This isn’t yours."),
    Code.UNKNOWN: _passing(500, "Something unexpected went wrong.", "Use Retry, or tell us if it stays."),
}

#: What the model said was of no use: each of these is captured (P5).
OUTPUT_CODES = frozenset(
    {
        Code.MODEL_REFUSED,
        Code.MODEL_FILTERED,
        Code.OUTPUT_CUT,
        Code.OUTPUT_TOO_LARGE,
        Code.NOT_JSON,
        Code.SCHEMA_MISMATCH,
    }
)

#: The engine's own codes → ours.
_PUBLIC: dict[str, Code] = {
    "NETWORK": Code.MODEL_UNREACHABLE,
    "CALL_TIMEOUT": Code.MODEL_TIMEOUT,
    "EXECUTION_TIMEOUT": Code.MODEL_TIMEOUT,
    "HTTP_5XX": Code.MODEL_5XX,
    "HTTP_4XX": Code.MODEL_4XX,
    "THROTTLED": Code.MODEL_THROTTLED,
    "CIRCUIT_OPEN": Code.MODEL_UNREACHABLE,
    "DISK_FULL": Code.IO_ERROR,
    "PERMISSION": Code.IO_ERROR,
    "NOT_FOUND": Code.IO_ERROR,
    "MEMORY": Code.IO_ERROR,
    "DATABASE": Code.IO_ERROR,
}


def public_code(inner: str | None) -> Code:
    name = inner or ""
    return Code(name) if name in Code.__members__ else _PUBLIC.get(name, Code.UNKNOWN)


def message(code: Code, *, final: bool) -> str:
    known = CODES[code]
    return known.final if final else known.trying
