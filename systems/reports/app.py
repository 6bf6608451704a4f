"""The reports app, configured from the environment: `holdfast worker systems.reports.app:app`."""

from __future__ import annotations

import os

from systems.reports.settings import Settings
from systems.reports.tasks import build

reports = build(Settings.read(os.environ))
app = reports.app
