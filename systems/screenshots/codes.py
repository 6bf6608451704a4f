"""The public error codes: the messages of each, its HTTP status, and whether it is retried (S1).

Each code has two messages: one while the picture will be retried, which says so, and one once it has failed.
"""

from __future__ import annotations

from enum import StrEnum

from systems.common.error_codes import CodeInfo, fatal, passing


class Code(StrEnum):
    # the request
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
    # our service
    BROWSER_CRASHED = "BROWSER_CRASHED"


CODES: dict[Code, CodeInfo] = {
    Code.BAD_SIZE: fatal(422, "The size is out of range."),
    Code.BAD_FORMAT: fatal(422, "The format is not one of png, jpeg, webp and pdf."),
    Code.BAD_QUALITY: fatal(422, "The quality is a whole number from 1 to 100, for jpeg and webp only."),
    Code.BAD_DELAY: fatal(422, "The delay is out of range."),
    Code.BAD_SELECTOR: fatal(422, "The selector cannot be used."),
    # One message for every closed address: a more exact one would reveal which hosts exist inside our
    # network.
    Code.TARGET_NOT_ALLOWED: fatal(
        422, "The page leads to an address that is not allowed; use one on the public web."
    ),
    Code.NAVIGATION_TIMEOUT: passing(504, "The page took too long."),
    Code.CONNECTION_FAILED: passing(502, "The page could not be reached."),
    Code.BAD_CERTIFICATE: fatal(422, "The certificate of the page cannot be trusted."),
    Code.NOT_A_PAGE: fatal(422, "The address leads to a download, or to content that cannot be shown."),
    Code.SELECTOR_NOT_FOUND: fatal(422, "Nothing visible on the page matches the selector."),
    Code.PAGE_TOO_LARGE: fatal(422, "The page exceeds the limits on size or memory."),
    Code.PAGE_MISBEHAVES: fatal(422, "The page keeps opening dialogs, windows or other pages."),
    Code.BROWSER_CRASHED: passing(503, "The browser crashed."),
}

#: The codes caused by the request or the page, such as an unknown name, a closed port or a slow page.
BY_CUSTOMER = frozenset(code.value for code in CODES if code is not Code.BROWSER_CRASHED)


def message(code: Code, *, final: bool) -> str:
    """Return the message of *code* for a failed picture if *final*, else for one that will be retried."""
    known = CODES[code]
    return known.final if final else known.trying
