"""What a child leaves behind when it is killed: a Chromium that nobody holds, and its folder."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from systems.screenshots.browser.tree import end_family, naming

_SECONDS = 3.0


def clear(folder: Path) -> None:
    """End every Chromium that has its profile in *folder*, then remove that. Bounded: what cannot be removed stays."""
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        left = naming(f"--user-data-dir={folder}/")
        for pid in left:
            end_family(pid)
        if not left:
            with suppress(OSError):  # one that was about to end may have written once more
                shutil.rmtree(folder)
            if not folder.exists():
                return
        time.sleep(0.02)
