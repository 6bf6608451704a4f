"""Removes what a killed child leaves behind: an orphaned Chromium, and its folder."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from systems.screenshots.browser.processes import end_family, pids_with_argument

_SECONDS = 3.0


def clear(folder: Path) -> None:
    """End each Chromium whose profile is in *folder*, then remove the folder.

    This gives up after 3 seconds; what cannot be removed by then stays.
    """
    until = time.monotonic() + _SECONDS
    while time.monotonic() < until:
        pids = pids_with_argument(f"--user-data-dir={folder}/")
        for pid in pids:
            end_family(pid)
        if not pids:
            with suppress(OSError):  # a process that is ending may have written another file
                shutil.rmtree(folder)
            if not folder.exists():
                return
        time.sleep(0.02)
