"""Detect changes of Python files below a folder by their times, without a dependency or threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

LOOK_EVERY = 1.0
_PASSED_OVER = {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"}


class SourceWatcher:
    def __init__(self, root: Path | None = None, every: float = LOOK_EVERY) -> None:
        self._root, self._every = root or Path.cwd(), every
        self._seen = self._look()
        self._next = time.monotonic() + every

    def changed(self) -> bool:
        """Return whether a file was added, removed or changed since the last call. Reads at most once in *every* seconds."""
        if time.monotonic() < self._next:
            return False
        seen, self._seen = self._seen, self._look()
        self._next = time.monotonic() + self._every
        return seen != self._seen

    def _look(self) -> dict[str, int]:
        found = {}
        for path in _python_files(str(self._root)):
            try:
                found[path] = os.stat(path).st_mtime_ns
            except OSError:
                continue  # deleted in between
        return found


def _python_files(root: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _PASSED_OVER]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))
