"""The tests of the dashboard's own logic, which vitest runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_parts_pass_their_own_tests() -> None:  # E68
    command = [sys.executable, str(ROOT / "tools" / "dashboard"), "test"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
