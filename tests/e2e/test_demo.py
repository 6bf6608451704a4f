"""The tour that `make demo` gives is a test of its own: it ends with a table of promises."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_tour_ends_by_itself_and_every_promise_holds() -> None:  # E4 E5 E30 E32
    command = [sys.executable, "-m", "systems.converter.tour"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is lost" in done.stdout
    assert "NO" not in done.stdout.split("promise", 1)[1]
