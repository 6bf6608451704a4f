"""`python -m benchmarks`: measure, print, and write the page. `make bench ARGS="--quick"` runs it too."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import page, plot, report
from benchmarks.arena import Arena, CellFailed
from benchmarks.environments import ROOT, CannotInstall, python_of
from benchmarks.scenarios import ALONE, EVERY, RACES, TOGETHER, Figures, Plan, taking_part
from benchmarks.subjects import Subject, chosen

LOCAL = Path(__file__).parent / "results" / "local"
TRIAL_SECONDS = 0.7


def options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--seconds", type=float, default=1.2, help="the approximate length of a cell (1.2)")
    parser.add_argument("--scenarios", default=",".join(EVERY), help=f"some of {','.join(EVERY)}")
    parser.add_argument(
        "--peers", help="only these queues in addition to Holdfast and the floors; '' for none"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to try the harness; its figures are noise"
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="keep the cells and write docs/explanation/speed.*"
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="report the cells in FILE instead of measuring",
    )
    chosen_options = parser.parse_args()
    if unknown := set(chosen_options.scenarios.split(",")) - set(EVERY):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(EVERY)}")
    return chosen_options


def main() -> int:
    arguments = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if arguments.source:
        results = json.loads(arguments.source.read_text())
    else:
        results = Run(arguments).measure()
    print()
    print(report.as_text(results))
    if arguments.write_docs:
        report.RESULTS.write_text(_as_json(results))
        page.PAGE.write_text(page.render(results))
        plot.PLOT.write_text(plot.render(results))
        print(
            f"\nwritten: {', '.join(str(path.relative_to(ROOT)) for path in (report.RESULTS, page.PAGE, plot.PLOT))}"
        )
    return 0


class Run:
    """One run: its settings, the subjects that could be installed, and the cells measured so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.rounds = 1 if arguments.quick else arguments.rounds
        self.scenarios = [name for name in EVERY if name in arguments.scenarios.split(",")]
        self.plan = Plan(seconds=arguments.seconds)
        if arguments.quick:
            self.plan = Plan(seconds=0.7, held=10, window=5, idle=4, pulses=80, backlog=100_000)
        self.quick = arguments.quick
        self.subjects: list[Subject] = []
        self.missing: dict[str, str] = {}
        for subject in chosen(arguments.peers, fast=arguments.quick):
            try:
                python_of(subject)
                self.subjects.append(subject)
            except CannotInstall as error:
                self.missing[subject.name] = str(error)
                print(f"{subject.name}: not measured, because it could not be installed: {error}")
        LOCAL.mkdir(parents=True, exist_ok=True)
        self.file = LOCAL / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        self.started = time.monotonic()
        self.results: dict[str, Any] = {"about": {}, "cells": []}

    def measure(self) -> dict[str, Any]:
        """Measure all cells, and return the results. They are saved after each cell."""
        with Arena() as arena:
            self.results["about"] = self._about(arena)
            if not self.quick:
                self._trial(arena)
            for number in range(1, self.rounds + 1):
                for scenario in self.scenarios:
                    self._scenario(arena, scenario, number)
        self.results["about"]["minutes"] = round((time.monotonic() - self.started) / 60, 1)
        self._save()
        return self.results

    def _trial(self, arena: Arena) -> None:
        """Round 0: measure each worker size briefly, and use the best one from then on.

        Its cells do not count.
        """
        trial = Plan(seconds=min(TRIAL_SECONDS, self.plan.seconds))
        for subject in self.subjects:
            for size in subject.sizes:
                trial.sizes[subject.name] = size
                self._cell(arena, subject, "b2", 0, trial)
            tried = [
                cell
                for cell in self.results["cells"]
                if cell["subject"] == subject.name and "rate" in cell and "unfinished" not in cell
            ]
            if tried:
                best = max(tried, key=lambda cell: float(cell["rate"]))
                self.plan.sizes[subject.name] = best["size"]
                self.plan.rates[subject.name, "b2"] = best["rate"]

    def _scenario(self, arena: Arena, scenario: str, number: int) -> None:
        subjects = taking_part(self.subjects, scenario, number)
        if not subjects:
            return
        arena.server.execute("CHECKPOINT")
        if scenario in TOGETHER:
            load = _load()
            for name, figures in TOGETHER[scenario](arena, subjects, self.plan).items():
                self._keep(name, scenario, number, load, figures)
            return
        for subject in subjects:
            figures = self._cell(arena, subject, scenario, number, self.plan)
            if scenario in RACES and "rate" in figures:  # gives the next cell the right number of jobs
                self.plan.rates[subject.name, scenario] = figures["rate"]

    def _cell(self, arena: Arena, subject: Subject, scenario: str, number: int, plan: Plan) -> Figures:
        load = _load()
        try:
            figures = ALONE[scenario](arena, subject, plan)
        except CellFailed as error:
            figures = {"error": str(error)}
            if (broken := arena.clients.pop(subject.name, None)) is not None:
                broken.end()  # its state is unknown; the next cell starts a new client
        self._keep(subject.name, scenario, number, load, figures)
        return figures

    def _keep(self, subject: str, scenario: str, number: int, load: float, figures: Figures) -> None:
        """Add a cell to the results, print it, and save them."""
        figures = {name: report.rounded(value) for name, value in figures.items()}
        self.results["cells"].append(
            {"subject": subject, "scenario": scenario, "round": number, "load": load, **figures}
        )
        text = " ".join(f"{name}={value}" for name, value in figures.items())
        print(
            f"{time.monotonic() - self.started:5.0f} s  {number} {scenario:9}{subject:16}{text}", flush=True
        )
        self._save()

    def _save(self) -> None:
        self.file.write_text(_as_json(self.results))

    def _about(self, arena: Arena) -> dict[str, Any]:
        return {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "rounds": self.rounds,
            "seconds": self.plan.seconds,
            "backlog": self.plan.backlog,
            "held": self.plan.held,
            "window": self.plan.window,
            "quick": self.quick,
            "cpus": os.cpu_count(),
            "python": platform.python_version(),
            "postgres": arena.server.binaries.major,
            "versions": {subject.name: subject.label for subject in self.subjects if subject.role == "peer"},
            "missing": self.missing,
        }


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _as_json(results: dict[str, Any]) -> str:
    """Return the results as JSON with one cell a line, so that diffs are readable."""
    about = json.dumps(results["about"])
    cells = ",\n".join(f"  {json.dumps(cell)}" for cell in results["cells"])
    return f'{{"about": {about},\n "cells": [\n{cells}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
