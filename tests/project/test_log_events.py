"""The reference page of log events lists what the source logs, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.log_events import FOLDERS, NAME, PAGE, ROOT, UnreadableEvent, differences, find_events, read_page

_LOOKS_LIKE_AN_EVENT = re.compile(r'\.(?:debug|info|warning|error|exception)\(\s*"([a-z_]+\.[a-z_]+)"')

SOURCE = """
from holdfast.logging import Log

log = Log("shop")
NAMES = {True: "shop.opened", False: "shop.closed"}

def run(is_open, more):
    log.info("order.placed", order=1, price=2)
    log.warning("order.lost" if is_open else "order.kept", **more)
    log.error(NAMES[is_open])
    Log("other").exception("order.lost")
    print.info("not.logged")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "shop.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_the_page_lists_every_log_event() -> None:  # E63
    assert differences(find_events(), read_page(PAGE.read_text(encoding="utf-8"))) == []


def test_every_name_is_noun_verbed() -> None:  # E63
    assert [name for _, name in find_events() if not NAME.fullmatch(name)] == []


def test_no_call_escapes_the_search() -> None:
    known = {name for _, name in find_events()}
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    logged = {
        name for path in paths for name in _LOOKS_LIKE_AN_EVENT.findall(path.read_text(encoding="utf-8"))
    }
    assert logged
    assert logged <= known


def test_the_page_is_sorted_within_its_sections() -> None:
    rows = list(read_page(PAGE.read_text(encoding="utf-8")))
    for section in {section for section, _ in rows}:
        names = [name for of, name in rows if of == section]
        assert names == sorted(names)


def test_events_are_found_by_name_level_and_field(shop: Path) -> None:
    found = find_events(shop)
    assert [name for _, name in found] == [
        "order.kept",
        "order.lost",
        "order.placed",
        "shop.closed",
        "shop.opened",
    ]
    assert found["Holdfast", "order.placed"].fields == {"order", "price"}
    lost = found["Holdfast", "order.lost"]
    assert (lost.levels, lost.more) == ({"warning", "error"}, True)


def test_a_computed_name_is_refused(shop: Path) -> None:
    (shop / "src" / "shop.py").write_text(SOURCE + '    log.info("shop." + more)\n', encoding="utf-8")
    with pytest.raises(UnreadableEvent, match=r"src/shop\.py:13: give the event's name as a literal"):
        find_events(shop)


def test_each_difference_is_reported(shop: Path) -> None:
    page = """
## Holdfast

| Event | Level | Meaning | Fields |
|---|---|---|---|
| `order.kept` | warning | Kept. | `why` |
| `order.lost` | warning | Lost. | |
| `order.placed` | info | Placed. | `order`, `colour` |
| `order.sold` | info | Sold. | |
| `shop.opened` | error | Opened. | |
"""
    assert differences(find_events(shop), read_page(page)) == [
        "Holdfast: order.lost is logged at ['error', 'warning'], the page says ['warning']",
        "Holdfast: order.placed has no fields ['colour'], the page lists them",
        "Holdfast: order.placed has the fields ['price'], the page does not list them",
        "Holdfast: order.sold is not in the source",
        "Holdfast: shop.closed is not on the page",
    ]
