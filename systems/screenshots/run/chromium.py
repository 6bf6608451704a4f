"""A Chromium for `make run SYSTEM=screenshots`: the one that is there; else Debian's, where it may be installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from holdfast import UsageError
from systems.common.children import ROOT
from systems.screenshots.browser.chromium import find_program


def see_to_chromium(environment: Mapping[str, str]) -> None:
    """`UsageError` says how to get one, where none is found and none could be installed: that takes root and apt-get.

    One that is named by SCREENSHOTS_CHROMIUM is the caller's own matter.
    """
    try:
        find_program(environment)
    except UsageError:
        if environment.get("SCREENSHOTS_CHROMIUM", "").strip():
            raise
        # The same tool that installs what the tests need; it says what it does.
        command = [sys.executable, str(ROOT / "tools" / "system"), "Chromium"]
        subprocess.run(command, env=dict(environment), check=False)
        find_program(environment)
