"""`python -m benchmarks`: measure, print, and write the page. `make bench ARGS="--quick"` is the same."""

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
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    parser.add_argument("--seconds", type=float, default=1.2, help="about how long a cell runs (1.2)")
    parser.add_argument("--scenarios", default=",".join(EVERY), help=f"some of {','.join(EVERY)}")
    parser.add_argument("--peers", help="only these queues beside Holdfast and the floors; '' for none")
    parser.add_argument(
        "--quick", action="store_true", help="one short round; for trying the harness, not for figures"
    )
    parser.add_argument(
        "--write-docs", action="store_true", help="keep the cells and write docs/explanation/speed.*"
    )
    parser.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="report these cells; measure nothing"
    )
    chosen_options = parser.parse_args()
    if unknown := set(chosen_options.scenarios.split(",")) - set(EVERY):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(EVERY)}")
    return chosen_options


def main() -> int:
    asked = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if asked.source:
        results = json.loads(asked.source.read_text())
    else:
        results = Run(asked).measure()
    print()
    print(report.as_text(results))
    if asked.write_docs:
        report.RESULTS.write_text(_as_json(results))
        page.PAGE.write_text(page.render(results))
        plot.PLOT.write_text(plot.render(results))
        print(
            f"\nwritten: {', '.join(str(path.relative_to(ROOT)) for path in (report.RESULTS, page.PAGE, plot.PLOT))}"
        )
    return 0


class Run:
    def __init__(self, asked: argparse.Namespace) -> None:
        self.rounds = 1 if asked.quick else asked.rounds
        self.scenarios = [name for name in EVERY if name in asked.scenarios.split(",")]
        self.plan = Plan(seconds=asked.seconds)
        if asked.quick:
            self.plan = Plan(seconds=0.7, held=10, window=5, idle=4, pulses=80, backlog=100_000)
        self.quick = asked.quick
        self.subjects: list[Subject] = []
        self.missing: dict[str, str] = {}
        for subject in chosen(asked.peers, fast=asked.quick):
            try:
                python_of(subject)
                self.subjects.append(subject)
            except CannotInstall as error:
                self.missing[subject.name] = str(error)
                print(f"{subject.name}: not measured, for it could not be installed: {error}")
        LOCAL.mkdir(parents=True, exist_ok=True)
        self.file = LOCAL / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
        self.began = time.monotonic()
        self.results: dict[str, Any] = {"about": {}, "cells": []}

    def measure(self) -> dict[str, Any]:
        with Arena() as arena:
            self.results["about"] = self._about(arena)
            if not self.quick:
                self._trial(arena)
            for number in range(1, self.rounds + 1):
                for scenario in self.scenarios:
                    self._scenario(arena, scenario, number)
        self.results["about"]["minutes"] = round((time.monotonic() - self.began) / 60, 1)
        self._save()
        return self.results

    def _trial(self, arena: Arena) -> None:
        """Round 0: every size of worker, short. The best one is used from here on, and these cells count no more."""
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
            for name, found in TOGETHER[scenario](arena, subjects, self.plan).items():
                self._keep(name, scenario, number, load, found)
            return
        for subject in subjects:
            found = self._cell(arena, subject, scenario, number, self.plan)
            if (
                scenario in RACES and "rate" in found
            ):  # the next cell shall take its time, neither more nor less
                self.plan.rates[subject.name, scenario] = found["rate"]

    def _cell(self, arena: Arena, subject: Subject, scenario: str, number: int, plan: Plan) -> Figures:
        load = _load()
        try:
            found = ALONE[scenario](arena, subject, plan)
        except CellFailed as error:
            found = {"error": str(error)}
            if (broken := arena.clients.pop(subject.name, None)) is not None:
                broken.end()  # it may be in any state; the next cell gets another one
        self._keep(subject.name, scenario, number, load, found)
        return found

    def _keep(self, subject: str, scenario: str, number: int, load: float, found: Figures) -> None:
        figures = {name: report.rounded(value) for name, value in found.items()}
        self.results["cells"].append(
            {"subject": subject, "scenario": scenario, "round": number, "load": load, **figures}
        )
        told = " ".join(f"{name}={value}" for name, value in figures.items())
        print(f"{time.monotonic() - self.began:5.0f} s  {number} {scenario:9}{subject:16}{told}", flush=True)
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
    """One cell a line: small, and a change reads well."""
    about = json.dumps(results["about"])
    cells = ",\n".join(f"  {json.dumps(cell)}" for cell in results["cells"])
    return f'{{"about": {about},\n "cells": [\n{cells}\n]}}\n'


if __name__ == "__main__":
    sys.exit(main())
