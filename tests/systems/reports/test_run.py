"""`make run SYSTEM=reports`: all of it from nothing, on files and with the stand-in model; and the figures of it (P6)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from devservices import keeper
from tests.commands import run_command

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "systems.reports.run", "--port", "0", "--data"]


@contextmanager
def running(data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    environment = os.environ | {"DATABASE_URL": "", "MODEL_URL": ""}
    process = subprocess.Popen(
        [*COMMAND, str(data)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    )
    keeper.watch(process.pid)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("ready: "))
        yield process, line.split()[1]
    finally:
        if process.poll() is None:
            keeper.kill_tree(process.pid)
        keeper.forget(process.pid)
        if process.stdout is not None:
            process.stdout.close()


def until_ended(http: httpx2.Client, wanted: int, seconds: float = 30) -> list[dict[str, Any]]:
    end = time.monotonic() + seconds
    while True:
        found = list(http.get("/reports").json()["reports"])
        ended = [one for one in found if one["status"] in ("succeeded", "failed")]
        if len(ended) >= wanted or time.monotonic() > end:
            return ended
        time.sleep(0.1)


@pytest.mark.slow
def test_one_command_makes_reports_of_documents_asked_for_and_dropped_in_the_inbox(
    tmp_path: Path,
) -> None:  # P1 P6 P7
    data = tmp_path / "data"
    with running(data) as (process, url):
        key = (data / "operator.key").read_text()
        assert (data / "operator.key").stat().st_mode & 0o077 == 0
        headers = {"authorization": f"Bearer {key}"}
        with httpx2.Client(base_url=url, timeout=20, headers=headers, verify=False) as http:
            asked = http.post("/reports", json={"source": "invoice-1.txt", "schema": "invoice"})
            assert asked.status_code in (201, 202)
            shutil.copy(data / "documents" / "invoice-2.txt", data / "documents" / "inbox")
            ended = until_ended(http, 2)
            assert [one["status"] for one in ended] == ["succeeded"] * 2
            report = http.get(f"/reports/{ended[0]['id']}/report").json()
            assert report["invoice_number"].startswith("A-")
        assert process.stdout is not None
        page = next(line for line in process.stdout if "the page" in line).split()[-1]
        with httpx2.Client(base_url=url) as browser:
            assert browser.post("/session", json={"key": page.rpartition("#key=")[2]}).status_code == 200
            assert browser.get("/session").json()["caller"] == {"owner": "user:demo", "role": "owner"}
        environment = os.environ | {"DATABASE_URL": f"sqlite:///{data / 'reports.db'}"}
        holdfast = str(Path(sys.executable).parent / "holdfast")
        told = subprocess.run(
            [holdfast, "reports", "stats", "--json"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        stats = json.loads(told.stdout)
        assert (stats["reports"], stats["succeeded"], stats["failed"]) == (2, 2, 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    left = subprocess.run(["pgrep", "-f", str(data)], capture_output=True, text=True).stdout.split()
    assert left == []


def test_statistics_without_a_database_are_told_in_one_line(tmp_path: Path) -> None:  # P6
    environment = os.environ | {"DATABASE_URL": f"sqlite:///{tmp_path / 'none.db'}"}
    command = [sys.executable, "-m", "holdfast", "reports", "stats"]
    done = run_command(command, cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    said = "reports: there is no reports database here; set DATABASE_URL to the reports database\n"
    assert done.stderr == said
    assert not (tmp_path / "none.db").exists()
