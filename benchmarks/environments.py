"""An environment for each queue, made by uv when it is first needed and kept in .boot/peers (`make clean` removes it)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.subjects import Subject

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".boot" / "peers"
SECONDS = 180


class CannotInstall(Exception):
    """This queue will not be measured, and why."""


def python_of(subject: Subject) -> str:
    """The interpreter that has this subject installed."""
    if not subject.packages:
        return sys.executable
    place = FOLDER / subject.name
    python, stamp = place / "bin" / "python", place / "packages"
    wanted = "\n".join(subject.packages)
    if not (python.exists() and stamp.exists() and stamp.read_text() == wanted):
        uv = _uv()
        FOLDER.mkdir(parents=True, exist_ok=True)
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(place)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *subject.packages])
        stamp.write_text(wanted)
    return str(python)


def _uv() -> str:
    local = ROOT / ".boot" / "bin" / "uv"
    found = str(local) if local.exists() else shutil.which("uv")
    if found is None:
        raise CannotInstall("uv was not found; run `make setup`")
    return found


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"not installed within {SECONDS} s") from None
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CannotInstall(" ".join(said[:2])[:200] or "uv failed")
