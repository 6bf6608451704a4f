"""`make run SYSTEM=grading`: all of it from nothing, with a broker of its own; and what it says when it cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from devservices import keeper
from devservices.rabbitmq import RabbitMq
from tests.commands import run_command
from tests.conftest import installed

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "systems.grading.run", "--port", "0", "--data"]


@contextmanager
def running(data: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Start all of it, and give the process and its lines by their first word."""
    command = [*COMMAND, str(data)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    keeper.watch(process.pid)
    try:
        assert process.stdout is not None
        said = dict[str, str]()
        for line in process.stdout:
            name, _, words = line.strip().partition(" ")
            said[name] = words.strip()
            if line.startswith("  to stop"):
                break
        yield process, said
    finally:
        if process.poll() is None:
            keeper.kill_tree(process.pid)
        keeper.forget(process.pid)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize(
    ("environment", "word"),
    [({"PATH": "/nonexistent"}, "rabbitmq-server"), ({"BROKER_URL": "ampq://localhost"}, "BROKER_URL")],
    ids=["no broker installed", "a misspelt address"],
)
def test_what_is_missing_is_told_in_one_line(environment: dict[str, str], word: str, tmp_path: Path) -> None:
    done = run_command([*COMMAND, str(tmp_path / "data")], cwd=ROOT, env=os.environ | environment)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert word in done.stderr


def grade(http: httpx2.Client) -> str:
    """The events of a submission, to its end."""
    made = http.post("/submissions", json={"skill": "writing", "text": "It rains."}).json()
    with http.stream("GET", f"/submissions/{made['submissionId']}/events", timeout=60) as stream:
        return "".join(stream.iter_text())


def processes_of(program: str, folder: Path) -> list[int]:
    found = subprocess.run(["pgrep", "-f", f"{program}.*{folder}"], capture_output=True, text=True).stdout
    return [int(pid) for pid in found.split()]


def check_commands(exports: str) -> None:
    """The commands that are printed for operators find the broker, the database and the ledger."""
    python = f"{sys.executable} -m holdfast"
    for command, words in (
        ("breakers list --json", '"dependency":"provider"'),
        ("grading dlq list", "[]"),
        ("grading alarms", "[]"),
    ):
        done = subprocess.run(
            ["sh", "-c", f"{exports} && {python} {command}"], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert words in done.stdout


def check_metrics(addresses: list[str]) -> None:
    """Of the engine, the callbacks and the worker, in this order."""
    engine, callbacks, worker = [httpx2.get(address).text for address in addresses]
    assert 'breaker_state{dependency="provider"} 0.0' in engine
    assert 'jobs_completed_total{queue="grading",task="grade"} 2.0' in callbacks
    assert 'retries_scheduled_total{type="automatic"} 0.0' in callbacks
    assert 'dependency_latency_seconds_count{dependency="provider"} ' in worker
    assert "# TYPE grading_alarms gauge" in worker


@pytest.mark.slow
@pytest.mark.service
def test_it_starts_with_a_broker_of_its_own_replaces_that_and_ends_with_everything(
    tmp_path: Path,
) -> None:  # G8
    installed(RabbitMq).close()  # never started: it is only asked for, and without one this is skipped
    with running(tmp_path / "data") as (process, said):
        with httpx2.Client(base_url=said["ready:"], timeout=20) as http:
            assert "COMPLETED" in grade(http)
            [lost] = processes_of("beam.smp", tmp_path)
            os.kill(lost, signal.SIGKILL)
            assert "COMPLETED" in grade(http)  # by another broker, at the same address, with the same data
            [found] = processes_of("beam.smp", tmp_path)
            assert found != lost
        check_commands(said["commands"])
        check_metrics(said["metrics"].split())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout.split()
    assert left == []
