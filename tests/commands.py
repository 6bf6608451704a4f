"""Run a command and keep what it prints."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def run_command(
    command: Sequence[str | os.PathLike[str]], *, timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its exit code and output.

    It takes what `subprocess.run` takes. Without `input` the command reads from an empty standard input.
    """
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)
