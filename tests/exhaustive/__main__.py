"""Walk a scenario that is too large for every change: two workers, two people, a cancel, a crash; some minutes."""

from __future__ import annotations

import sys
from time import perf_counter

from tests.exhaustive.search import Story, explore
from tests.exhaustive.world import Scenario


def main() -> int:
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


if __name__ == "__main__":
    sys.exit(main())
