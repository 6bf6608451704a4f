"""A process from the zygote is as one that was started: its place, its words, its end."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.services import zygote

TELL = "import os, sys; print(os.getcwd(), os.environ['WHO'], sys.argv[1:], sys.stdin.read(), flush=True)"


@pytest.mark.parametrize("start", [zygote.Process, subprocess.Popen])
def test_it_has_the_place_the_words_and_the_environment_it_was_given(start: type, tmp_path: Path) -> None:
    process = start(
        [sys.executable, "-c", TELL, "a", "b"],
        cwd=tmp_path,
        env={"WHO": "me"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.communicate("said", 20) == (f"{tmp_path} me ['a', 'b'] said\n", None)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit('no')", 1),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("", 0),
    ],
)
@pytest.mark.parametrize("start", [zygote.Process, subprocess.Popen])
def test_it_ends_as_any_other(start: type, code: str, left: int) -> None:
    process = start([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    _, said = process.communicate(timeout=20)
    assert process.returncode == left
    assert ("ZeroDivisionError" in said) == (code == "1 / 0")
    assert (said == "no\n") == ("'no'" in code)


@pytest.mark.parametrize("start", [zygote.Process, subprocess.Popen])
def test_it_waits_for_its_threads_and_ends_what_wants_to_be_ended(start: type) -> None:
    code = (
        "import atexit, threading; atexit.register(print, 'last'); "
        "threading.Timer(0.05, print, ['thread']).start(); print('first')"
    )
    process = start([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.communicate(timeout=20) == ("first\nthread\nlast\n", None)


def test_an_order_that_was_broken_off_is_not_answered_to_the_next() -> None:
    """As by a test that takes too long."""
    exits = [sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))"]
    assert zygote.run([*exits, "3"]).returncode == 3
    os.kill(zygote._zygote.pid, signal.SIGSTOP)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            zygote.run([*exits, "4"])
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.kill(zygote._zygote.pid, signal.SIGCONT)
    assert zygote.run([*exits, "5"]).returncode == 5


def test_it_leads_a_group_that_is_killed_as_one() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    process: subprocess.Popen[bytes] = zygote.Process(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"1\n"
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert process.stdout.read() == b""  # the child of it is gone too
    process.communicate()


def test_each_draws_chances_of_its_own() -> None:
    code = "import random, uuid; print(random.random(), uuid.uuid4())"
    said = {zygote.run([sys.executable, "-c", code]).stdout for _ in range(3)}
    assert len(said) == 3


def test_a_module_is_run_as_the_main_one(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import sys; print(__name__, sys.argv[1:], sys.path[0])")
    done = zygote.run([sys.executable, "-m", "mine", "x"], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"__main__ ['x'] {tmp_path}\n", "")
