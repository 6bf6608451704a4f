"""The pages of jobs in a real Chromium: each button is checked in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import Visitor
from tests.dashboard.world import World

pytestmark = pytest.mark.slow

Visit = Callable[..., Visitor]


def failed(world: World, owner: str, *pdfs: str, **args: object) -> list[str]:
    world.fails.update(pdfs)
    ids = [world.enqueue("convert", {"owner": owner}, pdf=pdf, **args) for pdf in pdfs]
    for job_id in ids:
        world.until(job_id, "failed")
    return ids


def state(page: Page) -> str:
    return str(page.locator(".sentence .state").inner_text())


# -- one job ---------------------------------------------------------------------------------------------------------
def test_a_failed_job_is_run_again_by_its_button(world: World, visit: Visit) -> None:  # E68
    [job_id] = failed(world, "again", "again.pdf")
    page = visit().sign_in().open(f"jobs/{job_id}")
    expect(page.locator(".sentence")).to_contain_text("NETWORK")
    expect(page.get_by_text("the press cannot reach again.pdf").first).to_be_visible()  # of the traceback
    world.fails.discard("again.pdf")
    page.get_by_role("button", name="Retry now").click()
    world.until(job_id, "complete")
    expect(page.locator(".sentence .state")).to_have_text("complete")  # it follows
    [event] = [one for one in world.do(world.app.events.list(job_id=job_id)) if one.kind == "manual_retry"]
    assert event.meta["by"] == "key:admin key"


def test_a_waiting_job_is_cancelled_by_its_button(world: World, visit: Visit) -> None:  # E68
    job_id = world.enqueue("later", {"delay": "1h"}, name="x")
    page = visit().sign_in().open(f"jobs/{job_id}")
    page.get_by_role("button", name="Cancel").click()
    world.until(job_id, "cancelled")
    expect(page.locator(".sentence .state")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_of_two_people_one_wins_and_the_other_is_told(world: World, visit: Visit) -> None:  # E68
    job_id = world.enqueue("later", {"delay": "1h"}, name="x")
    visitor = visit().sign_in()
    page = visitor.open(f"jobs/{job_id}")
    visitor.expected = ["409"]
    expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    page.keyboard.press("p")  # it does not follow any more
    world.do(world.app.jobs.cancel(job_id, by="ann", reason="too late"))
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".toast-failed")).to_contain_text("cancelled")


def test_a_job_is_edited_and_run_again_without_losing_what_is_hidden(
    world: World, visit: Visit
) -> None:  # E68
    [job_id] = failed(world, "edit", "edit.pdf", password="hunter2")
    page = visit().sign_in().open(f"jobs/{job_id}")
    expect(page.get_by_text("hidden", exact=True)).to_be_visible()
    assert "hunter2" not in page.content()
    page.get_by_role("button", name="Edit and retry").click()
    sheet = page.get_by_role("dialog")
    retry = sheet.get_by_role("button", name="Retry with")
    expect(sheet.get_by_text("The server hides password")).to_be_visible()
    expect(retry).to_be_disabled()
    sheet.get_by_label("Arguments").fill("{")
    expect(sheet.get_by_text("not JSON yet")).to_be_visible()
    sheet.get_by_label("Arguments").fill(json.dumps({"pdf": "other.pdf", "pages": 7, "password": "new"}))
    expect(sheet.get_by_role("row")).to_have_count(3)
    retry.click()
    expect(sheet).to_have_count(0)
    row = world.until(job_id, "complete")
    assert row.result == {"pdf": "other.pdf", "pages": 7}


def test_the_same_call_can_be_copied_for_other_places(world: World, visit: Visit) -> None:  # E68
    job_id = world.enqueue("later", {"delay": "1h", "owner": "o'neil"}, name="a b")
    page = visit().sign_in().open(f"jobs/{job_id}")
    page.get_by_role("button", name="Copy as").click()
    sheet = page.get_by_role("dialog")
    expect(sheet).to_contain_text(f"curl -X POST {world.url}/api/v1/jobs")
    expect(sheet).to_contain_text("holdfast enqueue later 'name=a b'")
    expect(sheet).to_contain_text('app.tasks["later"]')
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)


def test_an_unknown_job_is_one_clear_line(visit: Visit) -> None:  # E68
    visitor = visit().sign_in()
    visitor.expected = ["404"]
    page = visitor.open("jobs/019a8f6e-2a53-7cc1-9d0e-5f1c7a0b3d42")
    expect(page.get_by_text("There is no such job")).to_be_visible()
    expect(visitor.open("nothing/here").get_by_text("There is no such page")).to_be_visible()


def test_the_tab_and_the_open_attempt_are_in_the_address(world: World, visit: Visit) -> None:  # E68
    [job_id] = failed(world, "tabs", "tabs.pdf")
    page = visit().sign_in().open(f"jobs/{job_id}")
    page.get_by_role("tab", name="Events").click()
    page.locator(".attempts summary").last.click()
    page.reload()
    expect(page.get_by_role("tab", name="Events")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".attempts details").last).to_have_attribute("open", "")
    expect(page.get_by_role("cell", name="retry", exact=True).first).to_be_visible()
    page.get_by_role("tab", name="Events").press("ArrowLeft")
    expect(page.get_by_role("tab", name="Result")).to_be_focused()


def test_an_attempt_says_its_error_to_engineers_and_the_sentence_for_customers_to_owners(
    world: World, visit: Visit
) -> None:  # E66 E68
    world.fails.add("theirs.pdf")
    job_id = world.enqueue("convert", {"owner": "carla"}, pdf="theirs.pdf")
    row = world.until(job_id, "failed")
    for role, owner, shown in (
        ("owner", "carla", str(row.error_message)),
        ("viewer", None, "ConnectionError: the press"),
    ):
        page = visit().sign_in(role, owner).open(f"jobs/{job_id}")
        expect(page.locator(".attempts summary").first).to_contain_text(shown)
        expect(page.locator(".sentence p code")).to_have_count(0 if owner else 1)
        assert ("ConnectionError" in page.content()) == (owner is None)


# -- many jobs -------------------------------------------------------------------------------------------------------
def test_selected_jobs_are_retried_and_the_others_are_not(world: World, visit: Visit) -> None:  # E68
    ids = failed(world, "some", "some-1.pdf", "some-2.pdf", "some-3.pdf")
    world.fails.difference_update({"some-1.pdf", "some-2.pdf", "some-3.pdf"})
    page = visit().sign_in().open("jobs?q=owner:some")
    for job_id in ids[:2]:
        page.get_by_label(f"Select job {job_id}").check()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("button", name="Retry", exact=True).click()
    sheet = page.get_by_role("dialog")
    expect(sheet).to_contain_text("2 jobs will be retried")
    sheet.get_by_label("Reason").fill("the press is back")
    sheet.get_by_role("button", name="Retry 2 jobs").click()
    expect(sheet.locator("[data-progress=done]")).to_contain_text("2 of 2")
    for job_id in ids[:2]:
        world.until(job_id, "complete")
    assert world.job(ids[2]).state == "failed"


def test_all_that_match_are_retried_after_a_preview_that_says_who_is_left_out(
    world: World, visit: Visit
) -> None:  # E68
    ids = failed(world, "all", "all-1.pdf", "all-2.pdf")
    others = failed(world, "other", "all-3.pdf")
    waiting = world.enqueue("later", {"owner": "all", "delay": "1h"}, name="x")
    done = world.enqueue("convert", {"owner": "all"}, pdf="fine.pdf")
    world.until(done, "complete")
    before = {job_id: world.job(job_id).version for job_id in (*others, waiting, done)}
    world.fails.difference_update({"all-1.pdf", "all-2.pdf", "all-3.pdf"})
    page = visit().sign_in().open("jobs?q=owner:all")
    page.get_by_role("button", name="Retry all that match").click()
    sheet = page.get_by_role("dialog")
    expect(sheet).to_contain_text("2 jobs will be retried")
    expect(sheet.get_by_role("row").filter(has_text="queued")).to_contain_text("1")
    expect(sheet).to_contain_text("they wait already")
    sheet.get_by_role("button", name="Retry 2 jobs").click()
    expect(sheet.locator("[data-progress=done]")).to_contain_text("2 of 2")
    for job_id in ids:
        world.until(job_id, "complete")
    assert {job_id: world.job(job_id).version for job_id in before} == before


def test_a_running_operation_is_stopped_by_its_button(world: World, visit: Visit) -> None:  # E68
    for number in range(5):
        world.enqueue("later", {"owner": "slowly", "delay": "1h"}, name=str(number))
    visitor = visit().sign_in()
    page = visitor.open("jobs?q=owner:slowly")
    page.get_by_role("button", name="Cancel all that match").click()
    sheet = page.get_by_role("dialog")
    sheet.get_by_label("At most").fill("0.02")
    sheet.get_by_role("button", name="Cancel 5 jobs").click()
    sheet.get_by_role("button", name="Stop").click()
    expect(sheet.locator("[data-progress=cancelled]")).to_contain_text("what is done stays done")
    operation = world.do(world.app.operations.list(limit=1))[0]
    assert (operation.progress, operation.matched) == ("cancelled", 5)
    assert operation.done < 5


def test_the_query_is_completed_and_lives_in_the_address(world: World, visit: Visit) -> None:  # E68
    [job_id] = failed(world, "query", "query.pdf")
    page = visit().sign_in().open("jobs")
    expect(page.get_by_role("cell").first).to_be_visible()
    page.keyboard.press("/")
    bar = page.get_by_label("Query")
    expect(bar).to_be_focused()
    page.keyboard.type("sta")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("fai")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.type("owner:query")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=state%3Afailed"))
    expect(page.get_by_text("1 job, newest first")).to_be_visible()
    page.get_by_role("navigation", name="State").get_by_role("link", name="complete").click()
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("1 job, newest first")).to_be_visible()
    bar.fill("colour:red")
    bar.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text('no field "colour"')
    bar.fill(job_id)
    bar.press("Enter")
    expect(page).to_have_url(f"{world.url}/jobs/{job_id}")


def test_jobs_are_found_by_an_argument(world: World, visit: Visit) -> None:  # E68
    world.enqueue("later", {"owner": "arg", "delay": "1h"}, name="one", data=1001)
    world.enqueue("later", {"owner": "arg", "delay": "1h"}, name="two", data=1002)
    page = visit().sign_in().open("jobs?q=owner:arg%20arg.data:1001")
    expect(page.get_by_text("1 job, newest first")).to_be_visible()


def test_a_long_list_is_read_page_by_page_and_draws_only_what_is_seen(
    world: World, visit: Visit
) -> None:  # E68
    async def fill() -> None:
        later = world.app.tasks["later"].options(owner="long", delay="1h")
        for number in range(350):
            await later.enqueue(name=str(number))

    world.do(fill())
    page = visit().sign_in().open("jobs?q=owner:long")
    expect(page.get_by_text("100+ jobs, newest first")).to_be_visible()
    for shown in ("200+", "300+", "350"):
        page.locator(".grid-scroll").evaluate("box => { box.scrollTop = box.scrollHeight }")
        expect(page.get_by_text(f"{shown} jobs, newest first")).to_be_visible()
    assert page.get_by_role("row").count() < 80


# -- the frame -------------------------------------------------------------------------------------------------------
def test_everything_is_reached_by_the_keyboard(world: World, visit: Visit) -> None:  # E68
    ids = failed(world, "keys", "keys-1.pdf", "keys-2.pdf")
    world.fails.difference_update({"keys-1.pdf", "keys-2.pdf"})
    page = visit().sign_in().open()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find")).to_be_focused()
    page.keyboard.type("owner:keys")
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 jobs, newest first")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#row-0")).to_be_focused()
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("r")
    page.get_by_role("button", name="Retry 1 job").press("Enter")
    world.until(ids[1], "complete")  # the newest is the first
    expect(page.locator("[data-progress=done]")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("k")
    expect(page.locator("#row-0")).to_be_focused()
    page.keyboard.press("j")
    expect(page.locator("#row-1")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{world.url}/jobs/{ids[0]}")
    expect(page.get_by_role("button", name="Retry now")).to_be_visible()
    page.keyboard.press("r")
    world.until(ids[0], "complete")
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()


def test_paused_means_that_nothing_is_asked_for(world: World, visit: Visit) -> None:  # E68
    page = visit().sign_in().open("jobs?q=owner:paused")
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    world.enqueue("later", {"owner": "paused", "delay": "1h"}, name="x")
    with page.expect_event("console", lambda said: said.text == "later"):
        page.evaluate("setTimeout(() => console.log('later'), 4500)")
    assert asked == []
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("1 job, newest first")).to_be_visible()


HIDE = """is => {
  Object.defineProperty(document, 'visibilityState', { value: is, configurable: true });
  Object.defineProperty(document, 'hidden', { value: is === 'hidden', configurable: true });
  document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
}"""


def test_a_hidden_tab_asks_for_nothing(world: World, visit: Visit) -> None:  # E68
    page = visit().sign_in().open("jobs?q=owner:hidden")
    expect(page.get_by_text("No job matches")).to_be_visible()
    page.evaluate(HIDE, "hidden")
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    world.enqueue("later", {"owner": "hidden", "delay": "1h"}, name="x")
    with page.expect_event("console", lambda said: said.text == "later"):
        page.evaluate("setTimeout(() => console.log('later'), 4500)")
    assert asked == []
    page.evaluate(HIDE, "visible")
    expect(page.get_by_text("1 job, newest first")).to_be_visible()


def test_the_theme_is_kept(visit: Visit) -> None:  # E68
    page = visit(color_scheme="light").sign_in().open()
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate(ground) == "rgb(15, 17, 21)"
    page.reload()
    assert page.evaluate(ground) == "rgb(15, 17, 21)"


def test_a_lost_server_keeps_what_was_seen_and_says_so(world: World, visit: Visit) -> None:  # E68
    visitor = visit().sign_in()
    visitor.expected = ["ERR_", "503"]
    world.enqueue("later", {"owner": "lost", "delay": "1h"}, name="x")
    page = visitor.open("jobs?q=owner:lost")
    expect(page.get_by_text("1 job, newest first")).to_be_visible()
    visitor.context.set_offline(True)
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    expect(page.get_by_role("alert")).to_contain_text("What you see is of")
    expect(page.get_by_text("1 job, newest first")).to_be_visible()
    visitor.context.set_offline(False)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_clock_that_is_hours_wrong_changes_no_time(world: World, visit: Visit) -> None:  # E68
    job_id = world.enqueue("later", {"delay": "1h"}, name="x")
    visitor = visit().sign_in()
    visitor.context.add_init_script("const real = Date.now; Date.now = () => real() + 5 * 3600 * 1000")
    page = visitor.open(f"jobs/{job_id}")
    expect(page.locator(".facts")).to_contain_text(re.compile(r"Created\s*(now|\d+(\.\d)? m?s ago)"))


def test_a_queue_is_paused_and_resumed_by_its_button(world: World, visit: Visit) -> None:  # E68
    world.until(world.enqueue("convert", pdf="pause.pdf"), "complete")

    def held() -> list[str]:
        return [hold.scope.name for hold in world.do(world.app.queues.holds())]

    page = visit().sign_in().open()
    page.get_by_role("button", name="Pause queue press").click()
    expect(page.get_by_role("button", name="Resume queue press")).to_be_visible()
    expect(page.locator(".sentence")).to_contain_text("Queue press is paused by key:admin key")
    assert held() == ["press"]
    page.get_by_role("button", name="Resume queue press").click()
    expect(page.get_by_role("button", name="Pause queue press")).to_be_visible()
    assert held() == []
