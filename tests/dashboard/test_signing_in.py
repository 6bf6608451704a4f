"""Signing in to the dashboard in a real Chromium, at every place where it may be mounted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import Visitor
from tests.dashboard.world import PLACES, World

pytestmark = pytest.mark.slow


def test_a_key_opens_the_dashboard_and_signing_out_closes_it(
    world: World, visit: Callable[..., Visitor]
) -> None:  # E68
    visitor = visit()
    visitor.expected = ["401"]
    page = visitor.open("jobs")
    page.get_by_label("Key").fill("hf_guessed")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
    page.get_by_label("Key").fill(world.key("viewer")[1])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()  # what was asked for, not the first page
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Key")).to_be_visible()


def test_a_printed_address_signs_in_once(world: World, visit: Callable[..., Visitor]) -> None:  # E68
    token = world.site.state.context.sessions.new_token()
    first, second = visit(), visit()
    second.expected = ["401"]
    page = first.open(f"#token={token}")
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    assert token not in page.url
    page.reload()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    expect(second.open(f"#token={token}").get_by_label("Key")).to_be_visible()


@pytest.mark.parametrize("place", PLACES)
def test_every_page_can_be_reloaded_wherever_the_dashboard_is_mounted(
    world: World, visit: Callable[..., Visitor], place: str
) -> None:  # E68
    job_id = world.enqueue("convert", {"owner": "mounted"}, pdf="a.pdf")
    page = visit().sign_in(place=place).open(place=place)
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("Query").fill("owner:mounted task:convert")
    page.get_by_label("Query").press("Enter")
    expect(page).to_have_url(re.compile(re.escape(f"{world.url}{place}jobs?q=")))
    page.reload()
    expect(page.get_by_label("Query")).to_have_value("owner:mounted task:convert")
    page.get_by_role("cell").get_by_role("link", name="convert").first.click()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    expect(page).to_have_url(f"{world.url}{place}jobs/{job_id}")
    page.reload()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Query")).to_have_value("owner:mounted task:convert")


def test_the_session_of_one_mount_is_not_sent_to_another(
    world: World, visit: Callable[..., Visitor]
) -> None:  # E68
    visitor = visit().sign_in(place="/a/b/")
    visitor.expected = ["401"]
    expect(visitor.open(place="/a/b/").get_by_role("navigation", name="Pages")).to_be_visible()
    expect(visitor.open(place="/").get_by_label("Key")).to_be_visible()


def test_a_revoked_key_closes_the_pages_that_it_has_opened(
    world: World, visit: Callable[..., Visitor]
) -> None:  # E68
    key_id, secret = world.key("operator")
    visitor = visit()
    visitor.expected = ["401"]
    page = visitor.open()
    page.get_by_label("Key").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    _, admin = world.key("admin")
    revoked = visitor.context.request.post(
        f"{world.url}/api/v1/keys/{key_id}/revoke", headers={"Authorization": f"Bearer {admin}"}
    )
    assert revoked.ok
    expect(page.get_by_role("alert")).to_contain_text("Your session has ended")
    expect(page.get_by_label("Key")).to_be_visible()


def test_who_may_only_look_finds_nothing_to_press(
    world: World, visit: Callable[..., Visitor]
) -> None:  # E66, E68
    world.fails.add("look.pdf")
    job_id = world.enqueue("convert", {"owner": "look"}, pdf="look.pdf")
    world.until(job_id, "failed")
    visitor = visit().sign_in("viewer")
    for path in ("", "jobs", "dead", f"jobs/{job_id}"):
        page = visitor.open(path)
        expect(page.get_by_text("read-only")).to_be_visible()
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_attached()
        expect(page.get_by_text("convert").first).to_be_visible()
        for name in ("Retry", "Cancel", "Pause queue", "Edit"):
            expect(page.get_by_role("main").get_by_role("button", name=name)).to_have_count(0)
        expect(page.get_by_role("checkbox")).to_have_count(0)


def test_an_owner_sees_its_own_jobs_and_nothing_of_the_engine(
    world: World, visit: Callable[..., Visitor]
) -> None:  # E66, E68
    mine = world.enqueue("convert", {"owner": "olga"}, pdf="mine.pdf")
    theirs = world.enqueue("convert", {"owner": "mallory"}, pdf="theirs.pdf")
    world.until(mine, "complete")
    visitor = visit().sign_in("owner", "olga")
    page = visitor.open()
    expect(page.get_by_text("None of your jobs has failed")).to_be_visible()
    expect(page.get_by_role("heading", name="Queues")).to_have_count(0)
    page = visitor.open("jobs")
    expect(page.get_by_text("1 job, newest first")).to_be_visible()
    visitor.check()  # nothing was asked for that is forbidden
    visitor.expected = ["403"]
    expect(visitor.open(f"jobs/{theirs}").get_by_text("belongs to another owner")).to_be_visible()
