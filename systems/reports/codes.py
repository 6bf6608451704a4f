"""The public error codes: the messages of each, its HTTP status, and whether it is retried (P3, P4).

Each code has two messages: one while the report will be retried, which says so, and one once it has failed.
"""

from __future__ import annotations

from enum import StrEnum

from systems.common.error_codes import CodeInfo, fatal, passing


class Code(StrEnum):
    # the request
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
    # the model's answer
    MODEL_REFUSED = "MODEL_REFUSED"
    MODEL_FILTERED = "MODEL_FILTERED"
    OUTPUT_CUT = "OUTPUT_CUT"
    OUTPUT_TOO_LARGE = "OUTPUT_TOO_LARGE"
    NOT_JSON = "NOT_JSON"
    SCHEMA_MISMATCH = "SCHEMA_MISMATCH"
    # our storage and service
    IO_ERROR = "IO_ERROR"
    WRITE_CONFLICT = "WRITE_CONFLICT"
    NOT_READY = "NOT_READY"
    EXPIRED = "EXPIRED"
    FORBIDDEN = "FORBIDDEN"
    UNKNOWN = "UNKNOWN"


CODES: dict[Code, CodeInfo] = {
    Code.INVALID_SOURCE: fatal(422, "The source is not the address of a document that can be read here."),
    Code.INVALID_SCHEMA: fatal(422, "This is not a JSON schema that can be used here."),
    Code.INVALID_REQUEST: fatal(422, "This request cannot be understood."),
    Code.MISSING_OBJECT: fatal(404, "There is no document at this address."),
    Code.UNSUPPORTED_TYPE: fatal(415, "Documents of this kind cannot be read; send text."),
    Code.CORRUPT_METADATA: fatal(422, "The document's metadata does not match its content."),
    Code.TOO_LARGE: fatal(413, "The document is too large to be sent to the model."),
    Code.NOT_TEXT: fatal(422, "The document holds no text: it is empty, binary or encrypted."),
    Code.SOURCE_CHANGED: fatal(409, "The document changed during processing; request the report again."),
    Code.MODEL_TIMEOUT: passing(504, "The model did not answer in time."),
    Code.MODEL_UNREACHABLE: passing(502, "The model could not be reached."),
    Code.MODEL_THROTTLED: passing(429, "The model is called too often."),
    Code.MODEL_5XX: passing(502, "The model had an internal error."),
    Code.MODEL_4XX: fatal(422, "The model rejected the request; check its settings and the document."),
    Code.MODEL_REFUSED: fatal(422, "The model declined to answer for this document."),
    Code.MODEL_FILTERED: fatal(422, "The provider's filter withheld the answer for this document."),
    Code.OUTPUT_CUT: fatal(422, "The model's answer was cut off at the token limit; raise MODEL_MAX_TOKENS."),
    Code.OUTPUT_TOO_LARGE: fatal(422, "The model's answer exceeds the size limit of a report."),
    Code.NOT_JSON: fatal(422, "The model's answer is not JSON; it was captured for an operator."),
    Code.SCHEMA_MISMATCH: fatal(
        422, "The model's answer does not fit the schema; it was captured for an operator."
    ),
    Code.IO_ERROR: passing(503, "The document storage or the database is unavailable."),
    Code.WRITE_CONFLICT: fatal(409, "Another report already has this name; use Retry to write it again."),
    Code.NOT_READY: fatal(409, "The report is not finished yet."),
    Code.EXPIRED: fatal(404, "This was removed by retention, or never existed."),
    Code.FORBIDDEN: fatal(403, "This isn’t yours."),
    Code.UNKNOWN: passing(500, "Something unexpected went wrong.", "Use Retry, or tell us if it stays."),
}

#: The codes of unusable answers. Each such answer is captured (P5).
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

#: The engine's codes, and the public code of each.
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


def public_code(engine_code: str | None) -> Code:
    """Return the public code for a code of ours or of the engine; UNKNOWN for any other."""
    name = engine_code or ""
    return Code(name) if name in Code.__members__ else _PUBLIC.get(name, Code.UNKNOWN)


def message(code: Code, *, final: bool) -> str:
    """Return the message of *code* for a failed report if *final*, else for one that will be retried."""
    known = CODES[code]
    return known.final if final else known.trying
