"""`python -m benchmarks.screenshots`: compare the browser with the same Chromium driven directly.

Both take the same pictures of the sample pages, with the same concurrency, in turn within one run. *Direct*
means playwright without guard, limits or a separate process: a context, a page, a load, a picture. Nothing
outside this machine is called.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

from playwright.async_api import Browser as DirectBrowser
from playwright.async_api import async_playwright

from systems.screenshots.browser import Browser, Limits
from systems.screenshots.browser.chromium import find_program
from systems.screenshots.samples import SampleServer
from systems.screenshots.shot import Shot

LEAST_RATIO = 0.8
PATHS = ("/article", "/colours", "/")
Take = Callable[[str], Awaitable[int]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screenshots", description=__doc__)
    parser.add_argument("--pictures", type=int, default=40, help="in each turn")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--at-a-time", type=int, default=2)
    options = parser.parse_args()
    with SampleServer() as samples:
        os.environ["SCREENSHOTS_ALLOW"] = f"127.0.0.1:{samples.port}"
        ratio = asyncio.run(compare(samples.url, options.pictures, options.turns, options.at_a_time))
    return 0 if ratio >= LEAST_RATIO else 1


async def compare(url: str, pictures: int, turns: int, at_a_time: int) -> float:
    """Measure both in turn, and return the ratio of our rate and the direct one."""
    # As root, Chromium has no sandbox in either case.
    as_root = [] if os.geteuid() else ["--no-sandbox"]
    async with (
        Browser(Limits(concurrency=at_a_time)) as ours,
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=find_program(os.environ), args=as_root) as direct,
    ):

        async def through_ours(page: str) -> int:
            return len((await ours.shoot(Shot(url=page))).data)

        async def directly(page: str) -> int:
            return await shoot_directly(direct, page)

        variants: dict[str, Take] = {"direct": directly, "ours": through_ours}
        rates: dict[str, list[float]] = {name: [] for name in variants}
        for take in variants.values():  # a warm-up, which is not measured
            await rate(take, url, 6, at_a_time)
        for turn in range(turns):
            for name in sorted(variants, reverse=bool(turn % 2)):
                rates[name].append(await rate(variants[name], url, pictures, at_a_time))
                print(f"turn {turn + 1}  {name:<7} {rates[name][-1]:6.2f} pictures/s", flush=True)
    medians = {name: statistics.median(measured) for name, measured in rates.items()}
    ratio = medians["ours"] / medians["direct"]
    print(
        f"ours {medians['ours']:.2f}/s, direct {medians['direct']:.2f}/s, {at_a_time} at a time: ratio {ratio:.2f}"
    )
    print(f"({LEAST_RATIO} at least)")
    return ratio


async def shoot_directly(browser: DirectBrowser, page_url: str) -> int:
    """Take a picture with playwright alone, and return its size in bytes."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = await context.new_page()
        await page.goto(page_url, wait_until="load")
        return len(await page.screenshot(type="png"))
    finally:
        await context.close()


async def rate(take: Take, url: str, pictures: int, at_a_time: int) -> float:
    """Take *pictures* pictures, and return the pictures a second."""
    waiting = iter(range(pictures))

    async def work() -> None:
        for number in waiting:
            assert await take(url + PATHS[number % len(PATHS)]) > 1000

    started = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(at_a_time):
            group.create_task(work())
    return pictures / (time.monotonic() - started)


if __name__ == "__main__":
    sys.exit(main())
