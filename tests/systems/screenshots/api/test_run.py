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
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from systems.screenshots.browser.chromium import find_program
from systems.screenshots.browser.processes import family
from systems.screenshots.run.chromium import ensure_chromium
from tests.commands import run_command
from tests.systems.screenshots.places import alive, until

ROOT = Path(__file__).parents[4]
#: As Debian's is called, with a note of how; it "installs" a Chromium where it is told to.
APT_GET = """#!/bin/sh
echo "$@" >> "$APT_CALLS"
case "$*" in *"install"*"chromium"*) [ -z "$APT_BRINGS" ] || { printf '#!/bin/sh\\n' > "$APT_BRINGS"; /bin/chmod +x "$APT_BRINGS"; };; esac
"""
COMMAND = [sys.executable, "-m", "systems.screenshots.run"]


@contextlib.contextmanager
def running(data: Path, *words: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    command = [*COMMAND, "--port", "0", "--data", str(data), *words]
    environment = os.environ | variables
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
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
    tmp_path: Path, chromium: str
) -> None:  # S1 S7
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
        page = re.search(r"the page   open (\S+)/#key=(\S+)", "".join(said))
        assert page is not None
        with httpx2.Client(base_url=page[1]) as browser:
            assert browser.post("/session", json={"key": page[2]}).status_code == 200
            assert browser.get("/session").json()["caller"]["owner"] == "user:demo"
        [told] = [line for line in said if line.startswith("  metrics")]
        worker = told.split()[2]  # what it has run, only it has counted
        first = 'attempts_succeeded_total{attempt="1",task="SCREENSHOT"} 1.0'
        assert until(lambda: first in httpx2.get(worker).text)
        redis = shutil.which("redis-server") is not None
        assert not redis or (data / "redis" / "url").stat().st_mode & 0o077 == 0
        assert any(f"dispatched by {'Redis' if redis else 'the database'}" in line for line in said)
        tree = [pid for pid in family(process.pid) if pid != process.pid]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert until(lambda: not any(alive(pid) for pid in tree))


@pytest.mark.slow
def test_a_database_of_ones_own_is_used(tmp_path: Path, chromium: str, empty_postgres: str) -> None:
    with running(tmp_path, "--no-redis", DATABASE_URL=empty_postgres) as (_, said):
        headers = {"authorization": f"Bearer {(tmp_path / 'demo.key').read_text()}"}
        answer = httpx2.get(f"{said[0].split()[1]}/api/v1/credits", headers=headers)
        assert answer.json()["availableCredits"] == 100
    assert not (tmp_path / "screenshots.db").exists()
    [place] = [line for line in said if line.startswith("  the data ")]
    assert place.endswith("the jobs are in DATABASE_URL\n")


def test_without_chromium_it_says_in_one_line_how_to_get_it(tmp_path: Path) -> None:
    environment = os.environ | {"SCREENSHOTS_CHROMIUM": "no-such-program"}
    done = run_command([*COMMAND, "--data", str(tmp_path)], cwd=ROOT, env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "run: no Chromium is found; install it (apt-get install chromium-headless-shell)"
    )
    assert done.stderr.count("\n") == 1


class Machine:
    """One without Chromium, with an apt-get of ours."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.programs, self._calls = folder / "bin", folder / "calls"
        self.programs.mkdir()
        self.chromium = self.programs / "chromium-headless-shell"
        patch.setenv("PATH", str(self.programs))
        patch.setenv("APT_CALLS", str(self._calls))
        patch.setenv("APT_BRINGS", str(self.chromium))
        patch.delenv("SCREENSHOTS_CHROMIUM", raising=False)

    def give_apt_get(self) -> None:
        script = self.programs / "apt-get"
        script.write_text(APT_GET)
        script.chmod(0o755)

    @property
    def calls(self) -> list[list[str]]:
        return [line.split() for line in self._calls.read_text().splitlines()] if self._calls.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def system_tool() -> ModuleType:
    loader = SourceFileLoader("system_tool", str(ROOT / "tools" / "system"))
    spec = spec_from_loader("system_tool", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may install; the next tests are of everybody else")
def test_root_with_apt_get_gets_debians_chromium_and_is_told_so_in_one_line(
    machine: Machine, capfd: pytest.CaptureFixture[str]
) -> None:  # S1
    machine.give_apt_get()
    ensure_chromium(os.environ)
    assert find_program(os.environ) == str(machine.chromium)
    assert [call[-1] for call in machine.calls] == ["update", "chromium-headless-shell"]
    assert "install" in machine.calls[1]
    assert capfd.readouterr().err == "system: installing chromium-headless-shell\n"
    ensure_chromium(os.environ)  # it is there now
    assert len(machine.calls) == 2


def test_who_is_not_root_installs_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:  # S1
    machine.give_apt_get()
    tool = system_tool()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["system", "Chromium"])
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert (ended.value.code, machine.calls) == (1, [])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(SystemExit) as ended:
        tool.main()
    assert (ended.value.code, len(machine.calls)) == (0, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_where_none_can_be_installed_it_says_how(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:  # S1
    if fails:  # apt-get is there, and brings nothing
        machine.give_apt_get()
        monkeypatch.setenv("APT_BRINGS", "")
    command = [*COMMAND, "--data", str(tmp_path / "data")]
    done = run_command(command, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    said = done.stderr.splitlines()
    assert said.pop().startswith(
        "run: no Chromium is found; install it (apt-get install chromium-headless-shell)"
    )
    assert said == (["system: installing chromium-headless-shell"] if machine.calls else [])
    assert not (tmp_path / "data").exists()
