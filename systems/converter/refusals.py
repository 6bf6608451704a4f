"""Why a file cannot be converted: the one shape in which a child, the pool and the service say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP status, a code for programs and one line for people."""

    status: int
    code: str
    reason: str

    def problem(self) -> dict[str, Any]:
        """The body of the answer, as RFC 9457 has it."""
        return {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.reason}


class Refused(Exception):
    """Raised where a file turns out to be one that cannot be converted."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


EMPTY = Refusal(400, "EMPTY", "The request has no body; send the PDF as the body.")
NOT_PDF = Refusal(415, "NOT_PDF", "This is not a PDF; it does not begin like one.")
CUT_OFF = Refusal(
    422, "CUT_OFF", "The PDF is cut off, or something was added behind its end; save it again and send that."
)
BROKEN = Refusal(422, "PARSE_ERROR", "The PDF is broken and cannot be read; save it again and send that.")
ENCRYPTED = Refusal(422, "ENCRYPTED", "The PDF needs a password to be opened; send it without one.")
NO_PAGES = Refusal(422, "NO_PAGES", "The PDF has no pages.")
NO_TEXT = Refusal(
    422,
    "NO_TEXT",
    "The PDF has no text that can be read; if it is a scan, run a text recognition (OCR) over it first.",
)
TOO_MUCH_MEMORY = Refusal(422, "TOO_COMPLEX", "The PDF needs more memory to be read than a file may use.")
TOO_LONG = Refusal(422, "TOO_COMPLEX", "The PDF takes longer to be read than a file may take.")
CRASHED = Refusal(
    422, "TOO_COMPLEX", "The PDF cannot be read: it is broken, or needs more memory than a file may use."
)
OUTPUT_TOO_LARGE = Refusal(422, "TOO_COMPLEX", "The XML of this PDF would be larger than may be sent.")
UPLOAD_STALLED = Refusal(408, "UPLOAD_STALLED", "The upload stopped coming; send it again.")
BUSY = Refusal(429, "BUSY", "All converters are at work; send it again in a moment.")
NO_CONVERTER = Refusal(503, "GW_UNAVAILABLE", "The converter was lost while it worked; send it again.")
NO_SPACE = Refusal(
    503, "GW_UNAVAILABLE", "The upload could not be put aside to be read; send it again later."
)


def too_large(most: int) -> Refusal:
    return Refusal(413, "TOO_LARGE", f"The file is larger than {most:,} bytes, the most that is taken.")


def unknown_mapping(name: str, known: tuple[str, ...]) -> Refusal:
    shown = "".join(c for c in name[:40] if c.isprintable())
    return Refusal(
        406, "INVALID_MAPPING", f"There is no mapping {shown!r}; choose one of {', '.join(known)}."
    )


def too_many_pages(pages: int, most: int) -> Refusal:
    return Refusal(422, "TOO_MANY_PAGES", f"The PDF has {pages:,} pages; at most {most:,} are converted.")


def page_too_large(number: int, width: float, height: float, most: float) -> Refusal:
    size = f"{width:,.0f} × {height:,.0f} points"
    return Refusal(422, "PAGE_TOO_LARGE", f"Page {number} is {size}; a side may have {most:,.0f} at most.")


def unreadable_page(number: int) -> Refusal:
    return Refusal(
        422, "PARSE_ERROR", f"Page {number} of the PDF cannot be read; save it again and send that."
    )
