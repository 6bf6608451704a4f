"""Torture both stores: `python -m tests.torture --minutes 10`. With --record the summary is kept for the evidence page."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.torture.audit import Summary, percentile
from tests.torture.run import torture

KEPT = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "evidence"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--store", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument(
        "--seed", type=int, default=1, help="what strikes, in which order; the rest is the machine's"
    )
    parser.add_argument(
        "--record", action="store_true", help="keep the summary for `python -m tools.evidence`"
    )
    given = parser.parse_args()
    stores = ["sqlite", "postgres"] if given.store == "both" else [given.store]
    kept = True
    for store in stores:
        with TemporaryDirectory(prefix="torture-") as folder:
            summary = asyncio.run(torture(store, given.minutes, given.seed, Path(folder)))
        sys.stdout.write(told(summary))
        if given.record:
            facts = [f" {json.dumps(name)}: {json.dumps(fact)}" for name, fact in summary.as_json().items()]
            (KEPT / f"torture-{store}.json").write_text("{\n" + ",\n".join(facts) + "\n}\n")
        kept = kept and summary.holds
    return not kept


def told(summary: Summary) -> str:
    lines = [
        f"{summary.store}: {summary.acknowledged:,} jobs acknowledged, {summary.attempts:,} attempts begun"
    ]
    lines += [f"{number:>9,}  {name}" for name, number in (summary.blows | summary.events).items()]
    for name, waits in (("back in line", summary.back), ("running again", summary.again)):
        p50, p99, longest = (percentile(waits, share) for share in (0.5, 0.99, 1))
        lines.append(f"jobs of killed workers {name}: {len(waits):,}; lease {summary.lease_seconds:g} s")
        lines.append(f"           after the kill p50 {p50:.1f} s, p99 {p99:.1f} s, longest {longest:.1f} s")
    for name in ("lost", "second_ends", "stuck", "broken"):
        found: list[str] = getattr(summary, name)
        lines += [f"{len(found):>9,}  {name.replace('_', ' ')}", *(f"           {what}" for what in found)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
