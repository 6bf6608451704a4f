"""The page of dead letters and its planner in a real Chromium: each button is checked in the store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from holdfast.engine.operation import Operation
from tests.dashboard.conftest import PHONE, Visitor
from tests.dashboard.test_looks import SCRIPTS, is_whole, violations
from tests.dashboard.world import World, running

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def failed(world: World, owner: str, count: int = 1, **args: object) -> list[str]:
    """Return the ids of jobs of *owner* that have failed for good."""
    pdfs = [f"{owner}-{number}.pdf" for number in range(count)]
    world.fails.update(pdfs)
    ids = [world.enqueue("convert", {"owner": owner}, pdf=pdf, **args) for pdf in pdfs]
    for job_id in ids:
        world.until(job_id, "failed")
    return ids


def repair(world: World, owner: str) -> None:
    """From now on the jobs of *owner* succeed."""
    world.fails = {pdf for pdf in world.fails if not pdf.startswith(f"{owner}-")}


def listed(world: World, owner: str) -> list[str]:
    return [letter.id for letter in world.do(world.app.dead_letters.list(owner=owner))]


def newest(world: World) -> Operation:
    return world.do(world.app.operations.list(limit=1))[0]


def planner(page: Page, act: str = "Redrive") -> Locator:
    page.get_by_role("button", name=f"{act} all that match").click()
    return page.get_by_role("dialog")


def test_one_dead_letter_is_redriven_by_its_button(world: World, visit: Visit) -> None:  # E68
    first, second = failed(world, "dead-one", 2)
    repair(world, "dead-one")
    page = visit().sign_in().open("dead?owner=dead-one")
    expect(page.get_by_text("2 dead letters, oldest first")).to_be_visible()
    page.get_by_role("button", name=f"Redrive job {first}").click()
    world.until(first, "complete")
    expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
    assert listed(world, "dead-one") == [second]
    page.locator("tbody").get_by_role("link", name="convert", exact=True).click()
    expect(page).to_have_url(f"{world.url}/jobs/{second}")


def test_one_dead_letter_is_discarded_with_a_typed_reason(world: World, visit: Visit) -> None:  # E68
    [job_id] = failed(world, "dead-discard")
    page = visit().sign_in().open("dead?owner=dead-discard")
    page.get_by_role("button", name=f"Discard job {job_id}").click()
    sheet = page.get_by_role("dialog")
    discard = sheet.get_by_role("button", name="Discard", exact=True)
    expect(discard).to_be_disabled()
    sheet.get_by_label("Reason").fill("the file is gone")
    discard.click()
    expect(page.get_by_text("No dead letter matches owner dead-discard")).to_be_visible()
    assert (listed(world, "dead-discard"), world.job(job_id).state) == ([], "failed")
    [event] = [one for one in world.do(world.app.events.list(job_id=job_id)) if "reason" in one.meta]
    assert event.meta["reason"] == "the file is gone"


def test_all_that_match_are_discarded_with_a_typed_reason(world: World, visit: Visit) -> None:  # E68
    failed(world, "dead-many", 3)
    others = failed(world, "dead-others")
    page = visit().sign_in().open("dead?owner=dead-many")
    sheet = planner(page, "Discard")
    expect(sheet).to_contain_text("3 jobs will be discarded")
    start = sheet.get_by_role("button", name="Discard 3 jobs")
    expect(start).to_be_disabled()
    sheet.get_by_label("Reason").fill("never needed")
    start.click()
    expect(sheet.locator("[data-progress=done]")).to_contain_text("3 of 3")
    assert listed(world, "dead-many") == []
    assert listed(world, "dead-others") == others


def test_a_plan_shows_what_it_will_do_and_then_does_it(world: World, visit: Visit) -> None:  # E68
    ids = failed(world, "dead-plan", 2)
    page = visit().sign_in().open("dead?owner=dead-plan&task=convert")
    sheet = planner(page)
    expect(sheet).to_contain_text("2 jobs will be redriven")
    sheet.get_by_label("Change arguments").fill("{")
    expect(sheet.get_by_text("this is not JSON yet")).to_be_visible()
    expect(sheet.get_by_role("button", name="Redrive 2 jobs")).to_be_disabled()
    sheet.get_by_label("Change arguments").fill(json.dumps({"pages": "many"}))
    expect(sheet).to_contain_text("2 have arguments that do not fit the task")
    expect(sheet.get_by_role("button", name="Redrive 0 jobs")).to_be_disabled()
    sheet.get_by_label("Change arguments").fill(json.dumps({"pdf": "good.pdf", "pages": 7}))
    row = sheet.get_by_role("row").filter(has_text="dead-plan-0.pdf")
    expect(row).to_contain_text("good.pdf")
    for label in ("Ramp from", "Up to"):
        sheet.get_by_label(label).fill("")
    sheet.get_by_label("Canary").fill("1")
    sheet.get_by_label("Reason").fill("the name was wrong")
    sheet.get_by_role("button", name="Redrive 2 jobs").click()
    expect(sheet.locator("[data-progress=done]")).to_contain_text("2 of 2")
    for job_id in ids:
        assert world.until(job_id, "complete").result == {"pdf": "good.pdf", "pages": 7}
    options = newest(world).options
    assert (options["canary"], options["reason"]) == (1, "the name was wrong")


def test_a_plan_sends_the_jobs_to_another_queue(world: World, visit: Visit) -> None:  # E68
    [job_id] = failed(world, "dead-queue")
    page = visit().sign_in().open("dead?owner=dead-queue")
    sheet = planner(page)
    sheet.get_by_label("Other queue").fill("repairs")
    expect(sheet.locator(".facts")).to_contain_text("repairs")
    sheet.get_by_role("button", name="Redrive 1 job").click()
    expect(sheet.locator("[data-progress]")).to_contain_text("1 of 1")
    assert world.job(job_id).queue == "repairs"
    newest_id = newest(world).id
    sheet.get_by_role("button", name="Stop").click()
    expect(sheet.locator("[data-progress=cancelled]")).to_be_visible()
    assert world.do(world.app.operations.get(newest_id)).progress == "cancelled"


def test_a_plan_whose_canary_fails_again_stops_by_itself(world: World, visit: Visit) -> None:  # E68
    failed(world, "dead-canary", 8)  # and their cause stays
    page = visit().sign_in().open("dead?owner=dead-canary")
    sheet = planner(page)
    sheet.get_by_label("Canary").fill("4")
    sheet.get_by_role("button", name="Redrive 8 jobs").click()
    expect(sheet.locator("[data-progress=stopped]")).to_contain_text(
        "of the canary of 4 failed again; at most 20%"
    )
    operation = newest(world)
    assert (operation.progress, operation.done, operation.rate) == ("stopped", 4, 200 / 60)
    assert operation.options["ramp_from"] == 10 / 60
    page.keyboard.press("Escape")
    page.reload()
    expect(page.locator("[data-progress=stopped]").first).to_contain_text("of the canary of 4 failed again")


def test_a_running_plan_is_there_after_a_reload_and_a_restart_and_is_stopped_by_its_button(
    tmp_path: Path, visit: Visit
) -> None:  # E68
    with running(tmp_path) as first:
        failed(first, "dead-restart", 6)
        repair(first, "dead-restart")
        page = visit(first).sign_in().open("dead?owner=dead-restart")
        sheet = planner(page)
        sheet.get_by_label("Canary").fill("1")
        for label in ("Ramp from", "Up to"):
            sheet.get_by_label(label).fill("1" if label == "Ramp from" else "4")
        sheet.get_by_role("button", name="Redrive 6 jobs").click()
        expect(sheet.locator("[data-phase=ramp]")).to_contain_text("doubles each minute up to 4 a minute")
        page.reload()
        plan = page.get_by_role("region", name="Plans")
        expect(plan.locator("[data-phase=ramp]")).to_contain_text("Ramp: 1 a minute")
        operation = newest(first)
        page.context.close()
    with running(tmp_path) as second:
        page = visit(second).sign_in().open("dead")
        plan = page.get_by_role("region", name="Plans")
        expect(plan.locator("[data-phase=ramp]")).to_contain_text("Ramp: ")
        plan.get_by_role("button", name="Stop").click()
        expect(plan.locator("[data-progress=cancelled]")).to_contain_text("what is done stays done")
        found = second.do(second.app.operations.get(operation.id))
        assert (found.progress, found.matched) == ("cancelled", 6)
        assert found.done < 6


def test_causes_narrow_the_list_and_the_filter_lives_in_the_address(
    world: World, visit: Visit
) -> None:  # E68
    failed(world, "dead-cause", 2)
    refused = world.enqueue("refuse", {"owner": "dead-cause"}, why="no such press")
    world.until(refused, "failed")
    page = visit().sign_in().open("dead?owner=dead-cause")
    expect(page.locator(".sentence")).to_contain_text("3 jobs have failed for good, by 2 causes")
    expect(page.locator(".sentence")).to_contain_text("Most are NETWORK in convert: 2")
    expect(page.locator(".owners")).to_contain_text("dead-cause 3")
    page.get_by_role("link", name="REFUSED in refuse").click()
    expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Task")).to_have_value("refuse")
    expect(page.locator(".sentence")).to_contain_text("1 job has failed for good, by 1 cause")
    page.go_back()
    expect(page.get_by_text("3 dead letters, oldest first")).to_be_visible()
    page.get_by_role("textbox", name="Age").fill(">1h")
    page.get_by_role("textbox", name="Age").press("Enter")
    expect(page.get_by_text("No dead letter matches").first).to_be_visible()
    page.get_by_role("textbox", name="Age").fill("old")
    page.get_by_role("textbox", name="Age").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text('Age "old" cannot be read')
    page.get_by_role("button", name="Show all").click()
    expect(page).to_have_url(f"{world.url}/dead")
    total = len(world.do(world.app.dead_letters.list(limit=500)))
    expect(page.get_by_role("link", name="Dead letters")).to_contain_text(str(total))


def test_dead_letters_are_worked_on_by_the_keyboard(world: World, visit: Visit) -> None:  # E68
    first, second = failed(world, "dead-keys", 2)
    repair(world, "dead-keys")
    page = visit().sign_in().open()
    expect(page.get_by_role("link", name="Dead letters")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("d")
    expect(page.get_by_role("heading", name="Dead letters", exact=True)).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Error code")).to_be_focused()
    page.get_by_label("Owner").focus()
    page.keyboard.type("dead-keys")
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 dead letters, oldest first")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#letter-0")).to_be_focused()
    page.keyboard.press("r")
    world.until(first, "complete")
    expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+X")
    start = page.get_by_role("button", name="Redrive 1 job")
    expect(start).to_be_enabled()
    page.get_by_role("dialog").get_by_label("Reason").press("Enter")
    world.until(second, "complete")


def test_who_may_only_look_sees_dead_letters_without_buttons(world: World, visit: Visit) -> None:  # E66, E68
    failed(world, "dead-look")
    page = visit().sign_in("viewer").open("dead?owner=dead-look")
    expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("button", name="Filter")).to_be_visible()
    for name in ("Redrive", "Discard", "Stop"):
        expect(page.get_by_role("main").get_by_role("button", name=name)).to_have_count(0)
    page.keyboard.press("Shift+X")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_owner_redrives_its_own_dead_letters_and_sees_no_others(
    world: World, visit: Visit
) -> None:  # E66, E68
    [mine] = failed(world, "dead-olga")
    [theirs] = failed(world, "dead-mallory")
    repair(world, "dead-olga")
    page = visit().sign_in("owner", "dead-olga").open("dead")
    expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
    expect(page.get_by_label("Owner")).to_have_count(0)
    sheet = planner(page)
    sheet.get_by_role("button", name="Redrive 1 job").click()
    world.until(mine, "complete")
    page.keyboard.press("Escape")
    expect(page.get_by_text("There are no dead letters")).to_be_visible()
    assert world.job(theirs).state == "failed"


def test_a_request_that_fails_is_one_clear_line(visit: Visit) -> None:  # E68
    visitor = visit().sign_in()
    visitor.expected = ["503"]
    visitor.context.route("**/api/v1/dead-letters*", lambda route: route.fulfill(status=503))
    page = visitor.open("dead")
    expect(page.get_by_role("alert").first).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hostile_messages_break_neither_the_page_nor_the_planner(
    world: World, visit: Visit, axe: str, theme: str
) -> None:  # E68
    owner = f"dead-hostile-{theme}"
    why = "\n".join((*SCRIPTS, "\u202egnp.exe\u202c", "x" * 400, "ﷺ" * 40))
    world.until(world.enqueue("refuse", {"owner": owner, "queue": SCRIPTS[0]}, why=why), "failed")
    for viewport in ({"width": 1280, "height": 800}, PHONE):
        visitor = visit(viewport=viewport, color_scheme=theme, reduced_motion="reduce").sign_in()
        page = visitor.open(f"dead?owner={owner}")
        expect(page.get_by_text("1 dead letter, oldest first")).to_be_visible()
        expect(page.get_by_role("heading", name="Causes")).to_be_visible()
        is_whole(page)
        assert violations(page, axe) == []
        sheet = planner(page)
        expect(sheet.get_by_role("button", name="Redrive 1 job")).to_be_enabled()
        is_whole(page)
        assert violations(page, axe) == []
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Discard job").click()
        expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
        assert violations(page, axe) == []
