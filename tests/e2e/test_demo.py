"""The tour that `make demo` gives is a test of its own: it ends with a table of promises."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_tour_ends_by_itself_and_every_promise_holds() -> None:  # E4 E5 E30 E32
    done = subprocess.run([sys.executable, "-m", "examples.demo"], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is lost" in done.stdout
    assert "NO" not in done.stdout.split("promise", 1)[1]
