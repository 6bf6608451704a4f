"""Real worker processes, started and stopped from the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_command
from tests.e2e.faults.world import has_taken

APP = """
import asyncio, os, time
from pathlib import Path
from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db", reclaim_every="200ms")

app.topic("orders", to="memory://")

@app.task
async def hello(name: str) -> str:
    return f"hello {name}"

@app.task
async def slow(seconds: float) -> str:
    Path("slow.started").touch()
    await asyncio.sleep(seconds)
    return "slept"

@app.task
def blocking(seconds: float) -> None:
    Path("blocking.started").touch()
    time.sleep(seconds)

@app.task
async def pid() -> int:
    return os.getpid()
"""
pytestmark = pytest.mark.slow
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}


def eventually(condition: Callable[[], Any], what: str, seconds: float = 20) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    pytest.fail(f"waited {seconds} s for {what}")


class Shop:
    """A folder with an app, and the processes started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []
        (folder / "shop.py").write_text(APP)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "out.log", "ab") as out, open(self.folder / "err.log", "ab") as err:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *command],
                cwd=self.folder,
                env={**ENVIRONMENT, "HOLDFAST_LOG": "json", **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.started.append(process)
        return process

    def worker(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        process = self.start("worker", "shop:app", *options, **environment)
        eventually(lambda: self.told("worker.started"), "the worker to start")
        return process

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return run_command([sys.executable, "-m", "holdfast", *command], cwd=self.folder, env=ENVIRONMENT)

    def enqueue(self, call: str) -> str:
        code = f"from shop import *; print({call}.id)"
        done = run_command([sys.executable, "-c", code], cwd=self.folder, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.run("jobs", "show", job_id, "--app", "shop:app", "--json").stdout
        )
        return found

    def told(self, event: str) -> list[dict[str, Any]]:
        log = self.folder / "err.log"
        lines = log.read_text().splitlines() if log.exists() else []
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line for line in found if line["event"] == event]

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.close()


def ended(process: "subprocess.Popen[bytes]", seconds: float = 20) -> int:
    return process.wait(seconds)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- one process ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_jobs_and_stops_when_told(shop: Shop, number: signal.Signals) -> None:  # E31 E67
    worker = shop.worker("--concurrency", "2", "--queues", "default,other")
    job_id = shop.enqueue("hello.enqueue_sync('you')")
    eventually(lambda: shop.job(job_id)["state"] == "complete", "the job to complete")
    worker.send_signal(number)
    assert ended(worker) == 0
    assert shop.job(job_id)["result"] == "hello you"
    assert shop.told("worker.stopped")
    assert "Traceback" not in (shop.folder / "err.log").read_text()


def test_what_runs_may_finish_within_the_grace(shop: Shop) -> None:  # E31
    job_id = shop.enqueue("slow.enqueue_sync(1.0)")
    worker = shop.worker()
    eventually((shop.folder / "slow.started").exists, "the job to start")
    worker.terminate()
    assert ended(worker) == 0
    assert shop.job(job_id)["state"] == "complete"


@pytest.mark.parametrize("task", ["slow", "blocking"])
def test_a_second_signal_ends_at_once_and_gives_the_job_back(shop: Shop, task: str) -> None:  # E31 E9
    job_id = shop.enqueue(f"{task}.enqueue_sync(50)")
    worker = shop.worker()
    eventually((shop.folder / f"{task}.started").exists, "the job to start")
    worker.terminate()
    eventually(lambda: has_taken(worker.pid, signal.SIGTERM), "the first signal to arrive")
    time.sleep(0.3)
    assert worker.poll() is None  # it waits for the job
    worker.terminate()
    assert ended(worker) == 0  # long before its grace is over
    job = shop.job(job_id)
    assert (job["state"], job["attempt"]) == ("queued", 0)


def test_a_worker_can_end_by_itself_when_nothing_is_left(shop: Shop) -> None:
    job_id = shop.enqueue("hello.enqueue_sync('you')")
    assert ended(shop.worker("--until-idle")) == 0
    assert shop.job(job_id)["state"] == "complete"


def test_up_says_how_to_enqueue_and_works(shop: Shop) -> None:
    up = shop.start("up", "shop:app")
    eventually(lambda: shop.told("worker.started"), "the worker to start")
    assert [line["queues"] for line in shop.told("worker.started")] == ["all"]
    code = "from shop import *; app.sync.outbox.publish('orders', 1)"
    assert run_command([sys.executable, "-c", code], cwd=shop.folder, env=ENVIRONMENT).returncode == 0
    eventually(lambda: "published" in shop.run("outbox", "list", "--app", "shop:app").stdout, "its relay")
    up.terminate()
    assert ended(up) == 0
    in_python, in_shell, listed = (shop.folder / "out.log").read_text().splitlines()
    assert "from shop import hello; hello.enqueue_sync(name=…)" in in_python
    assert "holdfast enqueue hello name=… --app shop:app" in in_shell
    assert "holdfast jobs list --app shop:app" in listed


def test_a_scheduler_stops_when_told(shop: Shop) -> None:  # E67
    scheduler = shop.start("scheduler", "shop:app")
    eventually(lambda: shop.told("maintenance.started"), "the scheduler to start")
    scheduler.terminate()
    assert ended(scheduler) == 0
    assert shop.told("maintenance.stopped")


# -- several ----------------------------------------------------------------------------------------------------------
def test_a_lost_process_is_replaced_and_all_stop_together(shop: Shop) -> None:
    parent = shop.start("worker", "shop:app", "--processes", "2")
    eventually(lambda: len(shop.told("worker.started")) == 2, "two workers")
    first, second = (line["pid"] for line in shop.told("process.started"))
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(shop.told("worker.started")) == 3, "a third worker")
    [lost] = shop.told("process.exited")
    assert lost["code"] == -signal.SIGKILL
    third = shop.told("process.started")[2]["pid"]
    assert alive(second)
    job_id = shop.enqueue("pid.enqueue_sync()")
    eventually(lambda: shop.job(job_id)["state"] == "complete", "the job to complete")
    assert shop.job(job_id)["result"] in (second, third)
    parent.terminate()
    assert ended(parent) == 0
    assert not alive(second)
    assert not alive(third)
    assert len(shop.told("worker.stopped")) == 2


def test_the_parent_passes_a_second_signal_on(shop: Shop) -> None:  # E31
    job_id = shop.enqueue("slow.enqueue_sync(50)")
    parent = shop.worker("--processes", "2")
    eventually((shop.folder / "slow.started").exists, "the job to start")
    parent.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    assert ended(parent) == 0
    assert shop.job(job_id)["state"] == "queued"


def test_the_parent_passes_a_hang_up_on_and_the_policies_are_read_again(shop: Shop) -> None:  # E10
    """The file stays as it is, so that nobody reads it again unless told to."""
    (shop.folder / "holdfast.toml").write_text("[tasks.hello]\nmax_attempts = 3")
    parent = shop.worker("--processes", "2")
    eventually(lambda: len(shop.told("worker.started")) == 2, "two workers")
    parent.send_signal(signal.SIGHUP)
    eventually(lambda: len(shop.told("policy_file.reloaded")) == 2, "both to read their policies")
    parent.terminate()
    assert ended(parent) == 0
    assert len(shop.told("process.started")) == len(shop.told("worker.stopped")) == 2


def test_a_hang_up_ends_no_child_that_does_not_listen(shop: Shop) -> None:  # E10
    """Neither one that has only begun, nor one without a policy file."""
    parent = shop.start("worker", "shop:app", "--processes", "2")
    eventually(lambda: len(shop.told("process.started")) == 2, "two processes")
    parent.send_signal(signal.SIGHUP)
    eventually(lambda: len(shop.told("worker.started")) == 2, "two workers")
    parent.send_signal(signal.SIGHUP)
    job_id = shop.enqueue("hello.enqueue_sync('you')")
    eventually(lambda: shop.job(job_id)["state"] == "complete", "the job to complete")
    parent.terminate()
    assert ended(parent) == 0
    assert shop.told("process.exited") == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent is gone")
def test_children_end_with_a_parent_that_was_killed(shop: Shop) -> None:
    parent = shop.start("worker", "shop:app", "--processes", "2")
    eventually(lambda: len(shop.told("worker.started")) == 2, "two workers")
    pids = [line["pid"] for line in shop.told("process.started")]
    parent.kill()
    eventually(lambda: not any(alive(pid) for pid in pids), "the children to end")
    assert len(shop.told("worker.stopped")) == 2  # in order: they were told, not killed


def test_a_command_that_cannot_work_is_not_tried_for_ever(shop: Shop) -> None:
    assert ended(shop.start("worker", "shop:nothing", "--processes", "2")) == 2
    assert "holdfast: shop has no 'nothing'" in (shop.folder / "err.log").read_text()


def test_reload_restarts_with_the_new_code(shop: Shop) -> None:
    parent = shop.worker("--reload")
    (shop.folder / "shop.py").write_text(APP.replace('"hello {name}"', '"goodbye {name}"'))
    eventually(lambda: len(shop.told("worker.started")) == 2, "a restart")
    job_id = shop.enqueue("hello.enqueue_sync('you')")
    eventually(lambda: shop.job(job_id)["state"] == "complete", "the job to complete")
    assert shop.job(job_id)["result"] == "goodbye you"
    (shop.folder / "shop.py").write_text("this is not Python")
    eventually(lambda: shop.told("process.failed"), "the broken code to be noticed")
    (shop.folder / "shop.py").write_text(APP)
    eventually(lambda: len(shop.told("worker.started")) == 3, "a restart with the mended code")
    parent.terminate()
    assert ended(parent) == 0


# -- events -----------------------------------------------------------------------------------------------------------
def test_events_can_be_followed_until_interrupted(shop: Shop) -> None:
    before = shop.enqueue("hello.enqueue_sync('before')")
    follower = shop.start("events", "--follow", "--after", "0", "--json", "--app", "shop:app")
    out = shop.folder / "out.log"
    eventually(lambda: before in out.read_text(), "the first event")
    after = shop.enqueue("hello.enqueue_sync('after')")
    eventually(lambda: after in out.read_text(), "the second event")
    follower.send_signal(signal.SIGINT)
    assert ended(follower) == 130
    kinds = [json.loads(line)["kind"] for line in out.read_text().splitlines()]
    assert kinds == ["queued", "queued"]


def test_a_reader_that_had_enough_is_no_error(shop: Shop) -> None:
    for _ in range(2):
        shop.enqueue("hello.enqueue_many_sync(['x'] * 2000)[0]")
    script = f"set -o pipefail; {sys.executable} -m holdfast events --app shop:app | head -1"
    done = subprocess.run(
        ["bash", "-c", script], cwd=shop.folder, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
