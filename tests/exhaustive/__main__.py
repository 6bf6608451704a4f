"""Walk a scenario that is too large for every change: two workers, two people, a cancel, a crash; some minutes.

With `--record FILE` the scenarios of every change are walked instead, and how large they are is written down.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import perf_counter

from tests.exhaustive.search import Story, explore
from tests.exhaustive.test_every_story import SCENARIOS
from tests.exhaustive.world import Scenario


def main() -> int:
    if sys.argv[1:2] == ["--record"]:
        return _record(Path(sys.argv[2]))
    began = perf_counter()
    try:
        done = explore(Scenario(clicks=2, cancels=1, crashes=1))
    except Story as story:
        sys.stdout.write(f"{story}\n")
        return 1
    sys.stdout.write(
        f"{done.states:,} states, {done.edges:,} steps in {perf_counter() - began:,.0f} s; none broken\n"
    )
    return 0


def _record(file: Path) -> int:
    walked = {name: explore(scenario) for name, (scenario, _) in SCENARIOS.items()}
    sizes = {name: {"states": done.states, "steps": done.edges} for name, done in walked.items()}
    command = f"python -m tests.exhaustive --record {file}"
    file.write_text(json.dumps({"command": command, "scenarios": sizes}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
