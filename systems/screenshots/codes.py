"""The codes that people and programs see, what each says in its two tenses, and whether it is tried again (S1).

While a picture will be tried again the message says so; once it has failed it promises nothing that will not come.
"""

from __future__ import annotations

from enum import StrEnum

from systems.common.tenses import Known, fatal, passing


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


CODES: dict[Code, Known] = {
    Code.BAD_SIZE: fatal(422, "The size is not one that can be taken."),
    Code.BAD_FORMAT: fatal(422, "The format is not one of png, jpeg, webp and pdf."),
    Code.BAD_QUALITY: fatal(422, "The quality is a whole number from 1 to 100, for jpeg and webp only."),
    Code.BAD_DELAY: fatal(422, "The delay is not one that can be waited for."),
    Code.BAD_SELECTOR: fatal(422, "The selector is not one that can be looked for."),
    # One line for every way to a place that is closed: which it was would tell what is there.
    Code.TARGET_NOT_ALLOWED: fatal(
        422, "The page leads to an address that is not open to it; give one that keeps to the public web."
    ),
    Code.NAVIGATION_TIMEOUT: passing(504, "The page took longer than a page may take."),
    Code.CONNECTION_FAILED: passing(502, "The page could not be reached."),
    Code.BAD_CERTIFICATE: fatal(422, "The certificate of the page cannot be trusted."),
    Code.NOT_A_PAGE: fatal(422, "The address leads to a download or to nothing that can be shown."),
    Code.SELECTOR_NOT_FOUND: fatal(422, "Nothing that can be seen on the page matches the selector."),
    Code.PAGE_TOO_LARGE: fatal(422, "The page is larger, or needs more memory, than a page may."),
    Code.PAGE_MISBEHAVES: fatal(422, "The page opens dialogs, windows or other pages without end."),
    Code.BROWSER_CRASHED: passing(503, "The browser was lost while it worked."),
}

#: The codes that the request or the page causes: a name that does not resolve, a closed port, a page that takes too long …
BY_CUSTOMER = frozenset(code.value for code in CODES if code is not Code.BROWSER_CRASHED)


def message(code: Code, *, final: bool) -> str:
    known = CODES[code]
    return known.final if final else known.trying
