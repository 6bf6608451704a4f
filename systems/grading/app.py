"""Grading, built from the environment's settings: `holdfast up systems.grading.app:app`."""

from __future__ import annotations

import os

from systems.grading.settings import Settings
from systems.grading.tasks import build

grading = build(Settings.read(os.environ))
app = grading.app
