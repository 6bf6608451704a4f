"""The private servers of `make run`: lost ones are started again, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from systems.common.running import free_port, keep_up
from systems.common.servers import RUNNING, NoServer, is_open, start_server
from systems.screenshots.run.redis import private_redis
from tests.conftest import needs_program

#: Listens on the port it is given, with a child that listens on the next one and outlives it.
FORKING = """
import os, socket, sys, time
port = int(sys.argv[1]) + (os.fork() == 0)
server = socket.create_server(("127.0.0.1", port))
time.sleep(600)
"""


class Until:
    """Tended like a child: ends `keep_up` as soon as *happened*, or fails after a while."""

    def __init__(self, stopped: threading.Event, happened: Any) -> None:
        self._stopped, self._happened, self._end = stopped, happened, time.monotonic() + 20

    def tend(self) -> None:
        if self._happened() or time.monotonic() > self._end:
            self._stopped.set()


def keep_up_until(happened: Any) -> None:
    stopped = threading.Event()
    until: Any = Until(stopped, happened)
    keep_up([until], stopped)
    assert happened()


def test_a_server_that_is_killed_is_started_again_with_nothing_left_of_its_last_life(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:  # E67
    port = free_port(2)
    command = [sys.executable, "-c", FORKING, str(port)]
    server = start_server("echo", command, tmp_path, lambda _: is_open(port) and is_open(port + 1))
    try:
        first = server.group
        os.kill(first, signal.SIGKILL)
        keep_up_until(lambda: server.group != first and is_open(port) and is_open(port + 1))
        assert "the echo was lost" in capfd.readouterr().err
        assert [server] == RUNNING
    finally:
        server.stop()
    assert RUNNING == []
    keep_up_until(lambda: not is_open(port) and not is_open(port + 1))


def test_a_server_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match=r"echo did not start; .*log"):
        start_server("echo", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path, lambda _: False)
    assert RUNNING == []


@pytest.mark.service
def test_a_redis_that_is_killed_is_there_again_at_its_address(tmp_path: Path) -> None:  # E67
    needs_program("redis-server")
    with private_redis(tmp_path / "redis") as url:
        port = urlsplit(url).port
        assert port is not None
        [server] = RUNNING
        first = server.group
        os.kill(first, signal.SIGKILL)
        keep_up_until(lambda: server.group != first and is_open(port))
        assert (tmp_path / "redis" / "url").read_text() == url
    assert not is_open(port)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout
    assert left == ""
