"""The reasons why a file cannot be converted. The child, the pool and the service all use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason: an HTTP status, a code for programs and one line for people."""

    status: int
    code: str
    reason: str

    def problem(self) -> dict[str, Any]:
        """Return the body of the response, in the format of RFC 9457."""
        return {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.reason}


class Refused(Exception):
    """A file cannot be converted."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


EMPTY = Refusal(400, "EMPTY", "The request has no body; send the PDF as the body.")
NOT_PDF = Refusal(415, "NOT_PDF", "This is not a PDF: it does not begin with a PDF header.")
CUT_OFF = Refusal(
    422, "CUT_OFF", "The PDF is cut off, or something follows its end; save it again and send the new file."
)
BROKEN = Refusal(
    422, "PARSE_ERROR", "The PDF is damaged and cannot be read; save it again and send the new file."
)
ENCRYPTED = Refusal(422, "ENCRYPTED", "The PDF is protected by a password; send it without one.")
NO_PAGES = Refusal(422, "NO_PAGES", "The PDF has no pages.")
NO_TEXT = Refusal(
    422,
    "NO_TEXT",
    "The PDF has no readable text; if it is a scan, run text recognition (OCR) on it first.",
)
TOO_MUCH_MEMORY = Refusal(422, "TOO_COMPLEX", "The PDF needs more memory than a conversion may use.")
TOO_LONG = Refusal(422, "TOO_COMPLEX", "The PDF takes longer than a conversion may take.")
CRASHED = Refusal(
    422,
    "TOO_COMPLEX",
    "The PDF cannot be read: it is damaged, or needs more memory than a conversion may use.",
)
OUTPUT_TOO_LARGE = Refusal(422, "TOO_COMPLEX", "The XML of this PDF is larger than the limit.")
UPLOAD_STALLED = Refusal(408, "UPLOAD_STALLED", "The upload stalled; send it again.")
BUSY = Refusal(429, "BUSY", "All converters are busy; send it again in a moment.")
NO_CONVERTER = Refusal(503, "GW_UNAVAILABLE", "The converter stopped unexpectedly; send it again.")
NO_SPACE = Refusal(
    503, "GW_UNAVAILABLE", "The upload could not be stored for conversion; send it again later."
)


def too_large(max_bytes: int) -> Refusal:
    return Refusal(413, "TOO_LARGE", f"The file is larger than the limit of {max_bytes:,} bytes.")


def unknown_mapping(name: str, known: tuple[str, ...]) -> Refusal:
    shown = "".join(c for c in name[:40] if c.isprintable())
    return Refusal(
        406, "INVALID_MAPPING", f"There is no mapping {shown!r}; choose one of {', '.join(known)}."
    )


def too_many_pages(pages: int, limit: int) -> Refusal:
    return Refusal(422, "TOO_MANY_PAGES", f"The PDF has {pages:,} pages; the limit is {limit:,}.")


def page_too_large(number: int, width: float, height: float, limit: float) -> Refusal:
    size = f"{width:,.0f} × {height:,.0f} points"
    return Refusal(422, "PAGE_TOO_LARGE", f"Page {number} is {size}; the limit for a side is {limit:,.0f}.")


def unreadable_page(number: int) -> Refusal:
    return Refusal(
        422, "PARSE_ERROR", f"Page {number} of the PDF cannot be read; save it again and send the new file."
    )
