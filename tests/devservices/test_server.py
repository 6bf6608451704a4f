"""What all private servers share: temporary or kept, they end with the process that started them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from devservices.postgres import Postgres
from devservices.server import NotStarted, Server, free_port, is_open
from tests.commands import ROOT
from tests.conftest import installed

OWNER = """
import os, signal, sys
from pathlib import Path
from devservices.postgres import Postgres
server = Postgres(folder=Path(sys.argv[1])).start()
server.execute("CREATE TABLE t AS SELECT 1 AS id")
print(server.port, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Exiting(Server):
    name = "server"

    def command(self) -> list[str]:
        return [sys.executable, "-c", "raise SystemExit('the reason')"]


def test_the_modules_need_no_installed_package() -> None:
    """`make run` installs fewer packages than the tests."""
    modules = sorted(
        f"devservices.{path.stem}" for path in (ROOT / "devservices").glob("*.py") if path.stem != "s3"
    )
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.service
@pytest.mark.slow
def test_a_kept_server_ends_in_order_with_its_owner_and_keeps_its_data(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    installed(lambda: Postgres(folder=folder))  # skipped where it is not installed
    done = subprocess.run([sys.executable, "-c", OWNER, folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until = time.monotonic() + 30
    while (folder / "data" / "postmaster.pid").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_open(int(done.stdout))
    assert "received smart shutdown request" in (folder / "log").read_text()
    with Postgres(folder=folder) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
    assert folder.exists()


def test_a_server_that_exits_is_reported_with_its_log() -> None:
    server = Exiting()
    with pytest.raises(NotStarted, match="server did not start;\nthe reason"):
        server.start()
    server.close()
    assert not server.folder.exists()


def test_free_ports_are_consecutive_and_can_be_used() -> None:
    port = free_port(3)
    assert not any(is_open(one) for one in range(port, port + 3))
