"""Finds a Chromium for `make run SYSTEM=screenshots`, or installs Debian's where that is possible."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from holdfast import UsageError
from systems.common.children import ROOT
from systems.screenshots.browser.chromium import find_program


def ensure_chromium(environment: Mapping[str, str]) -> None:
    """Install Chromium unless one is found. Installing needs root and apt-get.

    Raises `UsageError`, which says how to get one, when that fails, or when SCREENSHOTS_CHROMIUM names a
    missing one.
    """
    try:
        find_program(environment)
    except UsageError:
        if environment.get("SCREENSHOTS_CHROMIUM", "").strip():
            raise
        # The tool that also installs the programs for the tests; it prints what it does.
        command = [sys.executable, str(ROOT / "tools" / "system"), "Chromium"]
        subprocess.run(command, env=dict(environment), check=False)
        find_program(environment)
