"""kill -9 of workers, the gateway and the server while files are converted: all end, each with one XML (C12)."""

from __future__ import annotations

import random
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from holdfast import Holdfast, JobRow, State
from systems.converter.samples import plain
from tests.systems.converter.gateways import RunningGateway
from tests.systems.converter.sites import RunningSite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PATIENCE = 200.0


class Campaign:
    """Uploads files to a site whose processes are killed, each after some more files are done."""

    def __init__(self, folder: Path, url: str, files: int, *, seed: int, **knobs: str) -> None:
        self._folder, self._url, self._knobs = folder, url, knobs
        self.pdfs = [plain(words=f"Campaign {seed}, file {nth}.") for nth in range(files)]
        self.ids: dict[int, str] = {}
        self._chance = random.Random(seed)
        self._app = Holdfast(url)
        self.killed: list[str] = []

    def run(self, *, kills: int, victims: list[str]) -> None:
        with ExitStack() as stack:
            stack.callback(self._app.runtime.portal.close)
            self._gateway = RunningGateway(self._folder, "--size", "2").__enter__()
            stack.callback(self._end_gateway)
            self._site = stack.enter_context(
                RunningSite(self._folder, self._url, self._gateway, workers=2, **self._knobs)
            )
            cookies = dict(self._site.http.get("/").cookies)
            uploading = threading.Thread(target=self._upload, args=(self._site.url, cookies))
            uploading.start()
            for nth in range(1, kills + 1):
                self._wait_for(len(self.pdfs) * nth // (kills + 2))
                self._kill(self._chance.choice(victims))
            uploading.join(PATIENCE)
            assert not uploading.is_alive(), "not all was uploaded"
            self._wait_for(len(self.pdfs))
            self.results = {path.stem: path.read_bytes() for path in self._site.results.glob("*.xml")}
            self.undisturbed = [self._converted_in_peace(pdf) for pdf in self.pdfs]
            self.rows: list[JobRow] = [
                self._app.sync.jobs.get(self.ids[nth]) for nth in range(len(self.pdfs))
            ]

    def _converted_in_peace(self, pdf: bytes) -> bytes:
        """Both stores have the same files, and the gateway knows nothing of stores."""
        if pdf not in _in_peace:
            _in_peace[pdf] = self._gateway.convert(pdf).content
        return _in_peace[pdf]

    def _upload(self, url: str, cookies: dict[str, str]) -> None:
        """As a patient person does: an upload whose answer did not come is sent again. Its twin is found."""
        until = time.monotonic() + PATIENCE
        with httpx2.Client(base_url=url, cookies=cookies, timeout=20, verify=False) as browser:
            for nth, pdf in enumerate(self.pdfs):
                while nth not in self.ids and time.monotonic() < until:
                    try:
                        answer = browser.post("/api/upload", files={"file": (f"{nth}.pdf", pdf)})
                        self.ids[nth] = answer.raise_for_status().json()["id"]
                    except httpx2.HTTPError:
                        time.sleep(0.1)

    def _kill(self, victim: str) -> None:
        self.killed.append(victim)
        if victim == "server":
            self._site.kill_web()
            self._site.start_web()
        elif victim == "gateway":
            port = str(self._gateway.port)
            self._gateway.process.kill()
            self._end_gateway()
            self._gateway = RunningGateway(self._folder, "--size", "2", "--port", port).__enter__()
        else:
            worker = self._chance.choice(self._site.workers)
            worker.kill()
            worker.wait()
            self._site.workers.remove(worker)
            self._site.start_worker()

    def _end_gateway(self) -> None:
        """Of the one that runs now: it is another after each kill."""
        self._gateway.__exit__()

    def _wait_for(self, ended: int) -> None:
        until = time.monotonic() + PATIENCE
        while self._app.sync.jobs.count(task="convert", state=["complete", "failed"]) < ended:
            assert time.monotonic() < until, f"{ended} files did not end; killed so far: {self.killed}"
            time.sleep(0.1)


_in_peace: dict[bytes, bytes] = {}  #: XML of a file that was converted while nobody was killed

KNOBS = {
    "RETRY_MAX_ATTEMPTS": "100",
    "RETRY_BASE_DELAY_MS": "100",
    "WORKER_LEASE_TTL_SEC": "2",
    "WORKER_CONCURRENCY": "4",
    # While the gateway starts again the breaker holds the files; without it their retries would use up the retry budget.
    "CIRCUIT_WINDOW": "20",
    "CIRCUIT_FAIL_THRESHOLD": "0.5",
    "CIRCUIT_COOLDOWN_MS": "500",
}


def test_two_hundred_files_survive_any_kills_with_one_xml_each_as_if_undisturbed(
    database_url: str, tmp_path: Path
) -> None:  # C6 C12
    campaign = Campaign(tmp_path, database_url, 200, seed=7, WORKER_MAX_CRASHES="20", **KNOBS)
    campaign.run(kills=7, victims=["worker", "worker", "gateway", "server"])
    assert set(campaign.killed) == {"worker", "gateway", "server"}
    rows = campaign.rows
    assert len({row.id for row in rows}) == 200
    assert {row.state for row in rows} == {State.COMPLETE}
    assert set(campaign.results) == {row.id for row in rows}
    for nth, row in enumerate(rows):
        assert campaign.results[row.id] == campaign.undisturbed[nth]


def test_by_default_a_file_is_given_up_only_after_its_counted_crashes(
    sqlite_url: str, tmp_path: Path
) -> None:  # C12
    campaign = Campaign(tmp_path, sqlite_url, 60, seed=3, **KNOBS)
    campaign.run(kills=6, victims=["worker"])
    for row in campaign.rows:
        if row.state is not State.COMPLETE:
            assert (row.state, row.error_code, row.crashes) == (State.FAILED, "WORKER_LOST", 3)
            assert row.id not in campaign.results
    assert len(campaign.results) >= 50
