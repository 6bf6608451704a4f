"""The four scenarios of the source document, with a real Chromium, on each store."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pikepdf
import pytest
from PIL import Image

from systems.screenshots.browser import Browser
from tests.systems.screenshots.api.world import ADMIN, SHOTS, World
from tests.systems.screenshots.places import Web, hang, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PAGE = "<body style='margin:0;background:#2040c0'><h1>It is here</h1>"


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    raise OSError("hung up")


async def test_a_screenshot_is_asked_for_and_fetched_and_paid(real: World, web: Web) -> None:  # S1 S3
    url = web.page("/plain", PAGE)
    asked = await real.ask(
        "ann", "POST", SHOTS, {"url": url, "viewport": {"width": 320, "height": 200}, "priority": "HIGH"}
    )
    assert asked.status_code == 202
    job_id = asked.json()["jobId"]
    assert (asked.json()["type"], asked.json()["creditsReserved"], asked.json()["priority"]) == (
        "SCREENSHOT",
        1,
        "HIGH",
    )
    shown = await real.ended(job_id)
    assert (shown["status"], shown["retryCount"], shown["imageUrl"]) == (
        "COMPLETED",
        0,
        f"{SHOTS}/{job_id}/image",
    )
    image = await real.ask("ann", "GET", shown["imageUrl"])
    assert (image.headers["content-type"], image.headers["x-content-type-options"]) == (
        "image/png",
        "nosniff",
    )
    picture = Image.open(io.BytesIO(image.content)).convert("RGB")
    assert (picture.size, picture.getpixel((310, 190))) == ((320, 200), (32, 64, 192))
    assert await real.balance() == (99, 0, 1)


async def test_a_pdf_is_a_type_of_its_own(real_on_sqlite: World, web: Web) -> None:  # S1 S10
    job_id = await real_on_sqlite.shot(url=web.page("/sheets", PAGE), format="pdf", fullPage=True)
    shown = await real_on_sqlite.ended(job_id)
    assert (shown["status"], shown["type"]) == ("COMPLETED", "PDF_GENERATION")
    image = await real_on_sqlite.ask("ann", "GET", shown["imageUrl"])
    assert image.headers["content-type"] == "application/pdf"
    with pikepdf.open(io.BytesIO(image.content)) as document:
        assert len(document.pages) == 1
    assert await real_on_sqlite.balance() == (98, 0, 2)


async def test_scenario_1_a_failure_of_the_network_is_retried_by_itself(
    tmp_path: Path, browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1 S3 S8
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    policies = '[tasks.SCREENSHOT]\nmax_attempts = 4\nbackoff = { table = ["3s"], jitter = "none" }\n'
    url = web.answer("/scenario-1", hang_up)
    async with World(
        tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}", browser, policies=policies
    ).open() as world:
        job_id = await world.shot(url=url)
        await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        web.page("/scenario-1", PAGE)
        shown = await world.ended(job_id)
        assert (shown["status"], shown["retryCount"], shown["retryType"]) == ("COMPLETED", 1, "AUTOMATIC")
        assert await world.balance() == (99, 0, 1)  # the retry was free
        trail = (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
        assert [(one["action"], one["by"], one["reason"]) for one in trail] == [
            ("REQUESTED", "user:7", None),
            ("AUTOMATIC_RETRY", "system", "CONNECTION_FAILED"),
        ]


async def test_scenario_2_a_failed_screenshot_is_retried_by_its_owner(
    real: World, web: Web
) -> None:  # S2 S3 S8
    job_id = await real.shot(url=web.answer("/scenario-2", hang_up))
    shown = await real.ended(job_id)
    assert (shown["status"], shown["errorCode"], shown["isRetryable"]) == (
        "FAILED",
        "CONNECTION_FAILED",
        True,
    )
    assert await real.balance() == (100, 0, 0)
    web.page("/scenario-2", PAGE)
    retried = await real.retry(job_id, body={"requestedBy": "user123"})
    assert retried.json() == {
        "jobId": job_id,
        "message": "Job queued for manual retry",
        "queuePosition": retried.json()["queuePosition"],
    }
    assert isinstance(retried.json()["queuePosition"], int)
    shown = await real.ended(job_id)
    assert (shown["status"], shown["retryType"], shown["manualRetryCount"]) == ("COMPLETED", "MANUAL", 1)
    assert await real.balance() == (99, 0, 1)
    trail = (await real.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
    [by_hand] = [one for one in trail if one["action"] == "MANUAL_RETRY"]
    assert by_hand["by"] == "user:7 (key ann) for user123"


async def test_scenario_3_a_stuck_screenshot_is_reclaimed_and_retried(
    tmp_path: Path, browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S4 E30
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    url = web.answer("/scenario-3", hang)
    database = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with World(tmp_path, database, browser, stuck_after_sec=6).open() as world:
        job_id = await world.shot(url=url)
        assert await asyncio.to_thread(until, lambda: "/scenario-3" in web.asked)
        web.page("/scenario-3", PAGE)
        shown = await world.ended(job_id)
        assert (shown["status"], shown["retryCount"]) == ("COMPLETED", 1)
        trail = (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
        assert [(one["action"], one["reason"]) for one in trail][1:] == [("RECOVERED", "STUCK")]
        assert (await world.ask("operator", "GET", f"{ADMIN}/jobs/stuck")).json() == {"jobs": []}
        assert await world.balance() == (99, 0, 1)


async def test_scenario_4_a_retry_by_hand_takes_the_place_of_the_scheduled_one(
    tmp_path: Path, database_url: str, browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S2 E33
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    policies = '[tasks.SCREENSHOT]\nmax_attempts = 4\nbackoff = { table = ["25s"], jitter = "none" }\n'
    url = web.answer("/scenario-4", hang_up)
    async with World(tmp_path, database_url, browser, policies=policies).open() as world:
        job_id = await world.shot(url=url)
        waiting = await world.until(job_id, lambda shown: shown["nextRetryAt"] is not None)
        assert (waiting["status"], waiting["lastFailureReason"]) == (
            "QUEUED",
            "The page could not be reached. It will be tried again.",
        )
        web.page("/scenario-4", PAGE)
        before = web.asked.count("/scenario-4")
        answers = await asyncio.gather(*(world.retry(job_id) for _ in range(4)))
        # Whoever was not first finds it in line (409), or running already (400).
        assert [answer.status_code for answer in answers].count(200) == 1
        assert {answer.status_code for answer in answers} <= {200, 409, 400}
        shown = await world.ended(job_id)
        assert (shown["status"], shown["retryType"]) == ("COMPLETED", "MANUAL")
        assert web.asked.count("/scenario-4") - before == 1
        assert await world.balance() == (99, 0, 1)  # it went on with what it had paid


async def test_a_browser_that_is_killed_in_the_middle_of_a_page_costs_an_attempt_and_no_credit(
    tmp_path: Path, browser: Browser, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:  # S1 S3
    monkeypatch.setenv("SCREENSHOTS_ALLOW", f"{web.host}:{web.port}")
    url = web.answer("/killed", hang)
    async with World(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}", browser).open() as world:
        job_id = await world.shot(url=url)
        assert await asyncio.to_thread(until, lambda: "/killed" in web.asked)
        assert browser.pid is not None
        web.page("/killed", PAGE)
        os.kill(browser.pid, signal.SIGKILL)
        shown = await world.ended(job_id)
        assert (shown["status"], shown["retryCount"]) == ("COMPLETED", 1)
        trail = (await world.ask("ann", "GET", f"{SHOTS}/{job_id}/audit")).json()["trail"]
        assert trail[-1]["reason"] == "BROWSER_CRASHED"
        assert await world.balance() == (99, 0, 1)
