"""`make run`: one process tree that starts, serves, heals and stops."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from systems.converter.samples import article
from tests.commands import run_command
from tests.systems.converter.gateways import ROOT, RunningGateway, children_of, wait_for_ends


class Run:
    def __init__(self, process: subprocess.Popen[str], said: list[str]) -> None:
        self.process, self.said = process, said
        self.url = said[0].split()[1]

    def tree(self) -> list[int]:
        found: list[int] = []
        waiting = [self.process.pid]
        while waiting:
            below = children_of(waiting.pop())
            found += below
            waiting += below
        return found

    def child(self, module: str) -> int:
        [pid] = [
            pid
            for pid in children_of(self.process.pid)
            if module in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        ]
        return pid


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept from test to test: what is started again finds what it has left."""
    return tmp_path_factory.mktemp("data")


@contextlib.contextmanager
def running(data: Path, *words: str, **variables: str) -> Iterator[Run]:
    command = [sys.executable, "-m", "systems.converter.run", "--port", "0", "--data", str(data), *words]
    environment = os.environ | {"DATABASE_URL": "", "GATEWAY_URL": ""} | variables
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said: list[str] = []
            while not said or "Ctrl-C" not in said[-1]:
                line = process.stdout.readline()
                assert line, "it ended before it was ready"
                said.append(line)
            yield Run(process, said)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(20)


def convert(run: Run) -> str:
    with httpx2.Client(base_url=run.url, timeout=20, verify=False) as browser:
        answer = browser.post("/api/upload", files={"file": ("a.pdf", article())}, data={"mapping": "jats"})
        job_id = answer.raise_for_status().json()["id"]
        until = time.monotonic() + 20
        while (answer := browser.get(f"/api/jobs/{job_id}/download")).status_code == 409:
            assert time.monotonic() < until, "it was not converted"
            time.sleep(0.05)
        assert answer.status_code == 200, answer.text
        return answer.text


def assert_explained(run: Run, data: Path) -> None:
    """It has said where the data lies, and a first upload as it stands there is taken."""
    [place] = [line for line in run.said if line.startswith("  the data ")]
    assert f" {data}:" in place
    [words] = [shlex.split(line.partition("the API")[2]) for line in run.said if " the API " in line]
    assert words[:5] == ["curl", "-b", str(data / "cookies"), "-c", str(data / "cookies")]
    done = subprocess.run(["curl", "--silent", *words[1:]], capture_output=True, text=True, check=True)
    job = json.loads(done.stdout)
    [listing] = [line.split() for line in run.said if line.rstrip().endswith("/api/jobs")]
    done = subprocess.run(["curl", "--silent", *listing[1:]], capture_output=True, text=True, check=True)
    assert [seen["id"] for seen in json.loads(done.stdout)["jobs"]] == [job["id"]]  # the jar is who you are


def assert_an_outage_can_be_made(run: Run) -> None:
    """By the line as it stands there."""
    [words] = [shlex.split(line.partition("an outage")[2]) for line in run.said if " an outage " in line]
    subprocess.run(["curl", "--silent", "--fail", *words[1:]], check=True, capture_output=True)
    gateway = words[-1].removesuffix("/faults")
    assert httpx2.post(f"{gateway}/convert?mapping=text", content=article()).status_code == 502
    httpx2.delete(words[-1]).raise_for_status()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_database_and_a_gateway_of_ones_own_are_used(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:  # C11
    url = request.getfixturevalue({"sqlite": "sqlite_url", "postgres": "empty_postgres"}[store])
    data = tmp_path / "data"
    with (
        RunningGateway(tmp_path, "--size", "1") as gateway,
        running(data, DATABASE_URL=url, GATEWAY_URL=gateway.url) as run,
    ):
        assert "What It Costs to Lose No Job" in convert(run)
        parts = [Path(f"/proc/{pid}/cmdline").read_text() for pid in run.tree()]
        assert not [part for part in parts if "systems.converter.gateway" in part]
    assert not (data / "converter.db").exists()
    assert not [line for line in run.said if " an outage " in line]  # it is not ours to break
    [place] = [line for line in run.said if line.startswith("  the data ")]
    assert place.endswith("the jobs are in DATABASE_URL\n")
    assert "password" not in "".join(run.said)


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_ctrl_c_stops_all_of_it_within_3_seconds(store: str, tmp_path: Path) -> None:
    with running(tmp_path / "data", "--store", store) as run:
        tree, began = run.tree(), time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(10) == 0
        assert time.monotonic() - began < 3
        assert wait_for_ends(tree, 1)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_one_command_starts_it_and_ctrl_c_stops_all_of_it(store: str, data: Path) -> None:
    with running(data / store, "--store", store) as run:
        assert re.fullmatch(r"ready: http://127\.0\.0\.1:\d+\n", run.said[0])
        assert_explained(run, data / store)
        assert "What It Costs to Lose No Job" in convert(run)
        assert_an_outage_can_be_made(run)
        [told] = [line for line in run.said if line.startswith("  metrics")]
        assert "attempts_succeeded_total{attempt=" in httpx2.get(told.split()[2]).text  # the worker's own
        tree = run.tree()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(60) == 0
        assert wait_for_ends(tree, 20)
    if store == "postgres":
        with running(
            data / store, "--store", store
        ) as run:  # on the same data; of SQLite's, by the next test
            assert httpx2.get(f"{run.url}/healthz", verify=False).status_code == 200


def holdfast(run: Run, *words: str) -> str:
    """Run a command with the environment of the worker; return what it prints."""
    lines = Path(f"/proc/{run.child('holdfast')}/environ").read_text().split("\0")
    environment = dict(line.split("=", 1) for line in lines if line)
    command = [sys.executable, "-m", "holdfast", *words, "--url", environment["DATABASE_URL"], "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_private_postgresql_has_a_key_for_webhooks_that_is_kept(tmp_path: Path) -> None:
    variables = {"HOLDFAST_SECRET": "", "HOLDFAST_OUTBOUND_ALLOW": "127.0.0.1"}
    file = tmp_path / "postgres" / "holdfast.secret"
    with running(tmp_path, "--store", "postgres", **variables) as run:
        made = json.loads(
            holdfast(run, "webhooks", "create", "http://127.0.0.1:18080/", "--event", "cancelled")
        )
        assert file.stat().st_mode & 0o777 == 0o600
    with running(tmp_path, "--store", "postgres", **variables) as run:
        rotated = json.loads(
            holdfast(run, "webhooks", "rotate", made["id"])
        )  # made with the same key, or refused
        assert rotated["secret"] != made["secret"]


@pytest.mark.slow
def test_a_part_that_is_lost_comes_back_and_all_end_with_their_parent(data: Path) -> None:
    with running(data / "sqlite") as run:
        for module in ("systems.converter.gateway", "holdfast", "systems.converter.web"):
            os.kill(run.child(module), signal.SIGKILL)
        until = time.monotonic() + 40
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if httpx2.get(f"{run.url}/healthz", verify=False).status_code == 200:
                    break
            assert time.monotonic() < until, "the web app did not come back"
            time.sleep(0.1)
        assert "What It Costs to Lose No Job" in convert(run)
        tree = run.tree()
        run.process.kill()
        assert wait_for_ends(tree, 10)


def test_a_port_that_is_taken_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "systems.converter.run", "--port", port, "--data", str(tmp_path)]
        by_make = os.environ | {"MAKELEVEL": "1"}
        done = subprocess.run(command, cwd=ROOT, env=by_make, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"; with make: PORT={int(port) + 1}\n" in done.stderr
    assert done.stdout == ""
    assert f"web: cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "systems.converter.web", "--port", "0"]
    done = run_command(command, cwd=ROOT, env=os.environ | {"CIRCUIT_MODE": "maybe"})
    assert done.returncode == 2
    assert done.stderr == "web: CIRCUIT_MODE is 'maybe'; it is one of hold, fail_fast\n"
