"""A virtual environment for each queue, made by uv on first use in .boot/peers (`make clean` removes it)."""

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
    """A queue cannot be installed and is not measured; the message says why."""


def python_of(subject: Subject) -> str:
    """Return the interpreter with this subject installed. Raises `CannotInstall`."""
    if not subject.packages:
        return sys.executable
    folder = FOLDER / subject.name
    python, stamp = folder / "bin" / "python", folder / "packages"
    packages = "\n".join(subject.packages)
    if not (python.exists() and stamp.exists() and stamp.read_text() == packages):
        uv = _uv()
        FOLDER.mkdir(parents=True, exist_ok=True)
        _run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *subject.packages])
        stamp.write_text(packages)
    return str(python)


def _uv() -> str:
    local = ROOT / ".boot" / "bin" / "uv"
    path = str(local) if local.exists() else shutil.which("uv")
    if path is None:
        raise CannotInstall("uv was not found; run `make setup`")
    return path


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise CannotInstall(f"not installed within {SECONDS} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CannotInstall(" ".join(lines[:2])[:200] or "uv failed")
