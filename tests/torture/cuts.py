"""Cut the power of SQLite as `tests/e2e/faults/test_power_cut.py` does, and write down what came of it.

python -m tests.torture.cuts docs/explanation/evidence/power-cuts.json
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.e2e.faults.test_power_cut import cut_everywhere, recorded
from tests.e2e.faults.world import Site
from tests.simulation.places import quick_folder


async def _cut(wait: str) -> dict[str, int]:
    with TemporaryDirectory() as home, quick_folder() as folder:
        async with Site(f"sqlite:///{home}/jobs.db", Path(home)) as site:
            disk, database, words = await recorded(site, wait)
        cuts, lost = cut_everywhere(disk, database, words, folder)
    return {"words": len(words), "writes": len(disk.calls), "cuts": cuts, "losses": len(lost)}


def main() -> int:
    file = Path(sys.argv[1])
    full, normal = asyncio.run(_cut("yes")), asyncio.run(_cut("no"))
    came_to = {"command": f"python -m tests.torture.cuts {file}", "full": full, "normal": normal}
    file.write_text(json.dumps(came_to, indent=1) + "\n")
    return full["losses"] != 0


if __name__ == "__main__":
    sys.exit(main())
