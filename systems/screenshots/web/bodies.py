"""Requests as they come in: bounded, strict, and in one line when they are not what they should be."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import Request

from holdfast.outbound import TargetNotAllowed
from systems.common.asking import UNREADABLE, body_of, why_unreadable
from systems.screenshots.checks import LONGEST_URL
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.guard import Rules
from systems.screenshots.shot import Shot
from systems.screenshots.web.problems import Refused

MOST_BODY = 20_000
T = TypeVar("T")


class Viewport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    width: int
    height: int


class AskShot(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The size by *viewport*, or by *width* and *height*."""

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
        """`ShotFailed` names what cannot be taken, and what can."""
        if self.viewport is not None and (self.width, self.height) != (None, None):
            raise Refused(
                "VALIDATION_ERROR",
                "The size is given twice; use viewport, or width and height.",
                status=422,
            )
        size = self.viewport or self
        given: dict[str, Any] = {
            name: getattr(size, name) for name in ("width", "height") if getattr(size, name) is not None
        }
        return Shot(
            url=_open_url(self.url, rules),
            format=self.format,  # type: ignore[arg-type] # it is the shot that knows the formats
            full_page=self.full_page,
            delay=self.delay,
            selector=self.selector,
            quality=self.quality,
            **given,
        )


class AskRetry(msgspec.Struct, frozen=True, rename="camel"):
    requested_by: Annotated[str, msgspec.Meta(max_length=100)] = ""  #: on record beside the key, which counts


def _open_url(url: str, rules: Rules) -> str:
    """What can be seen to be closed without asking anybody is refused before it costs anything. The guard has the last word."""
    try:
        rules.target(url)
    except TargetNotAllowed:
        raise ShotFailed(Code.TARGET_NOT_ALLOWED) from None
    return url


async def read_body(request: Request, kind: type[T]) -> T:
    body = await body_of(request, MOST_BODY)
    if body is None:
        detail = f"The request is larger than {MOST_BODY:,} bytes."
        raise Refused("TOO_LARGE", detail, headers={"connection": "close"})
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        status = 422 if isinstance(error, msgspec.ValidationError) else 400
        raise Refused("VALIDATION_ERROR", why_unreadable(error), status=status) from None
