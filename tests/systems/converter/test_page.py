"""The queue page in a real Chromium (C7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from systems.converter.samples import plain
from tests.systems.converter.gateways import RunningGateway
from tests.systems.converter.sites import RunningSite
from tests.systems.pages import CONTRAST, ONLY_NEWS, SECONDS

PHONE, DESK = {"width": 360, "height": 740}, {"width": 1000, "height": 760}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser(window: Browser) -> Browser:
    return window


@pytest.fixture(scope="module")
def site(faulty_gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSite]:
    folder = tmp_path_factory.mktemp("site")
    url = f"sqlite:///{folder / 'jobs.db'}"
    with RunningSite(
        folder, url, faulty_gateway, CIRCUIT_WINDOW="20", CIRCUIT_FAIL_THRESHOLD="0.5"
    ) as running:
        yield running


@pytest.fixture
def context(browser: Browser, faulty_gateway: RunningGateway) -> Iterator[BrowserContext]:
    faulty_gateway.http.delete("/faults")
    with browser.new_context(viewport=DESK) as opened:  # type: ignore[arg-type]
        opened.set_default_timeout(SECONDS)
        yield opened
    faulty_gateway.http.delete("/faults")


@pytest.fixture
def page(context: BrowserContext, site: RunningSite) -> Page:
    opened = context.new_page()
    opened.goto(site.url)
    return opened


def pdf(folder: Path, name: str) -> Path:
    path = folder / f"{name}.pdf"
    path.write_bytes(plain(words=name))
    return path


#: Whether this job is complete, by the word of the server.
ENDED = "async id => (await (await fetch(`/api/jobs/${id}`)).json()).state === 'complete'"

#: Or the page would ask again some seconds after a failed look.
LOOK_NOW = "document.dispatchEvent(new Event('visibilitychange'))"

#: The page hears that its upload is answered when `answer` is called.
HOLD_ANSWER = """() => {
  const send = XMLHttpRequest.prototype.send;
  XMLHttpRequest.prototype.send = function (form) {
    window.answer = this.onloadend;
    this.onloadend = null;
    send.call(this, form);
  };
}"""


def state_of(page: Page, name: str) -> str:
    return str(page.locator(".row", has_text=name).get_attribute("data-state"))


def test_a_file_is_uploaded_converted_and_downloaded(page: Page, tmp_path: Path) -> None:  # C7
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    expect(page.locator("#empty")).to_be_visible(timeout=SECONDS)
    page.set_input_files("#file", pdf(tmp_path, "first"))
    row = page.locator(".row", has_text="first.pdf")
    expect(row.locator(".state")).to_have_text("Complete", timeout=SECONDS)
    with page.expect_download() as got:
        row.get_by_role("link", name="Download the XML of first.pdf").click()
    assert got.value.suggested_filename == "first.xml"
    assert Path(got.value.path()).read_bytes().startswith(b"<?xml")
    expect(page.locator("#announcement")).to_contain_text("first.pdf: Complete", timeout=SECONDS)
    assert said == []  # nor did the policy of the page refuse anything


def test_a_file_that_is_complete_before_it_is_first_seen_is_told_to_be(
    page: Page, tmp_path: Path
) -> None:  # C7
    expect(page.locator("#empty")).to_be_visible(timeout=SECONDS)
    page.route("**/api/jobs?*", lambda route: route.abort())
    with page.expect_response("**/api/upload") as answer:
        page.set_input_files("#file", pdf(tmp_path, "swift"))
    page.wait_for_function(ENDED, arg=answer.value.json()["id"])
    expect(page.locator("#announcement")).to_have_text("swift.pdf: uploaded")
    page.unroute("**/api/jobs?*")
    page.evaluate(LOOK_NOW)
    expect(page.locator("#announcement")).to_contain_text("swift.pdf: Complete", timeout=SECONDS)


def test_a_file_that_is_complete_before_its_upload_is_answered_is_told_to_be(
    page: Page, tmp_path: Path
) -> None:  # C7
    expect(page.locator("#empty")).to_be_visible(timeout=SECONDS)
    page.evaluate(HOLD_ANSWER)
    page.set_input_files("#file", pdf(tmp_path, "early"))
    expect(page.locator(".row .state", has_text="Complete")).to_be_visible(timeout=SECONDS)
    page.evaluate("answer()")
    expect(page.locator("#announcement")).to_contain_text("early.pdf: Complete", timeout=SECONDS)
    expect(page.locator(".row")).to_have_count(1)


def test_files_are_taken_by_dropping_them(page: Page) -> None:  # C7
    content = list(plain(words="dropped"))
    data = page.evaluate_handle(
        """bytes => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(bytes)], "dropped.pdf", {type: "application/pdf"})); return data; }""",
        content,
    )
    page.dispatch_event("#drop", "dragenter", {"dataTransfer": data})
    assert "dragging" in page.locator("body").evaluate("body => body.className")
    page.dispatch_event("#drop", "drop", {"dataTransfer": data})
    expect(page.locator(".row .state")).to_have_text("Complete", timeout=SECONDS)


def test_a_refused_file_is_told_in_one_line_and_has_no_retry(page: Page, tmp_path: Path) -> None:  # C7
    (tmp_path / "notes.pdf").write_text("no PDF")
    page.set_input_files("#file", tmp_path / "notes.pdf")
    row = page.locator(".row", has_text="notes.pdf")
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".message")).to_have_text("Only PDF files are supported.")
    expect(row.locator(".retry")).to_be_hidden()
    expect(row.locator(".cancel")).to_be_hidden()


def test_retry_is_disabled_when_the_source_is_gone(
    page: Page, site: RunningSite, tmp_path: Path
) -> None:  # C7
    site.gateway.fault(status=400)
    row = failed(page, pdf(tmp_path, "soon gone"))
    for source in site.uploads.glob("*.pdf"):
        source.unlink()
    expect(row.locator(".retry")).to_be_disabled(timeout=SECONDS)


def test_a_refused_action_is_seen_by_everybody(page: Page, site: RunningSite, tmp_path: Path) -> None:  # C7
    site.gateway.fault(status=400)
    row = failed(page, pdf(tmp_path, "refused action"))
    page.route("**/api/jobs?*", lambda route: route.abort())  # the page does not hear that its source is gone
    for source in site.uploads.glob("*.pdf"):
        source.unlink()
    row.locator(".retry").click()
    notice = page.locator("#notice")
    expect(notice).to_have_text(
        "refused action.pdf: File was removed by retention. Re-upload to regenerate.", timeout=SECONDS
    )
    box = notice.bounding_box()
    assert box is not None
    assert box["height"] > 20
    assert page.evaluate(SEEN, "#notice")  # and nothing lies over it
    assert notice.evaluate(CONTRAST) >= 4.5


def test_retry_of_a_file_that_was_converted_by_a_later_upload_shows_that_one(
    page: Page, site: RunningSite, tmp_path: Path
) -> None:  # C7
    path = pdf(tmp_path, "twice")
    site.gateway.fault(status=400)
    row = failed(page, path)
    first = row.get_attribute("data-id")
    site.gateway.http.delete("/faults")
    page.set_input_files("#file", path)
    done = page.locator(".row[data-state=complete]", has_text="twice.pdf")
    expect(done).to_be_visible(timeout=SECONDS)
    page.locator(f'.row[data-id="{first}"] .retry').click()
    expect(page.locator("#notice")).to_contain_text("was uploaded again later", timeout=SECONDS)
    expect(page.locator(".row.marked")).to_have_attribute("data-state", "complete")


def test_a_file_is_cancelled_and_retried(page: Page, site: RunningSite, tmp_path: Path) -> None:  # C7
    site.gateway.fault(hang=True)
    page.set_input_files("#file", pdf(tmp_path, "stop it"))
    row = page.locator(".row", has_text="stop it.pdf")
    row.get_by_role("button", name="Cancel stop it.pdf").click()
    expect(row.locator(".state")).to_have_text("Cancelled", timeout=SECONDS)
    site.gateway.http.delete("/faults")
    row.get_by_role("button", name="Retry stop it.pdf").click()
    expect(row.locator(".state")).to_have_text("Complete", timeout=SECONDS)
    expect(row.locator(".attempt")).to_have_text("retried by you")
    page.reload()
    expect(row.locator(".attempt")).to_have_text("retried by you", timeout=SECONDS)
    page.evaluate("localStorage.clear()")  # as in another browser, or after an operator's retry
    page.reload()
    expect(row.locator(".attempt")).to_have_text("retried by hand", timeout=SECONDS)


def test_a_sample_is_converted_by_one_click(page: Page) -> None:  # C7
    page.get_by_role("button", name="Try a sample").click()
    row = page.locator(".row", has_text="sample.pdf")
    expect(row.locator(".state")).to_have_text("Complete", timeout=SECONDS)


def test_the_page_follows_the_changes_of_its_files(
    page: Page, site: RunningSite, tmp_path: Path
) -> None:  # C7
    page.context.add_init_script(ONLY_NEWS)
    page.reload()
    site.gateway.fault(hang=True)
    page.set_input_files("#file", pdf(tmp_path, "followed"))
    row = page.locator(".row", has_text="followed.pdf")
    expect(row.locator(".state")).to_have_text("Converting", timeout=SECONDS)
    cookies = {str(cookie["name"]): str(cookie["value"]) for cookie in page.context.cookies()}
    other = site.browser()  # another window of the same session
    other.cookies.update(cookies)
    assert other.post(f"/api/jobs/{row.get_attribute('data-id')}/cancel").status_code == 200
    expect(row.locator(".state")).to_have_text("Cancelled", timeout=SECONDS)


def test_a_file_that_has_ended_is_removed_for_good(
    page: Page, site: RunningSite, tmp_path: Path
) -> None:  # C7 C9
    page.set_input_files("#file", pdf(tmp_path, "secret plans"))
    row = page.locator(".row", has_text="secret plans.pdf")
    expect(row.locator(".state")).to_have_text("Complete", timeout=SECONDS)
    job_id = str(row.get_attribute("data-id"))
    assert (site.uploads / f"{job_id}.pdf").exists()
    row.get_by_role("button", name="Remove secret plans.pdf").click()
    row.get_by_role("button", name="Delete for good secret plans.pdf").click()
    expect(row).to_have_count(0, timeout=SECONDS)
    expect(page.locator("#empty")).to_be_visible()
    assert list(site.uploads.glob(f"{job_id}*")) == []
    assert list(site.results.glob(f"{job_id}.xml")) == []
    page.set_input_files("#file", pdf(tmp_path, "secret plans"))  # the same file may come again
    expect(page.locator(".row .state")).to_have_text("Complete", timeout=SECONDS)


def test_files_beyond_the_rate_are_sent_again_by_themselves(
    browser: Browser, faulty_gateway: RunningGateway, tmp_path: Path
) -> None:  # C7
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with (
        RunningSite(tmp_path, url, faulty_gateway, UPLOAD_RATE="4/s") as limited,
        browser.new_context(viewport=DESK) as opened,  # type: ignore[arg-type]
    ):
        page = opened.new_page()
        page.goto(limited.url)
        page.set_input_files("#file", [pdf(tmp_path, f"many {nth}") for nth in range(10)])
        expect(page.locator(".row[data-state=complete]")).to_have_count(10, timeout=SECONDS)


def failed(page: Page, path: Path) -> Locator:
    page.set_input_files("#file", path)
    row = page.locator(".row", has_text=path.name)
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    return row


#: Whether the middle of an element is seen, and not what lies over it.
SEEN = """name => {
  const element = document.querySelector(name), box = element.getBoundingClientRect();
  return document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2) === element;
}"""


def test_the_banner_is_there_while_the_queue_is_held_and_rows_say_when(
    page: Page, site: RunningSite, tmp_path: Path
) -> None:  # C7
    site.gateway.fault(status=429, retry_after=5)
    page.set_input_files("#file", pdf(tmp_path, "throttled"))
    message = page.locator(".row", has_text="throttled.pdf").locator(".message")
    expect(message).to_contain_text("We’ll retry shortly. Next try in", timeout=SECONDS)
    site.command("queues", "pause", "convert", "--app", "systems.converter.app:app")
    banner = page.locator("#banner")
    expect(banner).to_have_text("Converter busy — jobs will resume automatically.", timeout=SECONDS)
    expect(banner).to_be_visible()
    site.gateway.http.delete("/faults")
    site.command("queues", "resume", "convert", "--app", "systems.converter.app:app")
    expect(banner).to_be_hidden(timeout=SECONDS)
    expect(page.locator(".row .state")).to_have_text("Complete", timeout=SECONDS)


def test_retry_queues_a_failed_file_again(page: Page, site: RunningSite, tmp_path: Path) -> None:  # C7
    site.gateway.fault(status=500)
    page.set_input_files("#file", pdf(tmp_path, "second chance"))
    row = page.locator(".row", has_text="second chance.pdf")
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".attempt")).to_have_text("attempt 3 of 3")
    site.gateway.http.delete("/faults")
    row.get_by_role("button", name="Retry second chance.pdf").click()
    expect(row.locator(".state")).to_have_text("Complete", timeout=SECONDS)


def test_everything_can_be_done_by_keyboard(page: Page, tmp_path: Path) -> None:  # C7
    page.set_input_files("#file", pdf(tmp_path, "by keyboard"))
    expect(page.locator(".row .state")).to_have_text("Complete", timeout=SECONDS)
    reached: list[str] = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert [name for name in reached if name][:5] == [
        "file",
        "sample",
        "mapping",
        "priority",
        "download button",
    ]
    page.locator("#file").focus()
    outline = page.locator("#drop").evaluate("drop => getComputedStyle(drop).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read_in_light_and_dark(
    browser: Browser, site: RunningSite, tmp_path: Path, scheme: str
) -> None:  # C7
    with browser.new_context(viewport=PHONE, color_scheme=scheme) as opened:  # type: ignore[arg-type]
        page = opened.new_page()
        page.goto(site.url)
        page.set_input_files("#file", pdf(tmp_path, f"a rather long name of a file {scheme} " * 3))
        expect(page.locator(".row .state")).to_have_text("Complete", timeout=SECONDS)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        box = page.locator(".download").bounding_box()
        assert box is not None
        assert box["height"] >= 40
        for part in ("body", ".name", ".quiet", ".state", ".download", ".drop-or"):
            assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part


def test_a_hostile_name_is_text(page: Page, site: RunningSite) -> None:  # C7
    name = "<img src=x onerror=document.title='owned'>.pdf"
    hers = site.browser()
    for cookie in page.context.cookies():
        hers.cookies.set(str(cookie["name"]), str(cookie["value"]))
    assert site.upload(plain(words="hostile"), name=name, by=hers).status_code == 201
    expect(page.locator(".row .name")).to_have_text(name, timeout=SECONDS)
    assert page.title() == "Converter: PDF to XML"
    assert page.locator(".row img").count() == 0


def test_a_server_that_is_away_is_told_and_found_again(page: Page, site: RunningSite) -> None:  # C7
    page.context.set_offline(True)
    expect(page.locator("#offline")).to_be_visible(timeout=SECONDS)
    page.context.set_offline(False)
    expect(page.locator("#offline")).to_be_hidden(timeout=SECONDS)
