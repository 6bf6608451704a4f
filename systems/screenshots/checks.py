"""The checks of the two tasks. They run on every call, from any entry point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast import PayloadError
from holdfast.outbound import TargetNotAllowed
from systems.screenshots.codes import Code, message
from systems.screenshots.guard import Rules

LONGEST_URL = 4_096

Check = Callable[[str | None, Mapping[str, Any]], None]


def make_check(rules: Rules, *, pdf: bool) -> Check:
    """Return the check of the task for pictures, or with *pdf* of the task for PDFs.

    It raises `PayloadError`.

    A URL that is closed without a lookup is refused here, before it costs anything. The guard checks it again
    later.
    """

    def check(owner: str | None, args: Mapping[str, Any]) -> None:
        shot = args["shot"]
        if (shot.format == "pdf") != pdf:
            raise PayloadError("a pdf is made by PDF_GENERATION, every other format by SCREENSHOT")
        if not 1 <= len(shot.url) <= LONGEST_URL:
            raise PayloadError(f"url has 1 to {LONGEST_URL:,} characters")
        try:
            rules.target(shot.url)
        except TargetNotAllowed:
            raise PayloadError(message(Code.TARGET_NOT_ALLOWED, final=True)) from None

    return check
