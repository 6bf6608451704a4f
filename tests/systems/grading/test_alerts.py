"""The alerts of grading name metrics that there are, and parts of the runbook that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from systems.grading.settings import Settings
from systems.grading.tasks import build
from systems.grading.worker.metrics import ALARMS

ROOT = Path(__file__).parents[3]
RULES = yaml.safe_load((ROOT / "ops/prometheus/grading.yml").read_text())["groups"][0]["rules"]
RUNBOOK = (ROOT / "docs/how-to/grading-runbook.md").read_text()


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_names_a_metric_and_a_part_of_the_runbook(rule: dict[str, Any]) -> None:  # G7 E62
    families = build(Settings()).app.metrics.describe()
    known = {one.name + ("_total" if one.type == "counter" else "") for one in families} | {ALARMS}
    [name] = re.findall(r"\b([a-z]+_[a-z_]+)\b(?=[{)\[])", rule["expr"])
    assert name in known
    headings = re.findall(r"^### (.+)$", RUNBOOK, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert rule["annotations"]["runbook"] in anchors
