"""Puts the built dashboard into wheels and source archives. Without it neither can be built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds the dashboard in a clone. A source archive has it already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the server says how to build it
            return
        root = Path(self.root)
        if (root / "web").exists():
            subprocess.run([sys.executable, root / "tools" / "dashboard", "required"], check=True)
        built = root / "src" / "holdfast" / "server" / "dashboard_files"
        for name in ("index.html", "licenses.txt"):
            if not (built / name).exists():
                raise RuntimeError(
                    f"no dashboard: {name} is missing in {built.relative_to(root)}; build in a clone"
                )
