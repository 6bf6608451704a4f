"""The page of grading in a real Chromium: whole ways with a real broker, and ends of all kinds that callbacks report."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, expect

from devservices.rabbitmq import RabbitMq
from holdfast import Holdfast, JobRow, State
from holdfast.external import Done, Failed, Requeue
from systems.grading.audio import make_recording
from systems.grading.samples import ESSAY
from systems.grading.settings import Settings
from systems.grading.tasks import build
from tests.systems.grading.stack import SECRET, Stack
from tests.systems.pages import (
    CONTRAST,
    HOSTILE,
    ONLY_NEWS,
    PHONE,
    SECONDS,
    Visitor,
    apart,
    fits,
    running,
    visitor,
)

pytestmark = pytest.mark.slow

GRADE = {"overall": 6.5, "bands": {"task": 6.0, "grammar": 7.0}, "feedback": "Say more."}


class Site(NamedTuple):
    url: str
    settings: Settings

    def do(self, act: Any) -> Any:
        """Call *act* with the app: what a worker's callback, or a person at the command line, would do."""

        async def opened() -> Any:
            async with build(self.settings).app as app:
                result = act(app)
                return await result if isinstance(result, Coroutine) else result

        return apart(opened)

    def end(self, row: Locator, outcome: Done | Failed | Requeue, generation: int = 1) -> None:
        job_id = str(row.get_attribute("data-id"))
        self.do(lambda app: app.external.end(job_id, outcome, generation=generation, worker="w"))

    def begin(self, row: Locator) -> None:
        job_id = str(row.get_attribute("data-id"))
        self.do(lambda app: app.external.begin(job_id, generation=1, worker="w"))

    def job(self, row: Locator) -> JobRow:
        job_id = str(row.get_attribute("data-id"))
        found: JobRow = self.do(lambda app: app.jobs.get(job_id))
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: str) -> Iterator[Site]:
    """The web app alone. The deadline of a recording has passed as soon as it is submitted."""
    folder = tmp_path_factory.mktemp("site")
    environment = os.environ | {
        "DATABASE_URL": f"sqlite:///{folder / 'grading.db'}",
        "BROKER_URL": "amqp://127.0.0.1:1/",
        "AUDIO_DIR": str(folder / "audio"),
        "CALLBACK_SECRETS": SECRET,
        "SLA_SPEAKING_MS": "1",
        "HOLDFAST_LOG_LEVEL": "error",
    }
    with running(environment, "systems.grading.web") as url:
        yield Site(url, Settings.read(environment))


@pytest.fixture
def guest(window: Browser) -> Iterator[Visitor]:
    with visitor(window) as opened:
        yield opened


def write(page: Page, text: str) -> Locator:
    with page.expect_response("**/submissions") as answer:
        page.fill("#text", text)
        page.click("#send")
    return page.locator(f'.row[data-id="{answer.value.json()["submissionId"]}"]')


def speak(page: Page, sound: bytes) -> Locator:
    page.check("[value=speaking]")
    page.set_input_files("#audio", FilePayload(name="mine.wav", mimeType="audio/wav", buffer=sound))
    with page.expect_response("**/submissions") as answer:
        page.click("#send")
    return page.locator(f'.row[data-id="{answer.value.json()["submissionId"]}"]')


@pytest.mark.service
def test_a_text_and_a_recording_are_submitted_and_graded(
    guest: Visitor, own_rabbitmq: RabbitMq, tmp_path: Path
) -> None:  # G1 G5
    with Stack(tmp_path, own_rabbitmq.url()) as stack:
        page = guest.open(str(stack.http.base_url))
        expect(page.locator("#empty")).to_contain_text("No submissions yet")
        page.click("#essay")
        expect(page.locator("#words")).to_have_text(f"{len(ESSAY.split())} words")
        page.click("#send")
        row = page.locator(".row", has_text="Many people say")
        expect(row.locator(".state")).to_have_text("Graded", timeout=3 * SECONDS)
        expect(row.locator(".overall b")).to_have_text("6.5")
        page.check("[value=speaking]")
        page.click("#speech")
        expect(page.locator("#chosen")).to_contain_text("sample.wav")
        page.click("#send")
        row = page.locator(".row", has_text="speaking")
        expect(row.locator(".state")).to_have_text("Graded", timeout=3 * SECONDS)
        row.get_by_text("What was heard").click()
        expect(row.locator(":scope > .grade")).to_contain_text("I like to travel")
        stored = stack.look({"submissionId": row.get_attribute("data-id")})
        assert (stored["status"], stored["result"]["overall"]) == ("COMPLETED", 4.5)
        assert stack.http.get("/progress").json().keys() == {"writing", "speaking"}
        assert guest.said == []


def test_a_submission_shows_its_state_as_it_changes_and_the_time_left(
    guest: Visitor, site: Site
) -> None:  # G5
    guest.context.add_init_script(ONLY_NEWS)
    page = guest.open(site.url)
    row = write(page, "It rains, because it is autumn.")
    expect(row.locator(".state")).to_have_text("Waiting")
    expect(row.locator(".attempt")).to_contain_text("19:5")  # of twenty minutes
    row.get_by_text("What happened").click()
    expect(row.locator(".trail li")).to_contain_text(["submitted"])
    site.begin(row)
    expect(row.locator(".state")).to_have_text("Being graded", timeout=SECONDS)
    expect(row.locator(".trail li")).to_contain_text(["submitted", "a grader began"])
    site.end(row, Done(GRADE))
    expect(row.locator(".state")).to_have_text("Graded", timeout=SECONDS)
    expect(row.locator(".bands div")).to_have_text(["task6.0", "grammar7.0"])
    expect(row.locator(".attempt")).to_have_text("")
    expect(page.locator("#announcement")).to_have_text("It rains, because it is autumn.: graded 6.5")
    assert site.job(row).state is State.COMPLETE
    assert guest.said == []


def test_a_late_grade_is_shown_as_late_and_does_not_count(guest: Visitor, site: Site) -> None:  # G6 E35
    page = guest.open(site.url)
    row = speak(page, make_recording("too late"))
    expect(row.locator(".attempt")).to_have_text("deadline passed")
    site.end(row, Done(GRADE | {"transcript": "too late"}))
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".message")).to_have_text("It was not graded in time.")
    expect(row.locator(".late-line")).to_be_visible()
    expect(row.locator(".late-line")).to_contain_text("A result came too late")
    expect(row.locator(".late .overall b")).to_have_text("6.5")
    expect(row.locator(":scope > .grade")).to_be_hidden()
    assert (site.job(row).state, site.job(row).result) == (State.FAILED, None)
    assert guest.said == []


def test_a_failed_submission_says_why_in_one_line_and_an_operator_sends_it_again(
    guest: Visitor, site: Site
) -> None:  # G4
    page = guest.open(site.url)
    row = write(page, "Hello again.")
    site.end(row, Failed("RETRIES_EXHAUSTED", "provider: 503\nTraceback …"))
    expect(row.locator(".message")).to_have_text(
        "The grader failed on every attempt; an operator can send it again.", timeout=SECONDS
    )
    row.get_by_role("button", name="Send again: Hello again.").click()
    expect(row.locator(".state")).to_have_text("Waiting", timeout=SECONDS)
    expect(row.locator(".message")).to_have_text("")
    assert site.job(row).generation == 2
    site.end(row, Done(GRADE), generation=2)
    expect(row.locator(".state")).to_have_text("Graded", timeout=SECONDS)
    assert guest.said == []


def test_what_is_no_submission_is_refused_in_one_line(guest: Visitor, site: Site) -> None:  # G1
    page = guest.open(site.url)
    page.check("[value=speaking]")
    page.click("#send")
    expect(page.locator("#refused")).to_have_text("Choose a recording first.")
    page.check("[value=writing]")
    page.fill("#text", "   ")
    page.click("#send")
    expect(page.locator("#refused")).to_have_text("A writing submission needs a text.")


def test_hostile_texts_and_answers_are_text(guest: Visitor, site: Site) -> None:  # G1 G3
    page = guest.open(site.url)
    row = write(page, HOSTILE)
    site.end(row, Done(GRADE | {"bands": {HOSTILE: 5.0}, "feedback": HOSTILE}))
    expect(row.locator(".feedback")).to_contain_text("<img src=x onerror", timeout=SECONDS)
    expect(row.locator(".name")).to_contain_text("<img src=x onerror")
    assert page.title() == "Grading"
    assert page.locator(".row img, .row script").count() == 0
    assert fits(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    assert guest.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read_in_light_and_dark(
    window: Browser, site: Site, scheme: str
) -> None:  # G5
    with visitor(window, viewport=PHONE, color_scheme=scheme) as phone:
        page = phone.open(site.url)
        late = speak(page, make_recording("a"))
        site.end(late, Done(GRADE))
        page.check("[value=writing]")
        graded = write(page, "On a phone.")
        site.end(graded, Done(GRADE))
        expect(graded.locator(".state")).to_have_text("Graded", timeout=SECONDS)
        expect(late.locator(".late")).to_be_visible(timeout=SECONDS)
        assert fits(page)
        for part in (".overall b", ".overall .quiet", ".bands dt", ".feedback", ".state"):
            assert graded.locator(part).first.evaluate(CONTRAST) >= 4.5, part
        for part in (".late-line", ".late .overall b", ".message", ".retry", ".facts"):
            assert late.locator(part).first.evaluate(CONTRAST) >= 4.5, part


def test_everything_can_be_done_by_keyboard(guest: Visitor, site: Site) -> None:  # G1
    page = guest.open(site.url)
    expect(page.locator("#send")).to_be_visible()
    reached: list[str] = []
    for _ in range(4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.value"))
    assert reached == ["writing", "text", "essay", "send"]
    page.locator("#text").focus()
    assert page.locator("#text").evaluate("field => getComputedStyle(field).outlineStyle") == "solid"


def test_once_there_are_keys_learners_see_their_own_submissions_only(
    guest: Visitor, site: Site
) -> None:  # G1
    async def make_keys(app: Holdfast) -> dict[str, str]:
        return {who: (await app.keys.create("owner", owner=who))[1] for who in ("ann", "ben")}

    page = guest.open(site.url)
    write(page, "Of everybody.")
    keys = site.do(make_keys)
    page.reload()
    expect(page.locator("#sign-in")).to_be_visible()
    page = guest.sign_in(site.url, keys["ann"])
    expect(page.locator("#empty")).to_be_visible()
    row = write(page, "Of ann.")
    site.end(row, Failed("PROVIDER_REFUSED"))
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".retry")).to_be_hidden()  # for operators
    assert site.job(row).owner == "ann"
    row.get_by_text("What happened").click()
    expect(row.locator(".trail li")).to_contain_text(["submitted", "failed · PROVIDER_REFUSED"])
    page = guest.sign_in(site.url, keys["ben"])
    expect(page.locator("#empty")).to_be_visible()
    expect(page.locator(".row")).to_have_count(0)
