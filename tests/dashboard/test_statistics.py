"""Statistics on the first page: what it draws is what the store has counted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import PHONE, Visitor
from tests.dashboard.test_looks import is_whole, violations
from tests.dashboard.world import World, running

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


@pytest.fixture
def uncounted(tmp_path: Path) -> Iterator[World]:
    """An engine whose maintenance does not run, so nothing is counted yet."""
    with running(tmp_path, maintenance=False) as found:
        yield found


@contextmanager
def maintenance(world: World) -> Iterator[None]:
    stopping = asyncio.Event()

    async def run() -> None:
        running = asyncio.create_task(world.app.run_maintenance(handle_signals=False))
        await stopping.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    ended = asyncio.run_coroutine_threadsafe(run(), world.loop)
    try:
        yield
    finally:
        world.loop.call_soon_threadsafe(stopping.set)
        ended.result(30)


def counted(world: World, **expected: int) -> dict[str, int]:
    """Wait until maintenance has counted so many. Return all counts."""

    async def look() -> dict[str, int]:
        async with asyncio.timeout(30):
            while True:
                counts = dict((await world.app.stats.overview()).counts)
                if all(counts[name] == count for name, count in expected.items()):
                    return counts
                await asyncio.sleep(0.05)

    return world.do(look())


def sums(page: Page, title: str) -> dict[str, int]:
    """Return the columns of a chart's table, added up."""
    table = page.get_by_role("group", name=f"{title}, as a table")
    names, *minutes = table.evaluate(
        "box => [...box.querySelectorAll('tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    return {
        name: sum(int(cells[column].replace(",", "")) for cells in minutes)
        for column, name in enumerate(names)
        if column > 0
    }


def test_the_charts_show_what_the_store_has_counted(
    uncounted: World, visit: Visit, axe: str
) -> None:  # E68 E68a
    world = uncounted
    world.open_gate()
    for number in range(12):
        world.until(world.enqueue("wait", name=str(number)), "complete")
    page = visit(world).sign_in().open()
    expect(page.get_by_text("No statistics yet")).to_have_count(2)
    expect(page.get_by_text(re.compile("Statistics are .* behind"))).to_be_visible()
    assert violations(page, axe) == []
    world.fails.add("torn.pdf")
    with maintenance(world):
        failed = world.enqueue("convert", pdf="torn.pdf")
        world.until(failed, "failed")
        world.loop.call_soon_threadsafe(world.gate.clear)
        for number in range(40):
            world.enqueue("wait", name=f"waits {number}")
        counts = counted(world, completed=12, failed=1, retried=2, started=12 + 3 + 8)
        page.reload()
        page.locator(".chart summary").first.click()
        expect(page.get_by_role("group", name="Jobs per minute, as a table")).to_be_visible()
        assert sums(page, "Jobs per minute") == {
            name: counts[name] for name in ("completed", "retried", "failed")
        }
        expect(page.get_by_role("img", name=re.compile("^Waiting time: at most"))).to_be_visible()
        expect(page.get_by_text("No statistics yet")).to_have_count(0)
        slow = page.get_by_role("row").filter(has=page.get_by_role("link", name="slow", exact=True))
        expect(slow.get_by_role("img", name=re.compile("^Trend of slow: [1-9]"))).to_be_visible()
        expect(slow).to_contain_text(re.compile(r"\d (min|s)"))  # it drains
        assert violations(page, axe) == []
        is_whole(page)
        slow.get_by_role("button", name="Pause queue slow").click()
        expect(slow).to_contain_text("paused by")
        expect(slow).not_to_contain_text(re.compile(r"\d (min|s)"))
        phone = visit(world, viewport=PHONE, color_scheme="dark").sign_in().open()
        expect(phone.get_by_role("img", name=re.compile("^Jobs per minute: at most"))).to_be_visible()
        is_whole(phone)
        world.open_gate()
