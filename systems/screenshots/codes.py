"""The codes that people and programs see, what each says in its two tenses, and whether it is tried again (S1).

While a picture will be tried again the message says so; once it has failed it promises nothing that will not come.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Code(StrEnum):
    # what was asked for
    BAD_SIZE = "BAD_SIZE"
    BAD_FORMAT = "BAD_FORMAT"
    BAD_QUALITY = "BAD_QUALITY"
    BAD_DELAY = "BAD_DELAY"
    BAD_SELECTOR = "BAD_SELECTOR"
    TARGET_NOT_ALLOWED = "TARGET_NOT_ALLOWED"
    # the page
    NAVIGATION_TIMEOUT = "NAVIGATION_TIMEOUT"
    CONNECTION_FAILED = "CONNECTION_FAILED"
    BAD_CERTIFICATE = "BAD_CERTIFICATE"
    NOT_A_PAGE = "NOT_A_PAGE"
    SELECTOR_NOT_FOUND = "SELECTOR_NOT_FOUND"
    PAGE_TOO_LARGE = "PAGE_TOO_LARGE"
    PAGE_MISBEHAVES = "PAGE_MISBEHAVES"
    # our own places
    BROWSER_CRASHED = "BROWSER_CRASHED"


class Known(NamedTuple):
    status: int  #: of the answer in which it stands
    again: bool  #: whether it is tried again
    trying: str  #: while it will be; the same as *final* for what is never tried again
    final: str


def _fatal(status: int, text: str) -> Known:
    return Known(status, False, text, text)


def _passing(status: int, text: str) -> Known:
    return Known(
        status, True, f"{text} It will be tried again.", f"{text} Trying again did not help; use Retry later."
    )


CODES: dict[Code, Known] = {
    Code.BAD_SIZE: _fatal(422, "The size is not one that can be taken."),
    Code.BAD_FORMAT: _fatal(422, "The format is not one of png, jpeg, webp and pdf."),
    Code.BAD_QUALITY: _fatal(422, "The quality is a whole number from 1 to 100, for jpeg and webp only."),
    Code.BAD_DELAY: _fatal(422, "The delay is not one that can be waited for."),
    Code.BAD_SELECTOR: _fatal(422, "The selector is not one that can be looked for."),
    # One line for every way to a place that is closed: which it was would tell what is there.
    Code.TARGET_NOT_ALLOWED: _fatal(
        422, "The page leads to an address that is not open to it; give one that keeps to the public web."
    ),
    Code.NAVIGATION_TIMEOUT: _passing(504, "The page took longer than a page may take."),
    Code.CONNECTION_FAILED: _passing(502, "The page could not be reached."),
    Code.BAD_CERTIFICATE: _fatal(422, "The certificate of the page cannot be trusted."),
    Code.NOT_A_PAGE: _fatal(422, "The address leads to a download or to nothing that can be shown."),
    Code.SELECTOR_NOT_FOUND: _fatal(422, "Nothing that can be seen on the page matches the selector."),
    Code.PAGE_TOO_LARGE: _fatal(422, "The page is larger, or needs more memory, than a page may."),
    Code.PAGE_MISBEHAVES: _fatal(422, "The page opens dialogs, windows or other pages without end."),
    Code.BROWSER_CRASHED: _passing(503, "The browser was lost while it worked."),
}


def message(code: Code, *, final: bool) -> str:
    known = CODES[code]
    return known.final if final else known.trying
