"""Gateways that are down, workers that die: the breaker, leases and shutdown as the user sees them, on both stores (C12)."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from systems.converter.samples import plain
from tests.systems.converter.gateways import RunningGateway
from tests.systems.converter.sites import RunningSite

BREAKING: dict[str, Any] = {"CIRCUIT_WINDOW": "20", "CIRCUIT_FAIL_THRESHOLD": "0.5"}


@pytest.fixture(scope="module")
def house(
    database_url: str, faulty_gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningSite]:
    """A web app whose workers each test brings itself, with knobs of its own."""
    folder = tmp_path_factory.mktemp("site")
    with RunningSite(
        folder, database_url, faulty_gateway, workers=0, RETRY_MAX_ATTEMPTS="30", RETRY_BASE_DELAY_MS="100"
    ) as running:
        yield running


@pytest.fixture
def site(house: RunningSite, faulty_gateway: RunningGateway) -> Iterator[RunningSite]:
    house.http = house.browser()
    yield house
    faulty_gateway.http.delete("/faults")
    house.stop_workers()
    house.close_browsers()


def until(happened: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.05)  # it happens in other processes, which ring no bell here


def is_held(site: RunningSite) -> bool:
    return bool(site.http.get("/api/jobs").json()["held"])


def under_way(site: RunningSite, words: str) -> str:
    job_id: str = site.upload(plain(words=words)).json()["id"]
    site.until(job_id, "processing")
    return job_id


def metrics(log: Path) -> dict[str, float]:
    """Of the worker that says in its *log* where they are: name with labels → value."""
    [port] = [line["port"] for line in said(log) if line["event"] == "metrics_server.started"]
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", verify=False).raise_for_status().text
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def said(log: Path) -> list[dict[str, Any]]:
    """Its whole lines: what is behind the last end of a line is being written."""
    return [json.loads(line) for line in log.read_text().split("\n")[:-1]]


def test_a_gateway_that_is_down_holds_the_queue_until_it_is_back(
    site: RunningSite, tmp_path: Path
) -> None:  # C7
    """And logs and metrics say so all the while."""
    site.gateway.fault(status=502)
    ids = [site.upload(plain(words=f"held {nth}")).json()["id"] for nth in range(12)]
    log = tmp_path / "log"
    site.start_worker("--metrics-port", "0", log=log, **BREAKING)
    until(lambda: is_held(site))
    until(lambda: metrics(log).get('retries_scheduled_total{type="automatic"}', 0) >= 10)
    assert metrics(log)['breaker_state{dependency="gateway"}'] > 0
    until(lambda: any(line["event"] == "breaker.opened" for line in said(log)))
    failure = next(line for line in said(log) if line["event"] == "job.retry_scheduled")
    assert failure["job_id"] in ids
    assert (failure["status"], failure["attempt"]) == ("queued", 1)
    assert (failure["gateway_status"], failure["error_code"]) == (502, "GW_5XX")
    assert failure["duration_ms"] >= 0
    assert site.http.get("/api/jobs").json()["banner"] == "Converter busy — jobs will resume automatically."
    late = site.upload(plain(words="came while it was held")).json()["id"]
    ids.append(late)
    assert {site.job(job_id)["state"] for job_id in ids} <= {"queued", "processing"}
    site.gateway.http.delete("/faults")
    assert {site.until(job_id)["state"] for job_id in ids} == {"complete"}  # and nobody clicked
    until(lambda: not is_held(site))
    assert site.job(late)["attempt"] == 1  # none was burnt while it was held
    completed = 'jobs_completed_total{queue="convert",task="convert"}'
    until(lambda: metrics(log).get(completed) == len(ids))
    assert metrics(log)['dependency_latency_seconds_count{dependency="gateway"}'] >= len(ids) + 10
    done = next(line for line in said(log) if line["event"] == "job.completed" and line["job_id"] == late)
    assert (done["status"], done["attempt"], done["error_code"]) == ("complete", 1, None)


def test_a_long_job_keeps_its_lease_and_completes_once(site: RunningSite) -> None:
    site.start_worker(WORKER_LEASE_TTL_SEC="2")
    site.gateway.fault(latency_ms=2600)  # longer than the lease, and than its reclaiming takes
    job = site.converted(plain(words="long"))
    assert (job["state"], job["attempt"]) == ("complete", 1)
    assert [attempt.outcome for attempt in site.attempts(job["id"])] == ["complete"]


def test_in_fail_fast_mode_a_job_fails_at_once_and_its_retry_succeeds_later(site: RunningSite) -> None:  # C11
    site.gateway.fault(status=502)
    others = [site.upload(plain(words=f"fast {nth}")).json()["id"] for nth in range(12)]
    site.start_worker(**BREAKING, CIRCUIT_MODE="fail_fast", CIRCUIT_COOLDOWN_MS="1500")
    until(lambda: site.breaker() == "open")
    job = site.until(site.upload(plain(words="fails at once")).json()["id"])
    assert (job["state"], job["error_code"]) == ("failed", "GW_5XX")
    assert job["error_message"] == "Converter service is having an issue. Use Retry later."  # C8
    assert job["attempt"] <= 1
    site.gateway.http.delete("/faults")
    until(lambda: site.breaker() != "open")

    def retried() -> bool:
        """While the breaker lets only a few calls through to try it, the others still fail at once."""
        assert site.http.post(f"/api/jobs/{job['id']}/retry").status_code == 200
        return bool(site.until(job["id"])["state"] == "complete")

    until(retried)

    def closed() -> bool:
        """Each file that comes is a trial, as long as there are any: the next test begins with a closed breaker."""
        site.converted(plain(words="a trial"))
        return site.breaker() == "closed"

    until(closed)
    site.cancel(others)  # their retries wait until the budget has recovered


def test_a_worker_that_dies_is_replaced_and_the_xml_is_made_once(site: RunningSite) -> None:  # C6
    worker = site.start_worker(WORKER_LEASE_TTL_SEC="2")
    site.gateway.fault(hang=True)
    job_id = under_way(site, "its worker dies")
    worker.kill()
    site.gateway.http.delete("/faults")
    site.start_worker()
    job = site.until(job_id)
    assert (job["state"], job["attempt"]) == ("complete", 2)  # the crash counts, and the count goes on
    assert [path.name for path in site.results.glob(f"{job_id}*")] == [f"{job_id}.xml"]


def test_a_file_that_takes_three_workers_along_is_given_up(site: RunningSite) -> None:  # C12
    """By default; its fourth worker does not touch it, and its owner may try again."""
    site.gateway.fault(hang=True)
    job_id = site.upload(plain(words="deadly")).json()["id"]
    for crashes in range(3):
        worker = site.start_worker(WORKER_LEASE_TTL_SEC="2")
        job = next(job for job in site.looks(job_id) if job["attempt"] > crashes)
        assert job["state"] == "processing"
        worker.kill()
    site.gateway.http.delete("/faults")
    site.start_worker()
    job = site.until(job_id)
    assert (job["state"], job["attempt"], job["error_code"]) == ("failed", 3, "UNKNOWN")
    assert [attempt.outcome for attempt in site.attempts(job_id)] == ["reclaimed"] * 3
    letters = site.command("dead", "list", "--app", "systems.converter.app:app", "--code", "WORKER_LOST")
    assert job_id[:8] in letters
    assert not list(site.results.glob(f"{job_id}*"))
    assert site.http.post(f"/api/jobs/{job_id}/retry").status_code == 200
    assert site.until(job_id)["state"] == "complete"


def test_a_worker_that_is_told_to_stop_finishes_what_it_does(site: RunningSite) -> None:
    worker = site.start_worker()
    site.gateway.fault(latency_ms=700)
    job_id = under_way(site, "finishes")
    time.sleep(0.2)  # the store knows of the claim before the worker does, which would give it back unbegun
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    job = site.job(job_id)
    assert (job["state"], job["attempt"]) == ("complete", 1)


def test_a_worker_that_cannot_finish_gives_the_job_back(site: RunningSite) -> None:
    worker = site.start_worker(HOLDFAST_GRACE="300ms")
    site.gateway.fault(hang=True)
    job_id = under_way(site, "given back")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    job = site.job(job_id)
    assert (job["state"], job["attempt"]) == ("queued", 0)  # it was no failure, and is not counted
    assert [
        name for name in site.left_over() if job_id in name
    ] == []  # those of killed workers stay for the sweep
    site.gateway.http.delete("/faults")
    site.start_worker()
    assert site.until(job_id)["state"] == "complete"


def test_a_frozen_worker_loses_its_job_and_its_late_result_changes_nothing(site: RunningSite) -> None:  # C6
    frozen = site.start_worker(WORKER_LEASE_TTL_SEC="2")
    site.gateway.fault(latency_ms=2000)
    job_id = under_way(site, "frozen")
    frozen.send_signal(signal.SIGSTOP)
    site.gateway.http.delete("/faults")  # for whoever comes next; the frozen one's answer is on its way
    site.start_worker()
    job = site.until(job_id)
    assert (job["state"], job["attempt"]) == ("complete", 2)
    [xml] = site.results.glob(f"{job_id}*")
    before = (xml.stat().st_ino, xml.read_bytes())
    frozen.send_signal(signal.SIGCONT)
    frozen.terminate()
    frozen.wait(10)
    assert (xml.stat().st_ino, xml.read_bytes()) == before
    assert site.job(job_id) == job
    assert [path.name for path in site.results.glob(f"*{job_id}*")] == [xml.name]
