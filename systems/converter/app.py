"""The converter, built from the environment's settings.

Workers run it: `holdfast worker systems.converter.app:app`.
"""

from __future__ import annotations

import os

from systems.converter.settings import Settings
from systems.converter.tasks import build

converter = build(Settings.read(os.environ))
app = converter.app
