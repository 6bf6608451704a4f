"""Play seeds: `python -m tests.simulation 134` tells one, `python -m tests.simulation 0 5000` counts what many came to."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from tools.mutants import environment, planted

if TYPE_CHECKING:
    from tests.simulation.places import Place
    from tests.simulation.simulate import Outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", type=int, help="the seed, or the first of many")
    parser.add_argument("end", type=int, nargs="?", help="the seed after the last one")
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    parser.add_argument("--story", action="store_true", help="tell it in words instead of the event log")
    parser.add_argument("--stop", action="store_true", help="end with the first seed that breaks a promise")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write down what many seeds came to")
    parser.add_argument(
        "--plant", metavar="BUG", help="in a copy of the source with this bug of `tools/mutants.py`"
    )
    given = parser.parse_args()
    if given.plant is not None:
        return _play_with_a_bug(given.plant)
    # Not before: whoever plants a bug lets another process play.
    from tests.simulation.places import Files, InMemory, quick_folder
    from tests.simulation.simulate import simulate

    with quick_folder() as folder:
        place: Callable[[], Place] = InMemory
        if given.store == "sqlite":
            place = Files(folder).new
        if given.end is None:
            return _tell(simulate(given.first, place()), in_words=given.story)
        return _count(range(given.first, given.end), place, stop=given.stop, record=given.record)


def _play_with_a_bug(name: str) -> int:
    """The same command in a copy of the source where that bug was planted."""
    words = sys.argv[1:]
    place = next(place for place, word in enumerate(words) if word.startswith("--plant"))
    rest = words[:place] + words[place + (1 if "=" in words[place] else 2) :]
    with planted(name) as copy:
        command = [sys.executable, "-m", "tests.simulation", *rest]
        return subprocess.run(command, cwd=copy, env=environment(copy)).returncode


def _tell(outcome: Outcome, *, in_words: bool) -> int:
    sys.stdout.write((outcome.story() if in_words else outcome.log.decode()) + "\n")
    if outcome.broken is not None and not in_words:
        sys.stderr.write(f"broken: {outcome.broken}\n")
    return outcome.broken is not None


def _count(seeds: range, place: Callable[[], Place], *, stop: bool, record: Path | None) -> int:
    from tests.simulation.simulate import simulate

    counts: Counter[str] = Counter()
    jobs, seconds, broken, began, cpu = 0, 0.0, 0, perf_counter(), process_time()
    for seed in seeds:
        outcome = simulate(seed, place())
        counts.update(outcome.counts)
        jobs, seconds = jobs + outcome.jobs, seconds + outcome.seconds
        if outcome.broken is not None:
            broken += 1
            sys.stdout.write(outcome.story() + "\n\n")
            if stop:
                return 1
    for name, number in sorted(counts.items()):
        sys.stdout.write(f"{number:>9,}  {name}\n")
    spent = perf_counter() - began
    sys.stdout.write(
        f"{len(seeds):,} seeds, {jobs:,} jobs, {seconds / 3600:,.1f} virtual hours in {spent:,.0f} s; broken: {broken}\n"
    )
    if record is not None:
        came_to = {
            "command": " ".join(["python -m tests.simulation", *sys.argv[1:]]),
            "seeds": len(seeds),
            "jobs": jobs,
            "virtual_seconds": round(seconds),
            "cpu_seconds": round(process_time() - cpu, 1),
            "broken": broken,
            "counts": dict(sorted(counts.items())),
        }
        record.write_text(json.dumps(came_to, indent=1) + "\n")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main())
