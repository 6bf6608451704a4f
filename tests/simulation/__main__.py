"""Play seeds: `python -m tests.simulation 134` tells one, `python -m tests.simulation 0 5000` counts what many came to."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from time import perf_counter

from tests.simulation.places import Files, InMemory, Place, quick_folder
from tests.simulation.simulate import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("first", type=int, help="the seed, or the first of many")
    parser.add_argument("end", type=int, nargs="?", help="the seed after the last one")
    parser.add_argument("--store", choices=["memory", "sqlite"], default="memory")
    given = parser.parse_args()
    with quick_folder() as folder:
        place: Callable[[], Place] = InMemory
        if given.store == "sqlite":
            place = Files(folder).new
        if given.end is None:
            return _tell(simulate(given.first, place()))
        return _count(range(given.first, given.end), place)


def _tell(outcome: Outcome) -> int:
    sys.stdout.write(outcome.log.decode() + "\n")
    if outcome.broken is not None:
        sys.stderr.write(f"broken: {outcome.broken}\n")
    return outcome.broken is not None


def _count(seeds: range, place: Callable[[], Place]) -> int:
    counts: Counter[str] = Counter()
    jobs, seconds, broken, began = 0, 0.0, 0, perf_counter()
    for seed in seeds:
        outcome = simulate(seed, place())
        counts.update(outcome.counts)
        jobs, seconds = jobs + outcome.jobs, seconds + outcome.seconds
        if outcome.broken is not None:
            broken += 1
            sys.stdout.write(outcome.story() + "\n\n")
    for name, number in sorted(counts.items()):
        sys.stdout.write(f"{number:>9,}  {name}\n")
    spent = perf_counter() - began
    sys.stdout.write(
        f"{len(seeds):,} seeds, {jobs:,} jobs, {seconds / 3600:,.1f} virtual hours in {spent:,.0f} s; broken: {broken}\n"
    )
    return broken > 0


if __name__ == "__main__":
    sys.exit(main())
