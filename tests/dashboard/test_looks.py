"""How every page looks and reads: hostile content, both themes, a phone, nothing to show, and what axe finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import DESK, PHONE, Visitor
from tests.dashboard.world import World, running

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]
SCRIPTS = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
)
NAUGHTY = (
    *SCRIPTS,
    "\u202egnp.exe\u202c",
    "a\u200bb\u200d\ufeffc",
    "Z\u0351\u036b\u0343\u032aA\u0322\u030dL\u0301G\u0328O\u0310",
    "ﷺ" * 40,
    "x" * 400,
    "../../etc/passwd",
    "%00%2e%2e",
    "😀👩‍👩‍👧‍👦🏳️‍🌈",
)


@pytest.fixture(scope="module")
def hostile(world: World) -> dict[str, str]:
    """Jobs whose every text comes from an attacker, by what became of them."""
    texts = list(NAUGHTY)
    refused = world.enqueue(
        "refuse",
        {"owner": SCRIPTS[1], "tags": [text for text in texts if text.isprintable()], "key": SCRIPTS[2]},
        why="\n".join(texts),
    )
    waiting = world.enqueue(
        "later",
        {"delay": "1h", "owner": texts[7], "queue": SCRIPTS[0]},
        name=texts[8],
        data={text: [text, {text: text}] for text in texts},
    )
    large = world.enqueue(
        "later", {"owner": "large"}, name="<b>" * 30_000, data=[{"n": i} for i in range(20_000)]
    )
    world.until(refused, "failed")
    world.until(large, "complete")
    return {"refused": refused, "waiting": waiting, "large": large}


def is_whole(page: Page) -> None:
    """The page is not wider than the screen, and no script of the content ran."""
    assert page.evaluate("window.ran") is None
    width = page.evaluate("innerWidth")
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, f"{page.url}: {wide} px on a screen of {width} px"


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_hostile_texts_run_no_script_and_break_no_layout(
    world: World, visit: Visit, hostile: dict[str, str], viewport: dict[str, int]
) -> None:  # E68
    visitor = visit(viewport=viewport).sign_in()
    of_jobs = f"{hostile['refused']}?tab=events", hostile["waiting"], f"{hostile['large']}?tab=result"
    for path in ("", "jobs", *(f"jobs/{one}" for one in of_jobs)):
        page = visitor.open(path)
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.get_by_role("main")).to_contain_text("later" if path in ("", "jobs") else "Timeline")
        is_whole(page)
        page.close()
    page = visitor.open(f"jobs/{hostile['waiting']}")
    page.get_by_role("button", name="Edit and retry").click()
    expect(page.get_by_role("dialog").get_by_text("The server hides data")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Copy as").click()
    expect(page.get_by_role("dialog").get_by_role("heading", name="Python")).to_be_visible()
    is_whole(page)


def test_a_hostile_address_is_a_query_that_cannot_be_read(visit: Visit) -> None:  # E68
    visitor = visit().sign_in()
    for query in (
        "%3Cscript%3Ealert(1)%3C/script%3E",
        "state:%22%3E%3Cimg%20src=x%20onerror=alert(1)%3E",
        "%E2%80%AE:x",
    ):
        page = visitor.open(f"jobs?q={query}")
        expect(page.get_by_role("alert")).to_be_visible()
        is_whole(page)
    visitor.expected = ["404"]
    page = visitor.open("jobs/%3Cimg%20src=x%20onerror=alert(1)%3E")
    expect(page.get_by_text("There is no such job")).to_be_visible()
    is_whole(page)


def test_a_large_payload_is_shown_in_parts(visit: Visit, hostile: dict[str, str]) -> None:  # E68
    page = visit().sign_in().open(f"jobs/{hostile['large']}")
    expect(page.get_by_text("20000 items")).to_be_visible()
    assert page.locator("*").count() < 3000
    page.get_by_role("button", name="Show all 90,000 characters").click()
    expect(page.get_by_role("button", name="Show all 90,000 characters")).to_have_count(0)


def test_commands_in_a_sentence_are_shown_as_code(
    world: World, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:  # E68
    monkeypatch.setenv("HOLDFAST_HEALTH_DEAD_LETTERS", "1")
    world.fails.add("dead.pdf")
    world.until(world.enqueue("convert", pdf="dead.pdf"), "failed")
    page = visit().sign_in().open()
    expect(
        page.get_by_role("main").locator("code").filter(has_text="holdfast dead groups").first
    ).to_be_visible()
    expect(page.get_by_role("main")).not_to_contain_text("`")


# -- nothing to show -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(tmp_path_factory.mktemp("empty")) as found:
        yield found


def test_an_engine_without_jobs_says_how_to_enqueue_one(visit: Visit, empty: World) -> None:  # E68
    visitor = visit(empty).sign_in()
    page = visitor.open()
    expect(page.locator(".sentence")).to_contain_text("All is well")
    for path in ("", "jobs"):
        expect(visitor.open(path).get_by_text("holdfast enqueue greet").first).to_be_visible()
    expect(visitor.open("dead").get_by_text("There are no dead letters")).to_be_visible()
    owner = visit(empty).sign_in("owner", "newcomer")
    expect(owner.open().get_by_text("newcomer has no jobs yet")).to_be_visible()


# -- axe, themes, motion ---------------------------------------------------------------------------------------------
FOUND = """async source => {
  const found = await axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] });
  return found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html.slice(0, 160)).slice(0, 3).join(' | ')}`);
}"""


def violations(page: Page, axe: str) -> list[str]:
    page.evaluate(f"{axe}; undefined")
    return list(page.evaluate(FOUND))


@pytest.mark.parametrize(("theme", "viewport"), [("light", DESK), ("dark", PHONE)], ids=["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    world: World, visit: Visit, hostile: dict[str, str], axe: str, theme: str, viewport: dict[str, int]
) -> None:  # E68
    visitor = visit(viewport=viewport, color_scheme=theme, reduced_motion="reduce").sign_in()
    found: dict[str, list[str]] = {}
    for path in (
        "",
        "jobs",
        "jobs?q=colour:red",
        "jobs?q=owner:nobody",
        "dead",
        "dead?age=old",
        f"jobs/{hostile['refused']}?tab=events",
        f"jobs/{hostile['waiting']}",
    ):
        page = visitor.open(path)
        expect(page.get_by_role("main")).not_to_be_empty()
        expect(page.locator(".skeleton")).to_have_count(0)
        expect(page.locator("section, .grid, .empty, .notice").first).to_be_visible()
        is_whole(page)
        found[path] = violations(page, axe)
        if path == "jobs":
            page.get_by_role("button", name="Retry all that match").click()
            expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_visible()
            found["sheet"] = violations(page, axe)
            page.keyboard.press("Escape")
            page.keyboard.press("Control+k")
            found["palette"] = violations(page, axe)
        page.close()
    visitor.context.clear_cookies()
    visitor.expected = ["401"]
    page = visitor.open()
    expect(page.get_by_label("Key")).to_be_visible()
    found["sign-in"] = violations(page, axe)
    assert {path: said for path, said in found.items() if said} == {}


def test_nothing_moves_for_those_who_want_less_motion(visit: Visit) -> None:  # E68
    for motion, expected in (("reduce", "none"), ("no-preference", "arrive")):
        page = visit(reduced_motion=motion).sign_in().open()
        expect(page.get_by_role("heading", name="Checks")).to_be_visible()
        page.keyboard.press("?")
        assert (
            page.get_by_role("dialog").evaluate("sheet => getComputedStyle(sheet).animationName") == expected
        )


def test_what_has_the_focus_is_seen(visit: Visit) -> None:  # E68
    page = visit().sign_in().open("jobs")
    expect(page.get_by_role("navigation", name="State")).to_be_visible()
    for _ in range(14):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            "() => { const one = document.activeElement; const box = one.closest('.query-field') ?? one;"
            " const style = getComputedStyle(one.matches('.query-field input') ? box : one);"
            " return [one.outerHTML.slice(0, 80), style.outlineStyle, parseFloat(style.outlineWidth)] }"
        )
        assert seen[1] != "none", seen
        assert seen[2] >= 1, seen


def test_the_first_load_is_small(world: World, visit: Visit) -> None:  # E68
    visitor = visit().sign_in()
    page = visitor.context.new_page()
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(int(answer.headers.get("content-length", 0))))
    page.goto(world.url)
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    assert sum(sizes) <= 250_000


def test_the_licences_of_what_is_bundled_are_served(
    world: World, visit: Visit, tmp_path: Path
) -> None:  # E68
    answer = visit().context.request.get(f"{world.url}/licenses.txt")
    for name in ("react", "react-dom", "@tanstack/react-query", "@tanstack/react-virtual"):
        assert f"{name} " in answer.text()
    assert answer.text().count("Permission is hereby granted") >= 4
