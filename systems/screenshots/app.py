"""The screenshots app, configured from the environment: `holdfast worker systems.screenshots.app:app`."""

from __future__ import annotations

import os

from systems.screenshots.settings import Settings
from systems.screenshots.tasks import build

screenshots = build(Settings.read(os.environ))
app = screenshots.app
