"""The request for a picture, and the picture."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed

Format = Literal["png", "jpeg", "webp", "pdf"]
FORMATS: tuple[str, ...] = get_args(Format)
MEDIA_TYPES: dict[str, str] = {
    "png": "image/png",
    "jpeg": "image/jpeg",
    "webp": "image/webp",
    "pdf": "application/pdf",
}

LEAST_SIDE, MOST_WIDTH, MOST_HEIGHT = 16, 3840, 4320
MOST_DELAY_SECONDS = 10.0
LONGEST_SELECTOR = 500


class Shot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The request for a picture of a page. Raises `ShotFailed` for invalid values.

    The *url* is not checked here; the guard decides whether it may be opened. A PDF has sheets of *width* ×
    *height*, and only the first one without *full_page*.
    """

    url: str
    width: int = 1280
    height: int = 800
    format: Format = "png"
    full_page: bool = False  #: capture the whole page, not only the visible part
    delay: float = 0.0  #: seconds between the page's load and the picture
    selector: str | None = None  #: a CSS selector; the first visible match is captured
    quality: int | None = None  #: for jpeg and webp only

    def __post_init__(self) -> None:
        if not _whole(self.width, LEAST_SIDE, MOST_WIDTH) or not _whole(self.height, LEAST_SIDE, MOST_HEIGHT):
            sides = (
                f"a width from {LEAST_SIDE} to {MOST_WIDTH} and a height from {LEAST_SIDE} to {MOST_HEIGHT}"
            )
            raise ShotFailed(Code.BAD_SIZE, f"The size is out of range; use {sides} pixels.")
        if self.format not in FORMATS:
            raise ShotFailed(Code.BAD_FORMAT, f"The format is unknown; use one of {', '.join(FORMATS)}.")
        if self.quality is not None and (
            self.format not in ("jpeg", "webp") or not _whole(self.quality, 1, 100)
        ):
            raise ShotFailed(Code.BAD_QUALITY)
        if (
            isinstance(self.delay, bool)
            or not isinstance(self.delay, int | float)
            or not 0 <= self.delay <= MOST_DELAY_SECONDS
        ):
            raise ShotFailed(
                Code.BAD_DELAY, f"The delay is out of range; it is from 0 to {MOST_DELAY_SECONDS:g} seconds."
            )
        if self.selector is not None and (
            self.format == "pdf" or not 1 <= len(self.selector) <= LONGEST_SELECTOR
        ):
            raise ShotFailed(
                Code.BAD_SELECTOR,
                f"The selector cannot be used; it is CSS of 1 to {LONGEST_SELECTOR} characters, and not for a pdf.",
            )


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The picture that was taken."""

    data: bytes
    format: Format
    width: int  #: in pixels; for a PDF, of its sheets
    height: int
    url: str  #: the page's final URL
    status: int | None  #: of the page's HTTP response; a 404 is a page like any other

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.format]


def _whole(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
