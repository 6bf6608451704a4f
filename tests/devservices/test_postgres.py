"""The private server keeps what was committed when it is killed, and leaves nothing behind when the tests die."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from devservices.postgres import Postgres

ROOT = Path(__file__).parents[2]
ORPHAN = """
import os, signal
from devservices.postgres import Postgres
server = Postgres().start()
print(server.pid, server.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_server_starts_again_with_what_was_committed(durable_postgres: Postgres) -> None:
    url = durable_postgres.create_database("kept")
    durable_postgres.execute("CREATE TABLE t AS SELECT 1 AS id", "kept")
    with psycopg.connect(url) as open_session:
        open_session.execute("INSERT INTO t VALUES (2)")
        durable_postgres.kill()
        assert not durable_postgres.running
        with pytest.raises(psycopg.OperationalError):
            open_session.execute("SELECT 1")
    durable_postgres.start()
    with psycopg.connect(url) as connection:  # the same address
        assert connection.execute("SELECT id FROM t").fetchall() == [(1,)]
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_a_database_is_copied_from_its_template(postgres: Postgres) -> None:
    postgres.create_database("mould")
    postgres.execute("CREATE TABLE t AS SELECT 5 AS id", "mould")
    with psycopg.connect(postgres.create_database("cast", template="mould")) as connection:
        assert connection.execute("SELECT id FROM t").fetchone() == (5,)
    postgres.drop_database("cast")
    postgres.drop_database("mould")


def test_version_18_runs_beside_the_system_one(postgres18: Postgres, empty_postgres18: str) -> None:
    with psycopg.connect(empty_postgres18) as connection:
        assert connection.info.server_version // 10000 == 18


def test_a_server_does_not_outlive_tests_that_were_killed(postgres: Postgres) -> None:
    run = subprocess.run([sys.executable, "-c", ORPHAN], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == -signal.SIGKILL, run.stderr
    pid, folder = run.stdout.split()
    until = time.monotonic() + 30
    while Path(folder).exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(folder).exists()
    assert not Path("/proc", pid, "exe").exists()
