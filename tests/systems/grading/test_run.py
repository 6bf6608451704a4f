"""`make run SYSTEM=grading`: all of it from nothing, with a broker of its own; and what it says when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.conftest import installed
from tests.services import keeper, zygote
from tests.services.rabbitmq import RabbitMq

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "systems.grading.run", "--port", "0", "--data"]


@pytest.mark.parametrize(
    ("environment", "word"),
    [({"PATH": "/nonexistent"}, "rabbitmq-server"), ({"BROKER_URL": "ampq://localhost"}, "BROKER_URL")],
    ids=["no broker installed", "a misspelt address"],
)
def test_what_is_missing_is_told_in_one_line(environment: dict[str, str], word: str, tmp_path: Path) -> None:
    done = zygote.run([*COMMAND, str(tmp_path / "data")], cwd=ROOT, env=os.environ | environment)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert word in done.stderr


@pytest.mark.slow
@pytest.mark.service
def test_it_starts_with_a_broker_of_its_own_grades_and_ends_with_everything(
    tmp_path: Path,
) -> None:
    installed(RabbitMq).close()  # never started: it is only asked for, and without one this is skipped
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path / "data")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    keeper.watch(process.pid)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("ready: "))
        with httpx2.Client(base_url=line.split()[1], timeout=20) as http:
            made = http.post("/submissions", json={"skill": "writing", "text": "It rains."}).json()
            events = http.get(f"/submissions/{made['submissionId']}/events").text
        assert '"status": "COMPLETED"' in events
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert time.monotonic() - began < 10
    finally:
        if process.poll() is None:
            keeper.kill_tree(process.pid)
        keeper.forget(process.pid)
        if process.stdout is not None:
            process.stdout.close()
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()
    assert left == []
