"""From a loaded page to bytes: what part of it, how large it may be, in which format."""

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

_LOOK_SECONDS = 0.1
#: Two frames: what the load has changed is on the screen after them. Before the first there is nothing to take a picture of.
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
    x: float
    y: float
    width: float
    height: float


async def painted(page: Page) -> None:
    await page.evaluate(_PAINTED)


async def capture(page: Page, session: CDPSession, shot: Shot, limits: Limits, status: int | None) -> Picture:
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
        asked: dict[str, Any] = {"format": shot.format, "optimizeForSpeed": shot.format == "png"}
        if shot.full_page or shot.selector is not None:
            asked |= {"clip": {**box._asdict(), "scale": 1}, "captureBeyondViewport": True}
        if shot.quality is not None:
            asked["quality"] = shot.quality
        data = base64.b64decode((await _photograph(page, session, asked))["data"])
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


async def _photograph(page: Page, session: CDPSession, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return await session.send("Page.captureScreenshot", asked)
    except PlaywrightError as error:
        if "Unable to capture" not in str(error):
            raise
        await painted(page)  # it went elsewhere just now, and has nothing to show yet
        return await session.send("Page.captureScreenshot", asked)


async def _box(page: Page, session: CDPSession, shot: Shot, limits: Limits) -> Box:
    """The part of the page that is the picture, in whole pixels."""
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
        box = Box(0, 0, shot.width, shot.height)  # what the window shows, wherever that is
    if max(box.width, box.height) > limits.most_side or box.width * box.height > limits.most_pixels:
        raise ShotFailed(
            Code.PAGE_TOO_LARGE,
            f"The picture would be {box.width:,.0f} × {box.height:,.0f} pixels; a side has {limits.most_side:,} at "
            f"most, and all of it {limits.most_pixels:,}. Leave out full_page, or name a part by selector.",
        )
    return box


async def _find(page: Page, selector: str, limits: Limits) -> Box:
    """Where the first is that matches and can be seen. It may come a little later than the page."""
    clock = asyncio.get_running_loop().time
    until = clock() + limits.selector_seconds
    while True:
        try:
            found = await page.evaluate(_FIND, selector)
        except PlaywrightError as error:
            if "context was destroyed" not in str(error):
                raise
            found = None  # the page went elsewhere just now; it may be there
        if found == "bad":
            raise ShotFailed(
                Code.SELECTOR_NOT_FOUND, "The selector is not CSS; write one as in a stylesheet."
            )
        if _is_box(found):
            return Box(*found)
        if clock() >= until:
            raise ShotFailed(Code.SELECTOR_NOT_FOUND)
        await asyncio.sleep(_LOOK_SECONDS)


def _is_box(found: object) -> bool:
    """The page's own code may have changed what it answers with."""
    return (
        isinstance(found, list)
        and len(found) == 4
        and all(type(side) in (int, float) and math.isfinite(side) and abs(side) < 1e7 for side in found)
        and found[2] >= 1
        and found[3] >= 1
    )
