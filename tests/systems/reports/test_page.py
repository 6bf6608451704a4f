"""The page of the reports in a real Chromium, with real workers and the stand-in model; the store has what it shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect

from holdfast import Holdfast, JobRow, State
from systems.reports.samples import invoice
from tests.systems.pages import (
    CONTRAST,
    HOSTILE,
    PHONE,
    SECONDS,
    Visitor,
    fits,
    in_store,
    running,
    visitor,
)
from tests.systems.provider.providers import RunningProvider

pytestmark = pytest.mark.slow


class Site(NamedTuple):
    url: str
    database: str
    folder: Path
    keys: dict[str, str]
    provider: RunningProvider

    def rows(self, owner: str) -> list[JobRow]:
        async def ask(app: Holdfast) -> list[JobRow]:
            return list((await app.jobs.list(owner=owner, task="report")).rows)

        return in_store(self.database, ask)

    def ended(self, job_id: str) -> JobRow:
        return in_store(self.database, lambda app: app.jobs.wait(job_id, "20s"))


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, chromium: str, running_provider: RunningProvider
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    database = f"sqlite:///{folder / 'jobs.db'}"
    for name in ("documents", "schemas"):
        (folder / name).mkdir()
    (folder / "schemas" / "anything.json").write_text('{"type": "object"}')
    environment = os.environ | {
        "DATABASE_URL": database,
        "DOCUMENTS_URL": str(folder / "documents"),
        "REPORTS_URL": str(folder / "reports"),
        "SCHEMAS_DIR": str(folder / "schemas"),
        "MODEL_URL": f"{running_provider.url}/v1",
        "MODEL_API_KEY": "sk-canary-0123456789",
        "RETRY_FIRST_MS": "600000",
        "CIRCUIT_WINDOW": "1000",
        "HOLDFAST_POLL": "100ms",
        "HOLDFAST_LOG_LEVEL": "error",
    }
    keys = in_store(database, make_keys)
    worker = ("holdfast", "worker", "systems.reports.app:app")
    with running(environment, "systems.reports.web", worker) as url:
        yield Site(url, database, folder, keys, running_provider)


async def make_keys(app: Holdfast) -> dict[str, str]:
    owners = ("ann", "bob", "waits", "hostile", "phone-light", "phone-dark")
    keys = {who: (await app.keys.create("owner", owner=f"user:{who}"))[1] for who in owners}
    return keys | {role: (await app.keys.create(role))[1] for role in ("operator", "viewer")}


@pytest.fixture
def site(served: Site, provider: RunningProvider) -> Site:
    """The site, and a model without faults."""
    return served


@pytest.fixture
def guest(window: Browser) -> Iterator[Visitor]:
    with visitor(window) as opened:
        yield opened


def give(page: Page, name: str, text: str) -> Locator:
    page.set_input_files("#file", FilePayload(name=name, mimeType="text/plain", buffer=text.encode()))
    return page.locator(".row", has_text=name).first


def test_a_sample_becomes_a_report_by_one_click(guest: Visitor, site: Site) -> None:  # P1 P7
    page = guest.sign_in(site.url, site.keys["ann"])
    expect(page.locator("#empty")).to_have_text("No reports yet: give a document, or try the sample.")
    page.get_by_role("button", name="invoice 1", exact=True).click()
    row = page.locator(".row", has_text="invoice-1.txt")
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    expect(page.locator("#announcement")).to_contain_text("invoice-1.txt: Ready")
    row.get_by_text("Show the report").click()
    expect(row.locator(".data")).to_contain_text("A-00001")
    expect(row.locator(".data table table tbody tr")).to_have_count(3)
    with page.expect_download() as got:
        row.get_by_role("link", name="Download the report").click()
    assert '"invoice_number": "A-00001"' in Path(got.value.path()).read_text()
    [job] = site.rows("user:ann")
    assert (job.state, job.payload["schema"]) == (State.COMPLETE, "invoice")
    assert guest.said == []


def test_the_steps_of_a_report_are_shown_as_they_are_done(guest: Visitor, site: Site) -> None:  # P1 E42
    site.provider.fault(hang=True)
    page = guest.sign_in(site.url, site.keys["ann"])
    row = give(page, "steps.txt", invoice(2))
    expect(row.locator(".steps .now")).to_have_text("ask the model", timeout=SECONDS)
    expect(row.locator(".steps .done")).to_have_text("read")
    expect(page.locator("#count")).to_have_text("1 in progress")
    site.provider.reset()
    expect(row.locator(".state")).to_have_text("Waiting to retry", timeout=SECONDS)  # the call was cut off
    expect(row.locator(".steps li")).to_have_count(0)
    assert guest.said == []


def test_a_report_that_fits_no_schema_says_why_in_one_line_and_only_operators_retry_it(
    guest: Visitor, window: Browser, site: Site
) -> None:  # P4 P5 P9
    page = guest.sign_in(site.url, site.keys["bob"])
    row = give(page, "letter.txt", "Dear Sir,\n\nthank you.\n")
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".message")).to_have_text(
        "The model's answer does not fit the schema; it was captured for an operator."
    )
    row.get_by_text("What went wrong").click()
    expect(row.locator(".data")).to_contain_text('"invoice_number" is a required property')
    expect(row.locator(".retry")).to_be_hidden()
    [job] = site.rows("user:bob")
    with visitor(window) as other:
        operator = other.sign_in(site.url, site.keys["operator"])
        its_row = operator.locator(f'.row[data-id="{job.id}"]')
        calls = len(site.provider.calls())
        its_row.get_by_role("button", name="Retry: letter.txt").click()
        expect(operator.locator("#announcement")).to_contain_text("letter.txt: Failed", timeout=SECONDS)
        assert len(site.provider.calls()) == calls  # the recorded answer was checked again
        with operator.expect_response("**/retry"):
            its_row.get_by_role("button", name="Ask the model again: letter.txt").click()
        job = site.ended(job.id)
        assert other.said == []
    assert (job.state, job.manual_retry_count) == (State.FAILED, 2)
    assert len(site.provider.calls()) == calls + 1
    assert guest.said == []


def test_a_report_whose_model_is_away_says_when_it_is_tried_again(guest: Visitor, site: Site) -> None:  # P3
    site.provider.fault(status=503)
    page = guest.sign_in(site.url, site.keys["waits"])
    row = give(page, "patient.txt", invoice(1))
    expect(row.locator(".state")).to_have_text("Waiting to retry", timeout=SECONDS)
    expect(row.locator(".message")).to_contain_text(
        "The model had an internal error. It will be tried again."
    )
    expect(row.locator(".message")).to_contain_text("Next try in 1")  # ten minutes, give or take a fifth
    expect(row.locator(".attempt")).to_have_text("attempt 1 of 4")


def test_a_document_in_the_store_is_requested_by_its_address(guest: Visitor, site: Site) -> None:  # P1 P4
    (site.folder / "documents" / "stored.txt").write_text(invoice(5))
    page = guest.sign_in(site.url, site.keys["ann"])
    page.get_by_text("already in the store").click()
    page.select_option("#schema", "anything")
    page.fill("#source", "stored.txt")
    page.get_by_role("button", name="Request").click()
    expect(page.locator(".row", has_text="stored.txt").locator(".state")).to_have_text(
        "Ready", timeout=SECONDS
    )
    page.fill("#source", "s3://elsewhere/a.txt")
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("is not the address of a document")
    # The refusal is on record, and so it is on the page.
    expect(page.locator(".row", has_text="a.txt").first.locator(".state")).to_have_text(
        "Failed", timeout=SECONDS
    )
    assert site.rows("user:ann")[0].error_code == "INVALID_SOURCE"


def test_a_file_that_is_no_document_is_refused_and_stays_on_the_page(
    guest: Visitor, site: Site
) -> None:  # P4
    page = guest.sign_in(site.url, site.keys["phone-light"])
    row = give(page, "photo.pdf", "%PDF-1.7")
    expect(row.locator(".message")).to_contain_text("Documents of this kind cannot be read; send text.")
    row = give(page, "large.txt", "x" * 2_000_001)
    expect(row.locator(".message")).to_have_text("A document has at most 2.0 MB.")
    assert site.rows("user:phone-light") == []


def test_hostile_names_documents_and_errors_are_text(guest: Visitor, site: Site) -> None:  # P1 P4
    page = guest.sign_in(site.url, site.keys["hostile"])
    name = HOSTILE.replace("/", "")[:90] + ".txt"
    row = give(page, name, invoice(1, seller=HOSTILE[:150]))
    row = page.locator(".row").first
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    row.get_by_text("Show the report").click()
    expect(row.locator(".data")).to_contain_text("<img src=x onerror")
    site.provider.fault(content='{"' + HOSTILE.replace('"', "").replace("\\", "") + '": 1}')
    give(page, "errors.txt", invoice(2))
    failed = page.locator(".row", has_text="errors.txt")
    expect(failed.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    failed.get_by_text("What went wrong").click()
    expect(failed.locator(".data")).to_contain_text("<img src=x onerror")
    assert page.title() == "Reports"
    assert page.locator(".row img, .row script").count() == 0
    assert fits(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    assert guest.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read_in_light_and_dark(
    window: Browser, site: Site, scheme: str
) -> None:  # P1
    with visitor(window, viewport=PHONE, color_scheme=scheme) as guest:
        page = guest.sign_in(site.url, site.keys[f"phone-{scheme}"])
        done, failed = give(page, "invoice.txt", invoice(4)), give(page, "letter.txt", "Dear Sir, thank you.")
        expect(done.locator(".state")).to_have_text("Ready", timeout=SECONDS)
        expect(failed.locator(".state")).to_have_text("Failed", timeout=SECONDS)
        done.get_by_text("Show the report").click()
        expect(done.locator(".data td").first).to_be_visible()
        assert fits(page)
        for part in (".drop-or", ".name", ".facts", ".data th", ".data td", ".download", "summary.quiet"):
            assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part
        for row in (done, failed):
            assert row.locator(".state").evaluate(CONTRAST) >= 4.5
        assert failed.locator(".message").evaluate(CONTRAST) >= 4.5


def test_a_viewer_reads_and_gives_nothing(guest: Visitor, site: Site) -> None:  # E66
    page = guest.sign_in(site.url, site.keys["viewer"])
    expect(page.locator("#ask")).to_be_hidden()
    expect(page.locator(".row").first).to_be_visible()
    expect(page.locator(".retry:visible, .anew:visible")).to_have_count(0)


def test_everything_can_be_done_by_keyboard(guest: Visitor, site: Site) -> None:  # P1
    page = guest.sign_in(site.url, site.keys["bob"])
    expect(page.locator(".row .state")).to_have_text("Failed", timeout=SECONDS)
    reached: list[str] = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        )
    assert reached == [
        "sign-out", "file", "invoice 1", "invoice 2", "invoice 3", "letter", "schema", "instructions",
        "Use a document that is already in the store", "What went wrong",
    ]  # fmt: skip
    page.locator("#file").focus()
    assert page.locator("#drop").evaluate("drop => getComputedStyle(drop).outlineStyle") == "solid"
