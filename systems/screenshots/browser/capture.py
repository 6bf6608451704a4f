"""Captures a loaded page: which part of it, up to which size, and in which format."""

from __future__ import annotations

import asyncio
import base64
import math
from typing import Any, NamedTuple

from playwright.async_api import CDPSession, Page
from playwright.async_api import Error as PlaywrightError

from systems.screenshots.browser.limits import Limits
from systems.screenshots.codes import Code
from systems.screenshots.failures import ShotFailed
from systems.screenshots.shot import Picture, Shot

_POLL_SECONDS = 0.1
#: Waits for two frames, after which the loaded page is on the screen. Before the first, no picture can be
#: taken.
_PAINTED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
_FIND = """selector => {
  let found;
  try { found = document.querySelectorAll(selector); } catch { return "bad"; }
  for (const one of found) {
    const box = one.getBoundingClientRect();
    if (box.width >= 1 && box.height >= 1)
      return [box.left + window.scrollX, box.top + window.scrollY, box.width, box.height];
  }
  return null;
}"""


class Box(NamedTuple):
    """A rectangle of the page, in CSS pixels."""

    x: float
    y: float
    width: float
    height: float


async def painted(page: Page) -> None:
    """Wait until the page has been painted."""
    await page.evaluate(_PAINTED)


async def capture(page: Page, session: CDPSession, shot: Shot, limits: Limits, status: int | None) -> Picture:
    """Return the picture that *shot* asks for; *status* is the page's HTTP status. Raises `ShotFailed`."""
    if shot.format == "pdf":
        box = Box(0, 0, shot.width, shot.height)
        data = await page.pdf(
            width=f"{shot.width}px",
            height=f"{shot.height}px",
            print_background=True,
            page_ranges=f"1-{limits.most_sheets}" if shot.full_page else "1",
        )
    else:
        box = await _box(page, session, shot, limits)
        options: dict[str, Any] = {"format": shot.format, "optimizeForSpeed": shot.format == "png"}
        if shot.full_page or shot.selector is not None:
            options |= {"clip": {**box._asdict(), "scale": 1}, "captureBeyondViewport": True}
        if shot.quality is not None:
            options["quality"] = shot.quality
        data = base64.b64decode((await _take_picture(page, session, options))["data"])
    if len(data) > limits.most_picture_bytes:
        raise ShotFailed(Code.PAGE_TOO_LARGE)
    return Picture(
        data=data,
        format=shot.format,
        width=int(box.width),
        height=int(box.height),
        url=page.url[:2048],
        status=status,
    )


async def _take_picture(page: Page, session: CDPSession, options: dict[str, Any]) -> dict[str, Any]:
    try:
        return await session.send("Page.captureScreenshot", options)
    except PlaywrightError as error:
        if "Unable to capture" not in str(error):
            raise
        await painted(page)  # the page has just navigated, and nothing is painted yet
        return await session.send("Page.captureScreenshot", options)


async def _box(page: Page, session: CDPSession, shot: Shot, limits: Limits) -> Box:
    """Return the part of the page to capture, in whole pixels. Raises `ShotFailed` when it is too large."""
    if shot.selector is not None:
        found = await _find(page, shot.selector, limits)
        x, y = max(math.floor(found.x), 0), max(math.floor(found.y), 0)
        box = Box(x, y, math.ceil(found.x + found.width) - x, math.ceil(found.y + found.height) - y)
    elif shot.full_page:
        size = (await session.send("Page.getLayoutMetrics"))["cssContentSize"]
        box = Box(
            0, 0, max(math.ceil(size["width"]), shot.width), max(math.ceil(size["height"]), shot.height)
        )
    else:
        box = Box(0, 0, shot.width, shot.height)  # the visible part, at any scroll position
    if max(box.width, box.height) > limits.most_side or box.width * box.height > limits.most_pixels:
        raise ShotFailed(
            Code.PAGE_TOO_LARGE,
            f"The picture would be {box.width:,.0f} × {box.height:,.0f} pixels; at most {limits.most_side:,} a side "
            f"and {limits.most_pixels:,} in total are possible. Leave out full_page, or name a part by selector.",
        )
    return box


async def _find(page: Page, selector: str, limits: Limits) -> Box:
    """Return the box of the first visible match. It may appear up to `selector_seconds` after the load."""
    clock = asyncio.get_running_loop().time
    until = clock() + limits.selector_seconds
    while True:
        try:
            found = await page.evaluate(_FIND, selector)
        except PlaywrightError as error:
            if "context was destroyed" not in str(error):
                raise
            found = None  # the page has just navigated; the match may be on the new one
        if found == "bad":
            raise ShotFailed(
                Code.SELECTOR_NOT_FOUND, "The selector is not CSS; write one as in a stylesheet."
            )
        if _is_box(found):
            return Box(*found)
        if clock() >= until:
            raise ShotFailed(Code.SELECTOR_NOT_FOUND)
        await asyncio.sleep(_POLL_SECONDS)


def _is_box(found: object) -> bool:
    """Return whether *found* is a box. It is checked because the page's own scripts can change the result."""
    return (
        isinstance(found, list)
        and len(found) == 4
        and all(type(side) in (int, float) and math.isfinite(side) and abs(side) < 1e7 for side in found)
        and found[2] >= 1
        and found[3] >= 1
    )
