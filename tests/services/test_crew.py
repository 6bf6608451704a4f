"""Tests in several processes: what a run of pytest tells when they are run by a crew."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = """
import os, pathlib, pytest, signal
from tests.services.crew import Crew

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
PLACE = pathlib.Path(__file__).parent
MAIN = os.getpid()

def pytest_runtestloop(session):
    Crew(session, {groups}).run({size})
    return True

@pytest.fixture(scope="session")
def server():
    yield os.getpid()
    with (PLACE / "closed").open("a") as closed:
        closed.write(f"{{os.getpid()}}\\n")

@pytest.fixture
def diary(server, request):
    with (PLACE / "diary").open("a") as diary:
        diary.write(f"{{server}} {{request.node.name}}\\n")
"""


def crew(
    place: Path, tests: str, groups: list[list[int]], *options: str, size: int = 2, parting: str = ""
) -> subprocess.CompletedProcess[str]:
    (place / "conftest.py").write_text(CONFTEST.format(groups=groups, size=size) + parting)
    (place / "test_some.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        os.devnull,
        f"--rootdir={place}",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, *options, str(place)],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_DEBUG_TEMPROOT": str(place)},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
    )


def counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    return {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", done.stdout.splitlines()[-1])}


def diary(place: Path) -> dict[str, list[str]]:
    """What each process has run, in its order."""
    found: dict[str, list[str]] = {}
    for line in (place / "diary").read_text().splitlines():
        process, test = line.split()
        found.setdefault(process, []).append(test)
    return found


SIX = "".join(f"def test_{letter}(diary): pass\n" for letter in "abcdef")


def test_a_group_runs_in_one_process_in_its_order_and_ends_its_fixtures_there(tmp_path: Path) -> None:
    done = crew(tmp_path, SIX, [[0, 2, 4], [1, 3, 5]])
    assert (done.returncode, counts(done)["passed"]) == (0, 6), done.stdout
    assert sorted(diary(tmp_path).values()) == [
        ["test_a", "test_c", "test_e"],
        ["test_b", "test_d", "test_f"],
    ]
    assert sorted((tmp_path / "closed").read_text().split()) == sorted(diary(tmp_path))


def test_more_groups_than_processes_are_all_run_once(tmp_path: Path) -> None:
    done = crew(tmp_path, SIX, [[number] for number in range(6)])
    assert (done.returncode, counts(done)["passed"]) == (0, 6), done.stdout
    assert sorted(itertools.chain(*diary(tmp_path).values())) == [f"test_{letter}" for letter in "abcdef"]
    assert len(diary(tmp_path)) <= 2


def test_failures_errors_and_what_was_printed_are_told_as_without_a_crew(tmp_path: Path) -> None:
    tests = """
import os, pytest
@pytest.fixture
def broken(): raise LookupError("no such thing")
def test_a(): print("said by a"); os.write(1, b"written by a"); assert 1 == 2
def test_b(broken): pass
def test_c(): pytest.skip("not today")
def test_d(): print("said by d")
"""
    done = crew(tmp_path, tests, [[0], [1], [2], [3]])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    expected = {"failed": 1, "error": 1, "skipped": 1, "passed": 1}
    assert expected.items() <= counts(done).items(), done.stdout
    for word in ("said by a", "written by a", "assert 1 == 2", "no such thing"):
        assert word in done.stdout
    assert "said by d" not in done.stdout


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)"])
def test_a_process_that_dies_fails_its_test_and_another_takes_over_the_rest(tmp_path: Path, end: str) -> None:
    tests = SIX.replace("test_b(diary): pass", f"test_b(diary): import os; {end}")
    done = crew(tmp_path, tests, [[0, 1, 2, 3], [4], [5]])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert counts(done).items() >= {"failed": 1, "passed": 5}.items(), done.stdout
    assert re.search(r"FAILED .*::test_b\b", done.stdout)
    assert re.search(r"the process of this test has died \((signal 9|exit code 0)\)", done.stdout)
    first, second = (names for names in diary(tmp_path).values() if {"test_b", "test_c"} & {*names})
    assert (first[-2:], second[:2]) == (["test_a", "test_b"], ["test_c", "test_d"])


def test_a_process_that_dies_behind_its_last_test_is_told(tmp_path: Path) -> None:
    parting = "def pytest_unconfigure():\n    if os.getpid() != MAIN: os._exit(3)\n"
    done = crew(tmp_path, SIX, [[0, 1, 2], [3, 4, 5]], parting=parting)
    assert done.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert "a process of the tests has died when its tests had ended (exit code 3)" in done.stdout


def test_the_first_failure_stops_all_where_that_is_asked_for(tmp_path: Path) -> None:
    tests = """
import pathlib, time
PLACE = pathlib.Path(__file__).parent
def waiting():
    until = time.monotonic() + 30
    while not (PLACE / "failing").exists() and time.monotonic() < until: time.sleep(0.01)
    time.sleep(0.5)  # the order to stop is on its way
def test_a(): (PLACE / "failing").touch(); assert False
def test_b(): assert False
def test_c(): waiting()
def test_d(diary): pass
"""
    done = crew(tmp_path, tests, [[0, 1], [2, 3]], "-x")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "stopping after 1 failures" in done.stdout
    assert not (tmp_path / "diary").exists()


def test_ctrl_c_ends_all_of_them_and_their_fixtures_without_a_word(tmp_path: Path) -> None:
    tests = """
import os, pathlib, signal, time, pytest
PLACE = pathlib.Path(__file__).parent
@pytest.fixture
def slow(tmp_path): (PLACE / "waiting").touch(); time.sleep(30)
def test_a(server, slow): pass
def test_b(server):
    until = time.monotonic() + 30
    while not (PLACE / "waiting").exists() and time.monotonic() < until: time.sleep(0.01)
    os.killpg(0, signal.SIGINT)
    time.sleep(30)
def test_c(): pass
def test_d(): pass
"""
    done = crew(tmp_path, tests, [[0, 2], [1, 3]], "-o", "tmp_path_retention_policy=failed")
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert len((tmp_path / "closed").read_text().split()) == 2


def test_folders_of_passed_tests_are_gone_and_nobody_has_anothers(tmp_path: Path) -> None:
    tests = "".join(
        f"def test_same_{number}(tmp_path): assert not any(tmp_path.iterdir()); (tmp_path / 'x').touch()\n"
        for number in range(8)
    )
    done = crew(
        tmp_path, tests, [[number] for number in range(8)], "-o", "tmp_path_retention_policy=failed", size=4
    )
    assert (done.returncode, counts(done)["passed"]) == (0, 8), done.stdout
    assert [*tmp_path.glob("pytest-of-*/pytest-*/test_*")] == []
