"""Request bodies: bounded in size, strictly decoded, and refused with a one-line reason."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request

from holdfast.outbound import TargetNotAllowed
from systems.common.requests import UNREADABLE, bounded_body, decode_error_text
from systems.screenshots.checks import LONGEST_URL
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Rules
from systems.screenshots.shot import Shot
from systems.screenshots.web.problems import Refused

MOST_BODY = 20_000
T = TypeVar("T")


class Viewport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of the browser's window, in pixels."""

    width: int
    height: int


class AskShot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of a request for a picture. *viewport*, or *width* and *height*, give its size."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_URL)]
    viewport: Viewport | None = None
    width: int | None = None
    height: int | None = None
    format: str = "png"
    full_page: bool = False
    delay: float = 0.0
    selector: str | None = None
    quality: int | None = None
    priority: Literal["HIGH", "NORMAL", "LOW"] = "NORMAL"

    def shot(self, rules: Rules) -> Shot:
        """Return the shot.

        Raises `ShotFailed`, whose message says which values are possible, or `Refused`.
        """
        if self.viewport is not None and (self.width, self.height) != (None, None):
            raise Refused(
                "VALIDATION_ERROR",
                "The size is given twice; use viewport, or width and height.",
                status=422,
            )
        size = self.viewport or self
        dimensions: dict[str, Any] = {
            name: getattr(size, name) for name in ("width", "height") if getattr(size, name) is not None
        }
        return Shot(
            url=_open_url(self.url, rules),
            format=self.format,  # type: ignore[arg-type] # checked by Shot
            full_page=self.full_page,
            delay=self.delay,
            selector=self.selector,
            quality=self.quality,
            **dimensions,
        )


class AskRetry(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a manual retry."""

    requested_by: Annotated[str, msgspec.Meta(max_length=100)] = ""  #: recorded in addition to the key


def _open_url(url: str, rules: Rules) -> str:
    """Return *url*. Raises `ShotFailed` if it is closed without a lookup, so that it costs nothing."""
    try:
        rules.target(url)
    except TargetNotAllowed:
        raise ShotFailed(Code.TARGET_NOT_ALLOWED) from None
    return url


async def read_body(request: Request, kind: type[T]) -> T:
    """Decode the JSON body as *kind*. Raises `Refused` when it is too large or invalid."""
    body = await bounded_body(request, MOST_BODY)
    if body is None:
        detail = f"The request is larger than {MOST_BODY:,} bytes."
        raise Refused("TOO_LARGE", detail, headers={"connection": "close"})
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        status = 422 if isinstance(error, msgspec.ValidationError) else 400
        raise Refused("VALIDATION_ERROR", decode_error_text(error), status=status) from None
