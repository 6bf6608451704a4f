"""The acceptance list of the converter's two source documents, against real processes on both stores (C12)."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from typing import Any

import pytest
from lxml import etree

from holdfast.cli import main
from systems.converter.codes import CODES, Code
from systems.converter.content import MAX_BYTES
from systems.converter.samples import article, plain
from tests.systems.converter.conftest import BASE_DELAY_MS
from tests.systems.converter.gateways import ROOT
from tests.systems.converter.sites import RunningSite


def some(words: str) -> bytes:
    """A PDF that no other test sends."""
    return plain(words=words)


def assert_spaced(site: RunningSite, job_id: str) -> None:
    """Between its three attempts are the waits of the document: the base, and twice the base."""
    first, second, third = site.attempts(job_id)
    for before, after, factor in ((first, second, 1), (second, third, 2)):
        assert before.ended_at is not None
        waited = (after.started_at - before.ended_at).total_seconds() * 1000
        assert factor * BASE_DELAY_MS <= waited < factor * BASE_DELAY_MS + 5000  # a busy machine may be late


def test_a_pdf_goes_in_and_xml_comes_out(site: RunningSite) -> None:  # C2
    job = site.converted(article(), "jats", name="Artikel über Ä.pdf")
    assert (job["state"], job["attempt"], job["error_code"], job["message"]) == ("complete", 1, None, "")
    assert (job["status"], job["attempt_count"], job["attemptCount"]) == ("complete", 1, 1)
    answer = site.http.get(job["result_path"])
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/xml"
    assert answer.headers["content-disposition"].endswith("UTF-8''Artikel%20%C3%BCber%20%C3%84.xml")
    assert etree.fromstring(answer.content).findtext(".//article-title") == "What It Costs to Lose No Job"
    assert answer.content == site.gateway.convert(article(), "jats").content


# -- "Acceptance checks" -------------------------------------------------------------------------------------------------
def test_a_bad_type_is_400_and_on_record_as_failed(site: RunningSite) -> None:  # C1
    answer = site.upload(b"MZ\x90\x00 no PDF at all", "alto", name="report.pdf")
    assert (answer.status_code, answer.json()["code"]) == (400, "NOT_PDF")
    assert answer.json()["detail"] == "Only PDF files are supported."
    job = site.job(answer.json()["job_id"])
    assert (job["state"], job["error_code"], job["name"]) == ("failed", "NOT_PDF", "report.pdf")
    assert (job["attempt"], job["can_retry"], job["has_source"], job["mapping"]) == (0, False, False, "alto")


def test_more_than_50_mb_is_413_and_on_record_as_failed(site: RunningSite) -> None:  # C1
    answer = site.upload(b"%PDF-1.7\n" + bytes(MAX_BYTES), name="big.pdf")
    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert answer.json()["detail"] == "File exceeds 50 MB limit."
    job = site.job(answer.json()["job_id"])
    assert (job["state"], job["error_code"], job["name"]) == ("failed", "TOO_LARGE", "big.pdf")
    assert site.left_over() == []


def test_a_bad_mapping_is_the_gateways_406_and_not_retried(site: RunningSite) -> None:  # C4
    job = site.converted(some("bad mapping"), "docx")
    assert (job["state"], job["error_code"], job["attempt"]) == ("failed", "GW_4XX", 1)
    assert job["error_message"].startswith(CODES[Code.GW_4XX].final)
    assert "There is no mapping 'docx'" in job["error_message"]


@pytest.mark.parametrize("status", [400, 413, 415])
def test_a_gateway_that_refuses_is_not_asked_again(site: RunningSite, status: int) -> None:  # C4
    site.gateway.fault(status=status)
    job = site.converted(some(f"refused {status}"))
    assert (job["state"], job["error_code"], job["attempt"]) == ("failed", "GW_4XX", 1)


def test_a_gateway_that_answers_502_is_asked_three_times(site: RunningSite) -> None:  # C4
    site.gateway.fault(status=502)
    job = site.converted(some("502"))
    assert (job["state"], job["error_code"], job["attempt"]) == ("failed", "GW_5XX", 3)
    assert job["error_message"] == CODES[Code.GW_5XX].final  # C8
    assert_spaced(site, job["id"])


def test_a_gateway_that_does_not_answer_is_asked_three_times(site: RunningSite) -> None:  # C4
    site.gateway.fault(hang=True)
    site.stop_workers()
    site.start_worker(GATEWAY_TIMEOUT_MS="500")  # the others have all the time of a busy machine
    try:
        job = site.converted(some("hangs"))
    finally:
        site.stop_workers()
        site.start_worker()
    assert (job["state"], job["error_code"], job["attempt"]) == ("failed", "GW_TIMEOUT", 3)
    assert_spaced(site, job["id"])


def test_a_result_that_cannot_be_written_is_tried_once_more(site: RunningSite) -> None:  # C4
    site.converted(some("makes the folder"))
    aside = site.results.with_name("aside")
    site.results.rename(aside)
    site.results.touch()  # a file where the folder should be: also root cannot write there
    try:
        job = site.converted(some("no place"))
    finally:
        site.results.unlink()
        aside.rename(site.results)
    assert (job["state"], job["error_code"], job["attempt"]) == ("failed", "IO_ERROR", 2)
    assert str(site.folder) not in job["error_message"]


def test_a_download_before_the_end_is_409(site: RunningSite) -> None:  # C2
    site.gateway.fault(hang=True)
    job_id = site.upload(some("slow")).json()["id"]
    answer = site.http.get(f"/api/jobs/{job_id}/download")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")
    assert answer.json()["detail"] == "Conversion not finished yet."
    site.gateway.http.delete("/faults")
    assert site.until(job_id)["state"] == "complete"
    assert site.http.get(f"/api/jobs/{job_id}/download").status_code == 200


def test_a_download_after_retention_is_404_and_uploading_again_regenerates(site: RunningSite) -> None:  # C2
    """Also before the file of what has expired is swept, and when a file was lost before its time."""
    pdf = some("expires")
    ids: set[str] = set()
    for removal in ("retention", "loss"):
        job = site.converted(pdf)
        ids.add(job["id"])
        xml = site.results / f"{job['id']}.xml"
        site.expire_results() if removal == "retention" else xml.unlink()
        assert xml.exists() is (removal == "retention")
        answer = site.http.get(f"/api/jobs/{job['id']}/download")
        assert (answer.status_code, answer.json()["code"]) == (404, "EXPIRED")
        job = site.job(job["id"])
        assert job["message"] == "File was removed by retention. Re-upload to regenerate."
        assert (job["status"], job["result_path"]) == ("complete", None)
    again = site.converted(pdf)
    assert len(ids | {again["id"]}) == 3
    assert site.http.get(again["download"]).status_code == 200
    assert site.upload(pdf).json()["id"] == again["id"]  # and that one is the twin from now on


def test_anothers_job_is_403(site: RunningSite) -> None:  # C2
    job = site.converted(some("mine"))
    stranger = site.browser()
    for method, path in (("GET", ""), ("GET", "/download"), ("POST", "/retry")):
        answer = stranger.request(method, f"/api/jobs/{job['id']}{path}")
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
        assert answer.json()["detail"] == "This file isn’t yours."
    assert stranger.get("/api/jobs").json()["jobs"] == []


def test_a_failed_job_is_retried_by_hand_and_completes(site: RunningSite) -> None:  # C2
    site.gateway.fault(status=500)
    job = site.converted(some("by hand"))
    assert (job["state"], job["can_retry"]) == ("failed", True)
    site.gateway.http.delete("/faults")
    answer = site.http.post(f"/api/jobs/{job['id']}/retry")
    assert answer.status_code == 200
    assert (answer.json()["error_code"], answer.json()["manual_retry_count"]) == (None, 1)
    assert answer.json()["duplicate"] is False
    assert site.until(job["id"])["state"] == "complete"


def test_a_retry_says_nothing_of_the_failure_before_it(site: RunningSite) -> None:  # C8
    """Neither in its answer, nor while the new attempt runs; what fails then is shown again."""
    job = site.converted(some("said before"), "docx")
    assert job["attempt"] == 1
    site.gateway.fault(hang=True)
    answer = site.http.post(f"/api/jobs/{job['id']}/retry").json()
    assert (answer["state"] in ("queued", "processing"), answer["message"]) == (True, "")
    running = site.until(job["id"], "processing")
    assert (running["attempt"], running["message"]) == (1, "")
    site.gateway.fault(status=429, retry_after=1)
    waiting = next(job for job in site.looks(job["id"]) if job["retry_in_ms"] is not None)
    assert waiting["message"] == CODES[Code.GW_5XX].trying
    site.gateway.http.delete("/faults")
    site.until(job["id"])


def test_a_retry_beside_a_finished_twin_answers_with_the_twin(site: RunningSite) -> None:  # C2
    """As an upload of the same file does; and where the twin's result is gone, with a new job."""
    pdf = some("a failed one and its twin")
    site.gateway.fault(status=500)
    failed = site.converted(pdf)
    site.gateway.http.delete("/faults")
    twin = site.converted(pdf)
    before = set(site.uploads.glob("*.pdf"))
    answer = site.http.post(f"/api/jobs/{failed['id']}/retry")
    assert (answer.status_code, answer.json()["id"], answer.json()["duplicate"]) == (200, twin["id"], True)
    assert answer.json()["has_result"] is True
    assert set(site.uploads.glob("*.pdf")) == before  # no copy is left behind
    (site.results / f"{twin['id']}.xml").unlink()
    answer = site.http.post(f"/api/jobs/{failed['id']}/retry")
    assert (answer.status_code, answer.json()["duplicate"]) == (200, False)
    assert answer.json()["id"] not in (failed["id"], twin["id"])
    anew = site.until(answer.json()["id"])
    assert (anew["state"], anew["has_result"], anew["name"]) == ("complete", True, failed["name"])
    again = site.http.post(f"/api/jobs/{failed['id']}/retry").json()
    assert (again["id"], again["duplicate"]) == (anew["id"], True)


def test_a_retry_of_a_refused_upload_says_why_not(site: RunningSite) -> None:  # C2
    refused = site.upload(b"no PDF", name="notes.pdf").json()["job_id"]
    assert site.job(refused)["refused"] is True
    answer = site.http.post(f"/api/jobs/{refused}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_PDF")
    assert "was not accepted, so there is nothing to retry" in answer.json()["detail"]
    assert site.job(refused)["state"] == "failed"


def test_a_file_is_cancelled_while_it_waits_or_runs(site: RunningSite) -> None:  # C12
    site.gateway.fault(hang=True)
    job_id = site.upload(some("to be cancelled")).json()["id"]
    assert site.until(job_id, "processing")["can_cancel"] is True
    stranger = site.browser().post(f"/api/jobs/{job_id}/cancel")
    assert (stranger.status_code, stranger.json()["code"]) == (403, "FORBIDDEN")
    answer = site.http.post(f"/api/jobs/{job_id}/cancel")
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert (answer.json()["can_cancel"], answer.json()["can_retry"]) == (False, True)
    again = site.http.post(f"/api/jobs/{job_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "NOT_READY")
    assert "nothing to cancel" in again.json()["detail"]
    site.gateway.http.delete("/faults")
    assert site.http.post(f"/api/jobs/{job_id}/retry").status_code == 200
    assert site.until(job_id)["state"] == "complete"


def test_priority_is_chosen_at_upload_and_high_is_for_operators(site: RunningSite) -> None:  # C12
    def send(priority: str, **more: Any) -> Any:
        form = {"mapping": "text", "priority": priority}
        return site.http.post(
            "/api/upload", files={"file": ("a.pdf", some(f"{priority} {more}"))}, data=form, **more
        )

    low = send("low").json()
    assert (low["priority"], site.until(low["id"])["state"]) == ("low", "complete")
    refused = send("high")
    assert (refused.status_code, refused.json()["code"]) == (403, "FORBIDDEN")
    assert send("urgent").status_code == 400
    words = ("--role", "operator", "--app", "systems.converter.app:app", "--json")
    made = json.loads(site.command("keys", "create", *words))
    high = send("high", headers={"authorization": f"Bearer {made['secret']}"})
    site.command("keys", "revoke", made["id"], *words[2:])
    assert (high.status_code, high.json()["priority"]) == (201, "high")
    files = {path.stem for path in site.uploads.glob("*.pdf")}
    assert files >= {low["id"], high.json()["id"]}
    assert refused.json()["job_id"] not in files  # what is refused is not stored


def test_a_retry_needs_a_failed_job_with_its_source(site: RunningSite) -> None:  # C2
    done = site.converted(some("is complete"))
    answer = site.http.post(f"/api/jobs/{done['id']}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_READY")
    lost = site.converted(some("loses its source"), "docx")
    (site.uploads / f"{lost['id']}.pdf").unlink()
    assert site.job(lost["id"])["can_retry"] is False
    answer = site.http.post(f"/api/jobs/{lost['id']}/retry")
    assert (answer.status_code, answer.json()["code"]) == (404, "EXPIRED")
    assert site.job(lost["id"])["state"] == "failed"


def test_a_job_that_nobody_has_is_404(site: RunningSite) -> None:
    for job_id in ("00000000-0000-7000-8000-000000000000", "x", "..%2f..%2fsession.key"):
        answer = site.http.get(f"/api/jobs/{job_id}")
        assert answer.status_code == 404
        assert "\n" not in answer.json()["detail"]


# -- "Tests" and "Exit criteria" -----------------------------------------------------------------------------------------
def test_retries_are_spaced_and_their_time_is_told(site: RunningSite) -> None:
    """The spacing itself, with the documented numbers, is in test_codes; here that the claim honours it."""
    site.gateway.fault(status=429, retry_after=1)
    job_id = site.upload(some("spaced")).json()["id"]
    waiting = next(job for job in site.looks(job_id) if job["retry_in_ms"] is not None)
    assert waiting["state"] == "queued"
    assert waiting["message"] == CODES[Code.GW_5XX].trying
    assert (waiting["error_code"], waiting["error_message"]) == (None, None)  # only of a failed job
    site.gateway.http.delete("/faults")
    job = site.until(job_id)
    assert (job["state"], job["attempt"]) == ("complete", 2)
    due, began = (datetime.fromisoformat(text) for text in (waiting["retry_after"], job["last_attempt_at"]))
    assert began >= due


def test_every_move_is_on_record_with_its_facts(site: RunningSite) -> None:
    site.gateway.fault(status=503, percent=50)
    assert (
        site.gateway.convert(plain()).status_code == 200
    )  # the next one fails, and the one after it does not
    job = site.converted(some("on record"))
    assert job["attempt"] == 2
    words = ("--app", "systems.converter.app:app", "--job", job["id"], "--json")
    text = site.command("events", *words)
    story = [json.loads(line) for line in text.splitlines()]
    assert [event["kind"] for event in story] == ["queued", "processing", "retry", "processing", "complete"]
    failure, success = story[2]["meta"], story[4]["meta"]
    assert (failure["gateway_http_status"], failure["error_code"]) == (503, "GW_5XX")
    assert success["gateway_http_status"] == 200


def test_a_twin_is_the_same_job_for_its_owner_only(site: RunningSite) -> None:  # C1
    pdf = some("twins")
    before = set(site.uploads.glob("*.pdf"))
    first = site.upload(pdf)
    assert (first.status_code, first.json()["duplicate"]) == (201, False)
    for _ in range(2):  # while it is in progress, and once it is complete
        twin = site.upload(pdf, name="another name.pdf")
        assert (twin.status_code, twin.json()["duplicate"]) == (200, True)
        assert twin.json()["id"] == first.json()["id"]
        site.until(first.json()["id"])
    others = [site.upload(pdf, "alto"), site.upload(pdf, by=site.browser())]
    ids = {answer.json()["id"] for answer in [first, *others]}
    assert len(ids) == 3
    assert {path.stem for path in set(site.uploads.glob("*.pdf")) - before} == ids  # no twin left its file


def test_a_failed_twin_is_none(site: RunningSite) -> None:  # C1
    pdf = some("fails, then not")
    site.gateway.fault(status=500)
    failed = site.converted(pdf)
    site.gateway.http.delete("/faults")
    again = site.converted(pdf)
    assert (failed["state"], again["state"]) == ("failed", "complete")
    assert failed["id"] != again["id"]


def test_a_disk_that_fails_is_500_and_the_job_failed(site: RunningSite) -> None:  # C1
    site.upload(some("makes the folder too"))
    aside = site.uploads.with_name("uploads-aside")
    site.uploads.rename(aside)
    site.uploads.touch()
    try:
        answer = site.upload(some("nowhere to put it"))
    finally:
        site.uploads.unlink()
        aside.rename(site.uploads)
    assert (answer.status_code, answer.json()["code"]) == (500, "IO_ERROR")
    assert "\n" not in answer.json()["detail"]
    job = site.job(answer.json()["job_id"])
    assert (job["state"], job["error_code"]) == ("failed", "IO_ERROR")


def test_lists_are_paged_newest_first(site: RunningSite) -> None:  # C2
    ids = [site.upload(some(f"page {n}")).json()["id"] for n in range(5)]
    seen: list[str] = []
    after = ""
    while True:
        page = site.http.get("/api/jobs", params={"limit": 2, **({"after": after} if after else {})}).json()
        seen += [job["id"] for job in page["jobs"]]
        if (after := page["next"]) is None:
            break
    assert seen == ids[::-1]
    assert site.http.get("/api/jobs", params={"after": "nonsense"}).status_code == 400
    for job_id in ids:
        site.until(job_id)


def test_health_says_whether_the_store_answers(site: RunningSite) -> None:
    assert site.http.get("/healthz").json() == {"status": "ok"}


def test_the_commands_of_the_runbook_do_what_it_says(
    site: RunningSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # C10
    """As they are typed, in the environment that the page sets. Those with an app are what starts the site itself."""
    failed = site.converted(some("for the runbook"), "docx")
    page = (ROOT / "docs/how-to/converter-runbook.md").read_text(encoding="utf-8")
    assert "$ export HOLDFAST_DATABASE_URL=$DATABASE_URL\n" in page
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", site.environment["DATABASE_URL"])
    typed = re.findall(r"^\$ (holdfast .+)$", page, re.MULTILINE)
    typed += re.findall(r"`(holdfast [^`]+)`", page.replace("\n", " "))
    said: dict[str, str] = {}
    for line in dict.fromkeys(typed):
        if " systems.converter.app:app" not in line:
            code = main(shlex.split(line.replace("ID", failed["id"]))[1:])
            assert code in (0, int(line == "holdfast doctor")), line  # it found something: that a file failed
            said[line] = capsys.readouterr().out
    assert len(said) >= 12
    assert "GW_4XX" in said["holdfast dead groups"]
    assert failed["id"] in said["holdfast jobs show ID"]
    assert site.converted(some("after the runbook"))["state"] == "complete"  # paused, and resumed again
