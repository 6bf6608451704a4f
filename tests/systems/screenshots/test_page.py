"""The page of the screenshots in a real Chromium: it takes pictures by real workers, and the store has what it shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from holdfast import Holdfast, JobRow, State
from holdfast.contrib.credits import Account, Credits
from tests.systems.pages import (
    CONTRAST,
    DESK,
    HOSTILE,
    ONLY_NEWS,
    PHONE,
    SECONDS,
    Visitor,
    fits,
    in_store,
    running,
    visitor,
)
from tests.systems.screenshots.places import Web

pytestmark = pytest.mark.slow

PAGE = "<body style='margin:0;background:#2040c0'><h1>It is here</h1>"
SHOTS = "/api/v1/screenshots"
#: A picture fails at its first failure. A PDF waits for its next try.
POLICIES = """
[tasks.SCREENSHOT]
max_attempts = 1
[tasks.PDF_GENERATION]
max_attempts = 3
backoff = { fixed = "10m", jitter = "none" }
"""


class Site(NamedTuple):
    url: str
    database: str
    keys: dict[str, str]

    def rows(self, owner: str) -> list[JobRow]:
        async def ask(app: Holdfast) -> list[JobRow]:
            return list((await app.jobs.list(owner=owner)).rows)

        return in_store(self.database, ask, extensions=[Credits()])

    def account(self, owner: str) -> tuple[int, int, int]:
        async def ask(app: Holdfast) -> Account:
            assert await Credits.of(app).check() == []
            return await Credits.of(app).account(owner)

        found = in_store(self.database, ask, extensions=[Credits()])
        return found.available, found.reserved, found.spent

    def steer(self, act: str) -> None:
        async def ask(app: Holdfast) -> None:
            await getattr(app.queues, act)("screenshots")

        in_store(self.database, ask, extensions=[Credits()])

    def revoke(self, who: str) -> None:
        async def ask(app: Holdfast) -> None:
            key = await app.keys.find(self.keys[who])
            assert key is not None
            await app.keys.revoke(key.id)

        in_store(self.database, ask, extensions=[Credits()])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, chromium: str, web: Web) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    database = f"sqlite:///{folder / 'jobs.db'}"
    (folder / "holdfast.toml").write_text(POLICIES)
    (folder / "sla.toml").write_text("")
    environment = os.environ | {
        "DATABASE_URL": database,
        "IMAGES_DIR": str(folder / "images"),
        "POLICIES_FILE": str(folder / "holdfast.toml"),
        "SLA_FILE": str(folder / "sla.toml"),
        "SCREENSHOTS_ALLOW": f"{web.host}:{web.port}",
        "SAMPLES_URL": web.url,
        "SHOT_SECONDS": "15",
        "HOLDFAST_POLL": "100ms",
        "HOLDFAST_LOG_LEVEL": "error",
    }
    web.page("/article", PAGE)
    worker = ("holdfast", "worker", "systems.screenshots.app:app")
    keys = in_store(database, make_keys, extensions=[Credits()])
    with running(environment, "systems.screenshots.web", worker) as url:
        yield Site(url, database, keys)


async def make_keys(app: Holdfast) -> dict[str, str]:
    keys: dict[str, str] = {}
    for who in ("ann", "bob", "poor", "gone", "phone", "hostile"):
        owner = f"user:{who}"
        keys[who] = (await app.keys.create("owner", owner=owner))[1]
        await Credits.of(app).grant(owner, 1 if who == "poor" else 100)
    keys["operator"] = (await app.keys.create("operator"))[1]
    return keys


@pytest.fixture
def ann(window: Browser) -> Iterator[Visitor]:
    with visitor(window) as opened:
        yield opened


def take(page: Page, url: str, **choices: str) -> Locator:
    for field, choice in choices.items():
        page.select_option(f"#{field}", choice)
    page.fill("#url", url)
    page.click("#take")
    return page.locator(".row", has_text=url.partition("://")[2]).first


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    raise OSError("hung up")


def test_a_picture_is_requested_seen_and_paid_for(ann: Visitor, site: Site, web: Web) -> None:  # S1 S3
    page = ann.sign_in(site.url, site.keys["ann"])
    expect(page.locator("#empty")).to_contain_text("try a sample")
    expect(page.locator("#credits")).to_have_text("100 credits")
    assert "#" not in page.url  # the key is not left in the address …
    assert page.evaluate("document.cookie") == ""  # … nor within reach of scripts
    page.get_by_role("button", name="article", exact=True).click()
    row = page.locator(".row", has_text="/article")
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    assert row.locator("img").evaluate("async image => (await image.decode(), image.naturalWidth)") == 1280
    expect(page.locator("#credits")).to_have_text("99 credits")
    [job] = site.rows("user:ann")
    assert (job.state, site.account("user:ann")) == (State.COMPLETE, (99, 0, 1))
    with page.expect_download() as got:
        row.get_by_role("link", name="Download the picture").click()
    assert Path(got.value.path()).read_bytes().startswith(b"\x89PNG")
    row.get_by_role("button", name="Show the picture").click()
    expect(page.locator("#viewer")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#viewer")).to_be_hidden()
    row.get_by_text("What happened").click()
    expect(row.locator(".trail li")).to_contain_text(["requested · by user:ann"])
    assert ann.said == []


def test_scenario_2_a_failed_picture_is_retried_from_the_page(
    ann: Visitor, site: Site, web: Web
) -> None:  # S2 S3 S8
    page = ann.sign_in(site.url, site.keys["bob"])
    row = take(page, web.answer("/scenario-2", hang_up))
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    expect(row.locator(".message")).to_have_text(
        "The page could not be reached. Trying again did not help; use Retry later."
    )
    expect(row.locator(".cost")).to_have_text("A retry takes 1 credit, and gives it back if it fails.")
    expect(page.locator("#credits")).to_have_text("100 credits")  # a failed picture costs nothing
    web.page("/scenario-2", PAGE)
    site.steer("pause")
    row.get_by_role("button", name="Retry for 1 credit").click()
    expect(row.locator(".message")).to_have_text("Retried: position 1 in the queue.", timeout=SECONDS)
    expect(page.locator("#credits")).to_have_text("99 credits, 1 reserved")
    assert site.account("user:bob") == (99, 1, 0)
    site.steer("resume")
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    expect(row.locator(".attempt")).to_have_text("retried")
    [job] = site.rows("user:bob")
    assert (job.state, job.manual_retry_count, site.account("user:bob")) == (State.COMPLETE, 1, (99, 0, 1))
    expect(page.locator("#announcement")).to_contain_text("Ready")
    assert ann.said == []


def test_a_retry_that_replaces_an_automatic_one_is_free(ann: Visitor, site: Site, web: Web) -> None:  # S2 S3
    page = ann.sign_in(site.url, site.keys["gone"])
    row = take(page, web.answer("/waits", hang_up), format="pdf")
    expect(row.locator(".state")).to_have_text("Waiting to retry", timeout=SECONDS)
    expect(row.locator(".message")).to_contain_text("It will be tried again. Next try in 10 min.")
    expect(row.locator(".cost")).to_have_text("A retry now is free: it replaces the automatic one.")
    assert site.account("user:gone") == (98, 2, 0)
    web.page("/waits", PAGE)
    row.get_by_role("button", name="Retry now").click()
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    assert site.account("user:gone") == (98, 0, 2)
    site.revoke("gone")
    page.reload()
    expect(page.locator("#sign-in")).to_be_visible()  # a revoked key ends the session


def test_what_cannot_be_paid_cannot_be_retried(ann: Visitor, site: Site, web: Web) -> None:  # S2 S3
    page = ann.sign_in(site.url, site.keys["poor"])
    row = take(page, web.answer("/poor", hang_up))
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    take(page, web.page("/paid", PAGE))
    expect(page.locator("#credits")).to_have_text("0 credits", timeout=SECONDS)
    expect(row.locator(".retry")).to_be_disabled()
    expect(row.locator(".cost")).to_have_text("A retry needs 1 credit; you have 0.")
    take(page, web.page("/third", PAGE))
    expect(page.locator("#refused")).to_contain_text("credits")
    assert len(site.rows("user:poor")) == 2


def test_an_address_that_is_not_public_is_refused_in_one_line(ann: Visitor, site: Site) -> None:  # S1
    page = ann.sign_in(site.url, site.keys["ann"])
    before = len(site.rows("user:ann"))
    take(page, "http://127.0.0.1:1/")
    expect(page.locator("#refused")).to_have_text(
        "The page leads to an address that is not allowed; use one on the public web."
    )
    assert len(site.rows("user:ann")) == before


def test_a_page_without_a_valid_key_asks_for_one(ann: Visitor, site: Site) -> None:  # S1
    page = ann.open(site.url)
    expect(page.locator("#app")).to_be_hidden()
    page.get_by_label("Your key").fill("hf_wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#sign-in .message")).to_have_text("This key is unknown, revoked or expired.")
    page.get_by_label("Your key").fill(site.keys["phone"])
    page.keyboard.press("Enter")
    expect(page.locator("#account")).to_contain_text("user:phone")
    expect(page.locator("#empty")).to_be_visible()  # and not the pictures of others
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#sign-in")).to_be_visible()
    assert ann.context.cookies() == []


def test_a_page_of_another_site_cannot_use_the_session(ann: Visitor, site: Site, web: Web) -> None:  # S2
    ann.sign_in(site.url, site.keys["ann"])
    [cookie] = ann.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    with httpx2.Client(base_url=site.url, cookies={str(cookie["name"]): str(cookie["value"])}) as http:
        assert http.get(SHOTS).status_code == 200
        for foreign in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            body = {"url": f"{web.url}/article"}
            assert http.post(SHOTS, json=body, headers=foreign).status_code == 401
            assert http.get(SHOTS, headers=foreign).status_code == 401
            assert http.request("DELETE", "/session", headers=foreign).status_code == 403
            assert http.post("/session", json={"key": site.keys["bob"]}, headers=foreign).status_code == 403
        # The engine's own API never knew the cookie.
        assert http.get("/api/v1/jobs").status_code == 401


def test_a_hostile_address_is_text_and_breaks_no_layout(ann: Visitor, site: Site, web: Web) -> None:  # S1
    page = ann.sign_in(site.url, site.keys["hostile"])
    # Spaces and invisible letters are refused in an address.
    address = f"{web.url}/nothing?<img/src=x/onerror=document.title='owned'>\"&lt;{'W' * 300}"
    headers = {"authorization": f"Bearer {site.keys['hostile']}"}
    asked = httpx2.post(f"{site.url}{SHOTS}", json={"url": address}, headers=headers)
    assert asked.status_code == 202, asked.text
    row = page.locator(".row")
    expect(row.locator(".name")).to_have_text(address.partition("://")[2], timeout=SECONDS)
    expect(row.locator(".state")).to_have_text("Ready", timeout=SECONDS)
    web.answer("/hostile", hang_up)
    row = take(page, f"{web.url}/hostile")
    expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
    job_id = row.get_attribute("data-id")
    retry = f"{site.url}{SHOTS}/{job_id}/retry"
    assert httpx2.post(retry, json={"requestedBy": HOSTILE[:100]}, headers=headers).status_code == 200
    row.get_by_text("What happened").click()
    expect(row.locator(".trail ol")).to_contain_text("<img src=x onerror")
    assert page.title() == "Screenshots"
    assert page.locator(".row img").count() == 2  # the thumbnails
    assert fits(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    assert ann.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read_in_light_and_dark(
    window: Browser, site: Site, web: Web, scheme: str
) -> None:  # S1
    with visitor(window, viewport=PHONE, color_scheme=scheme) as guest:
        page = guest.sign_in(site.url, site.keys["phone"])
        row = take(page, web.answer(f"/phone-{scheme}", hang_up))
        expect(row.locator(".state")).to_have_text("Failed", timeout=SECONDS)
        assert fits(page)
        for part in (
            "#credits",
            "#take",
            ".name",
            ".facts",
            ".state",
            ".message",
            ".cost",
            ".retry",
            "#sign-out",
        ):
            assert page.locator(part).first.evaluate(CONTRAST) >= 4.5, part
        box = row.locator(".retry").bounding_box()
        assert box is not None
        assert box["height"] >= 40


def test_everything_can_be_done_by_keyboard(ann: Visitor, site: Site) -> None:  # S2
    page = ann.sign_in(site.url, site.keys["bob"])
    expect(page.locator(".row .state")).to_have_text("Ready", timeout=SECONDS)
    reached: list[str] = []
    for _ in range(13):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
    assert [name for name in reached if name not in ("link", "quiet")][:8] == [
        "sign-out", "url", "size", "format", "full", "take", "thumb", "download button",
    ]  # fmt: skip
    page.locator("#url").focus()
    assert page.locator("#url").evaluate("field => getComputedStyle(field).outlineStyle") == "solid"


def test_a_server_that_is_away_is_reported_and_found_again(ann: Visitor, site: Site) -> None:  # S1
    page = ann.sign_in(site.url, site.keys["ann"])
    page.context.set_offline(True)
    expect(page.locator("#offline")).to_be_visible(timeout=SECONDS)
    page.context.set_offline(False)
    expect(page.locator("#offline")).to_be_hidden(timeout=SECONDS)


def test_the_page_follows_the_changes_and_asks_rarely(ann: Visitor, site: Site, web: Web) -> None:  # S1
    ann.context.add_init_script(ONLY_NEWS)
    with ann.context.expect_event("response", lambda answer: answer.url.endswith("/changes")):
        page = ann.sign_in(site.url, site.keys["ann"])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    headers = {"authorization": f"Bearer {site.keys['ann']}"}
    body = {"url": web.page("/from-elsewhere", PAGE), "width": DESK["width"]}
    assert httpx2.post(f"{site.url}{SHOTS}", json=body, headers=headers).status_code == 202
    expect(page.locator(".row", has_text="/from-elsewhere").locator(".state")).to_have_text(
        "Ready", timeout=SECONDS
    )
    assert 1 <= sum(SHOTS + "?" in url for url in asked) <= 6  # queued, processing, complete; not a poll
