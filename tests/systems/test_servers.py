"""The private servers of `make run`: killed ones are started again, and nothing of them is left at the end."""

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

from devservices.server import NotStarted, Server, is_open
from systems.common.running import keep_up
from systems.common.servers import RUNNING, kept_up
from systems.screenshots.run.__main__ import private_redis
from tests.conftest import needs_program

#: Listens on the port it is given, with a child that listens on the next one and outlives it.
FORKING = """
import os, socket, sys, time
port = int(sys.argv[1]) + (os.fork() == 0)
server = socket.create_server(("127.0.0.1", port))
time.sleep(600)
"""


class Echo(Server):
    name = "echo"
    program = FORKING

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program, str(self.port)]

    def answers(self) -> bool:
        return is_open(self.port) and is_open(self.port + 1)


class Broken(Echo):
    program = "raise SystemExit(3)"


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
    server = Echo(tmp_path)
    with kept_up(server, stop_within=3.0):
        first = server.pid
        os.kill(first, signal.SIGKILL)
        keep_up_until(lambda: server.pid != first and server.answers())
        assert "the echo exited" in capfd.readouterr().err
        assert [child.server for child in RUNNING] == [server]
    assert RUNNING == []
    keep_up_until(lambda: not is_open(server.port) and not is_open(server.port + 1))


def test_a_server_that_does_not_start_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(NotStarted, match=r"^echo did not start; see .*log$"),
        kept_up(Broken(tmp_path), stop_within=1.0),
    ):
        pass
    assert RUNNING == []


@pytest.mark.service
def test_a_redis_that_is_killed_is_there_again_at_its_address(tmp_path: Path) -> None:  # E67
    needs_program("redis-server")
    with private_redis(tmp_path / "redis") as url:
        port = urlsplit(url).port
        assert port is not None
        [server] = [child.server for child in RUNNING]
        assert server is not None
        first = server.pid
        os.kill(first, signal.SIGKILL)
        keep_up_until(lambda: server.pid != first and is_open(port))
        assert (tmp_path / "redis" / "url").read_text() == url
    assert not is_open(port)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout
    assert left == ""
