"""The speed page says what the kept cells say, and the figures are made as the page describes. Nothing is timed here."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import page, plot, report
from benchmarks.report import Cells, Results
from benchmarks.scenarios import EVERY, Plan, taking_part
from benchmarks.subjects import FLOOR, OURS, SUBJECTS, chosen

ADAPTERS = Path(report.__file__).parent / "adapters"


@pytest.mark.parametrize("name", sorted(path.stem for path in ADAPTERS.parent.glob("[a-z]*.py")))
def test_every_benchmark_can_be_begun(name: str) -> None:
    """They are run by hand and seldom: what they use has moved away more than once."""
    assert import_module(f"benchmarks.{name}").__doc__


def cell(subject: str, scenario: str, number: int = 1, **figures: Any) -> dict[str, Any]:
    return {"subject": subject, "scenario": scenario, "round": number, "load": 0.0, **figures}


def results(*cells: dict[str, Any]) -> Results:
    about = {
        "date": "2026-01-01",
        "rounds": 3,
        "seconds": 1,
        "backlog": 300_000,
        "held": 60,
        "window": 10,
        "minutes": 11.0,
        "quick": False,
        "cpus": 2,
        "python": "3.11",
        "postgres": 15,
        "versions": {"huey": "huey 3"},
        "missing": {"awa": "no wheel"},
    }
    return {"about": about, "cells": list(cells)}


def told(some: Results, store: Any, what: str, compare: str) -> list[str]:
    rows = report.target_rows(some, store)
    return next(row[2:] for row in rows if row[:2] == [what, compare])


def test_the_page_and_the_picture_are_what_the_kept_cells_make() -> None:
    kept = report.load()
    assert page.PAGE.read_text(encoding="utf-8") == page.render(kept), f"run {page.COMMAND}"
    assert plot.PLOT.read_text(encoding="utf-8") == plot.render(kept), f"run {page.COMMAND}"


def test_a_ratio_is_taken_within_its_round_and_told_with_its_spread() -> None:
    some = results(
        *[cell("limit_pg", "b2", number, rate=rate) for number, rate in enumerate((100, 1000, 10), 1)],
        *[cell("holdfast_pg", "b2", number, rate=rate) for number, rate in enumerate((50, 700, 6), 1)],
    )
    assert told(some, "postgres", "drain", "of the floor") == ["0.60× (0.50..0.70)", "≥ 0.55×", "met"]


def test_the_best_peer_is_the_best_of_that_round_on_that_store() -> None:
    some = results(
        cell("pgqueuer", "b5", 1, rate=10),
        cell("awa", "b5", 1, rate=20),
        cell("pgqueuer", "b5", 2, rate=30),
        cell("huey", "b5", 1, rate=1000),
        cell("holdfast_pg", "b5", 1, rate=100),
        cell("holdfast_pg", "b5", 2, rate=90),
    )
    assert (
        told(some, "postgres", "drain, every job fails once", "of the best peer (pgqueuer, awa)")[0]
        == "4.00× (3.00..5.00)"
    )


def test_less_is_better_where_the_target_is_a_most() -> None:
    some = results(
        cell("holdfast_pg", "wal", bytes=1400.0), cell("holdfast_sqlite", "b7", cpu=2.0, rss_mb=50.0)
    )
    assert told(some, "postgres", "write-ahead log per job", "") == ["1.40 kB", "≤ 1.90 kB", "met"]
    assert told(some, "sqlite", "idle worker, CPU", "of one core") == ["2.00 %", "≤ 1.00 %", "missed"]
    assert told(some, "sqlite", "drain", "of huey") == ["–", "≥ 8.00×", "not measured"]


def test_the_trial_round_and_failed_cells_do_not_count() -> None:
    some = results(
        cell("huey", "b2", 0, rate=1),
        cell("huey", "b2", 1, error="no job began"),
        cell("huey", "b2", 2, rate=2, unfinished=5, n=9, seconds=40),
    )
    assert Cells(some).values("huey", "b2") == {}
    assert "No figure: huey, b2, round 1: no job began" in report.as_text(some)
    assert "5 of 9 jobs were unfinished" in page.render(some)


def test_the_picture_is_well_formed_and_has_a_bar_for_each_queue() -> None:
    rates = {"limit_pg": 100.0, "holdfast_pg": 60.0, "pgqueuer": 20.0}
    some = results(
        *[cell(name, scenario, rate=rate) for name, rate in rates.items() for scenario in ("b2", "b5")]
    )
    picture = ElementTree.fromstring(plot.render(some))
    bars = [node for node in picture.iter() if node.get("class") in ("holdfast", "peer")]
    assert [node.get("class") for node in bars] == ["holdfast", "peer"] * 2
    widths = [float(node.get("width", "0")) for node in bars[:2]]
    assert widths[0] / widths[1] == pytest.approx(3)


def test_a_peer_that_could_not_be_installed_is_named_on_the_page() -> None:
    assert "Not measured: awa, which could not be installed: no wheel" in page.render(results())


def test_every_subject_has_an_adapter_that_defines_a_queue() -> None:
    for subject in SUBJECTS:
        tree = ast.parse((ADAPTERS / f"{subject.adapter}.py").read_text(encoding="utf-8"))
        assert "Queue" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}, subject.name


def test_the_floors_and_holdfast_are_in_every_round_and_nobody_is_lost() -> None:
    subjects = chosen("")
    assert {subject.name for subject in subjects} == {*FLOOR.values(), *OURS.values()}
    for scenario in EVERY:
        assert taking_part(list(SUBJECTS), scenario, 1)
    assert taking_part(subjects, "b6", 3) == subjects
    assert {subject.name for subject in taking_part(list(SUBJECTS), "b5", 2)} >= {"pgqueuer", "awa", "huey"}


def test_a_cell_has_as_many_jobs_as_run_in_its_time() -> None:
    holdfast = next(subject for subject in SUBJECTS if subject.name == "holdfast_pg")
    plan = Plan(seconds=2)
    plan.rates[holdfast.name, "b2"] = 10_000
    assert plan.jobs(holdfast) == 20_000
    assert plan.jobs(holdfast, "b5") == 8000
    plan.rates[holdfast.name, "b5"] = 50
    assert plan.jobs(holdfast, "b5") == 200
