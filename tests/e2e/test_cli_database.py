"""A database that is missing, damaged, read-only or of another version is one line and exit code 5, never a traceback."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.cli import main
from tests.commands import run_command

APP = """
from holdfast import Holdfast
app = Holdfast({url!r})
@app.task
async def hello() -> None: ...
"""
pytestmark = pytest.mark.slow
#: Makes the permissions of files count for root, too.
HUMBLY = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []


def run(folder: Path, *command: str, wrapped_in: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    ours = [sys.executable, "-m", "holdfast", *command]
    if not wrapped_in:
        return run_command(ours, cwd=folder, env=environment)
    return subprocess.run([*wrapped_in, *ours], cwd=folder, env=environment, capture_output=True, text=True)


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 5, done
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP.format(url="sqlite:///jobs.db"))
    return tmp_path


COMMANDS = [
    ["worker", "shop:app"],
    ["up", "shop:app"],
    ["jobs", "list", "--app", "shop:app"],
    ["migrate", "shop:app"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_database_of_a_newer_version_asks_for_an_upgrade(folder: Path, command: list[str]) -> None:
    assert main(["migrate", "--url", f"sqlite:///{folder / 'jobs.db'}"]) == 0
    with sqlite3.connect(folder / "jobs.db") as connection:
        connection.execute("INSERT INTO holdfast_migration VALUES ('core', 999, 'the future', 2)")
        connection.commit()
    connection.close()
    assert "upgrade Holdfast" in one_line(run(folder, *command))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_is_no_database_says_so(folder: Path, command: list[str]) -> None:
    (folder / "jobs.db").write_text("these are not the pages you are looking for" * 100)
    assert "not a database" in one_line(run(folder, *command))


def test_a_folder_that_is_not_there_says_so(folder: Path) -> None:
    (folder / "shop.py").write_text(APP.format(url="sqlite:///nowhere/jobs.db"))
    assert "folder must exist" in one_line(run(folder, "worker", "shop:app"))
    assert "there is no database nowhere/jobs.db" in one_line(
        run(folder, "jobs", "list", "--app", "shop:app")
    )


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere")
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_read_only_database_says_so(folder: Path, command: list[str]) -> None:
    assert main(["migrate", "--url", f"sqlite:///{folder / 'jobs.db'}"]) == 0
    for path in folder.glob("jobs.db*"):
        path.chmod(0o444)
    folder.chmod(0o555)
    done = run(folder, *command, wrapped_in=HUMBLY)
    folder.chmod(0o755)
    assert "read-only" in one_line(done) or "writable" in done.stderr


def test_a_postgres_that_is_not_there_is_one_line_without_its_password(folder: Path) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/jobs"
    done = run(folder, "jobs", "list", "--url", url)
    assert done.returncode in (2, 5)  # 2 where the driver is not installed
    assert done.stderr.count("\n") == 1, done.stderr
    assert "hunter2" not in done.stderr


def test_postgres_asks_to_be_migrated_and_then_works(folder: Path, empty_postgres: str) -> None:
    assert "run `holdfast migrate`" in one_line(run(folder, "jobs", "list", "--url", empty_postgres))
    assert run(folder, "migrate", "--url", empty_postgres).returncode == 0
    assert run(folder, "jobs", "list", "--url", empty_postgres).stdout == "No jobs.\n"
    benched = run(folder, "bench", "--jobs", "20", "--json", "--url", empty_postgres)
    assert [step["jobs"] for step in json.loads(benched.stdout)["steps"]] == [10, 20, 30]
    counted = run(folder, "jobs", "counts", "--json", "--url", empty_postgres)
    assert set(json.loads(counted.stdout).values()) == {0}


def test_the_command_and_the_module_are_the_same(folder: Path) -> None:
    script = Path(sys.executable).parent / "holdfast"
    by_name = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert by_name.stdout == run(folder, "--version").stdout
