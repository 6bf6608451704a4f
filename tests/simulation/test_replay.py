"""The commands of docs/how-to/replay-a-seed.md, in front of the reader: a bug is planted, found, and played again."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "replay-a-seed.md"

pytestmark = pytest.mark.timeout(120)


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.S)
    return [line for block in blocks for line in block.splitlines() if line.startswith("python ")]


def run(command: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *shlex.split(command)[1:]]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_a_planted_bug_is_found_played_again_and_gone_without_it() -> None:  # E4
    find, again, mended = commands()
    found = run(find)
    assert found.returncode == 1, found.stderr
    told = found.stdout.strip()
    assert re.search(r"\n +\d+\.\d\d s  .*job \d+ is claimed", told)
    assert "\nbroken: " in told
    [seed] = re.findall(r"^seed (\d+)", told)
    replayed = run(re.sub(r"\d+$", seed, again))
    assert replayed.returncode == 1
    assert replayed.stdout.strip() == told  # the very same story
    kept = run(re.sub(r"\d+$", seed, mended))
    assert (kept.returncode, kept.stderr) == (0, "")
    assert kept.stdout.rstrip().endswith("every promise was kept")


def test_a_bug_that_nobody_knows_is_refused_with_the_names() -> None:
    refused = run('python -m tests.simulation --plant "no such bug" 0')
    assert refused.returncode == 1
    assert "fence dropped" in refused.stderr
