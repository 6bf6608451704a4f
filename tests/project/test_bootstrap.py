"""`make setup` where the interpreter has no pip of its own."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

BOOTSTRAP = Path(__file__).parents[2] / "tools" / "bootstrap"
ASK = """
import runpy, sys
print(runpy.run_path(sys.argv[1])["pip_python"]())
"""


def test_a_virtual_environment_without_pip_uses_the_interpreter_it_was_made_from(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    python = tmp_path / "bare" / "bin" / "python"
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode != 0
    asked = subprocess.run([python, "-c", ASK, BOOTSTRAP], capture_output=True, text=True, check=True)
    found = asked.stdout.strip()
    assert subprocess.run([found, "-m", "pip", "--version"], capture_output=True).returncode == 0
