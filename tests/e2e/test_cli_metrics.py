"""Workers that are watched: each process answers on a port of its own (E62)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from devservices.server import free_port

pytestmark = pytest.mark.slow

APP = """
from holdfast import Holdfast

app = Holdfast("sqlite:///jobs.db", poll="50ms")

@app.task(queue="mail")
async def send(to: str) -> None: ...
"""
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
_open = build_opener(ProxyHandler({})).open


def two_free_ports() -> int:
    """The first of two ports in a row that nobody listens on."""
    for _ in range(50):
        port = free_port()
        with socket.socket() as second, contextlib.suppress(OSError):
            second.bind(("127.0.0.1", port + 1))
            return port
    pytest.fail("no two free ports in a row")


def get(port: int, path: str) -> str:
    """What is answered there, once somebody listens."""
    until = time.monotonic() + 30
    while True:
        try:
            with _open(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (URLError, ConnectionError):
            assert time.monotonic() < until, "nobody listens"
            time.sleep(0.05)


def completed(text: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith("holdfast_jobs_completed_total{")]
    return sum(float(line.split()[-1]) for line in lines)


def test_two_processes_together_have_counted_every_job_once(tmp_path: Path) -> None:  # E62 E67
    (tmp_path / "shop.py").write_text(APP)
    port = two_free_ports()
    worker = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "holdfast",
            "worker",
            "shop:app",
            "--processes",
            "2",
            "--metrics-port",
            str(port),
        ],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert [get(port + place, "/livez") for place in (0, 1)] == ["alive\n", "alive\n"]
        assert get(port, "/readyz") == "ready\n"
        enqueue = "from shop import *; send.enqueue_many_sync([{'to': 'ann'}] * 300)"
        subprocess.run([sys.executable, "-c", enqueue], cwd=tmp_path, env=ENVIRONMENT, check=True)
        until, done = time.monotonic() + 20, 0.0
        while done < 300 and time.monotonic() < until:
            done = sum(completed(get(port + place, "/metrics")) for place in (0, 1))
            time.sleep(0.05)
        assert done == 300
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    finally:
        worker.kill()
        worker.wait()
