"""`make run SYSTEM=screenshots`: one process tree that starts, serves and stops; one line where it cannot."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from systems.screenshots.browser.tree import family
from tests.systems.screenshots.places import alive, until

ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "systems.screenshots.run"]


@contextlib.contextmanager
def running(data: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    command = [*COMMAND, "--port", "0", "--data", str(data), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            while not said or "Ctrl-C" not in said[-1]:
                line = process.stdout.readline()
                assert line, "it ended before it was ready"
                said.append(line)
            yield process, said
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(20)


@pytest.mark.slow
def test_one_command_takes_a_picture_of_a_sample_page_and_ctrl_c_stops_all_of_it(
    tmp_path: Path, program: str
) -> None:  # S1
    data = tmp_path / "data"
    with running(data) as (process, said):
        url = said[0].split()[1]
        key = (data / "demo.key").read_text()
        assert (data / "demo.key").stat().st_mode & 0o077 == 0
        body = re.search(r"-d '(\{.*?\})'", "".join(said))
        assert body is not None
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=f"{url}/api/v1", timeout=20, headers=headers) as http:
            job_id = http.post("/screenshots", json=json.loads(body[1])).raise_for_status().json()["jobId"]
            assert until(lambda: http.get(f"/screenshots/{job_id}").json()["status"] == "COMPLETED", 30)
            image = http.get(f"/screenshots/{job_id}/image")
            assert image.content.startswith(b"\x89PNG")
            assert http.get("/credits").json()["availableCredits"] == 99
        redis = shutil.which("redis-server") is not None
        assert any(f"handed out by {'Redis' if redis else 'the database'}" in line for line in said)
        tree = [pid for pid in family(process.pid) if pid != process.pid]
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 4
        assert until(lambda: not any(alive(pid) for pid in tree), 10)


def test_without_chromium_it_says_in_one_line_how_to_get_it(tmp_path: Path) -> None:
    environment = os.environ | {"SCREENSHOTS_CHROMIUM": "no-such-program"}
    done = subprocess.run(
        [*COMMAND, "--data", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("run: no Chromium is found; install it (apt-get install chromium)")
    assert done.stderr.count("\n") == 1
