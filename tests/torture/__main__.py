"""Torture the stores: `python -m tests.torture --minutes 10`. With `--record FILE` the summary of one of them is kept for the
evidence page."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.torture.audit import Summary, percentile
from tests.torture.blows import LEASE
from tests.torture.run import torture

STORES = ["sqlite", "postgres", "postgres+brokers"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--store",
        choices=[*STORES, "sqlite+brokers", "all"],
        default="all",
        help="with brokers: workers relay messages to RabbitMQ and get their jobs by hints",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        help="what strikes, in which order; the rest is the machine's. Hints are Redis's if it is odd, else RabbitMQ's",
    )
    parser.add_argument(
        "--lease", type=float, default=LEASE, help="seconds after which a killed worker is taken for lost"
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep the summary; for one store")
    given = parser.parse_args()
    stores = STORES if given.store == "all" else [given.store]
    if given.record is not None and len(stores) > 1:
        parser.error("--record is for one store: say which by --store")
    kept, summaries = True, []
    for store in stores:
        with TemporaryDirectory(prefix="torture-") as folder:
            summary = asyncio.run(torture(store, given.minutes, given.seed, Path(folder), lease=given.lease))
        summaries.append(summary)
        sys.stdout.write(told(summary))
        if given.record is not None:
            summary.command += f" --record {given.record}"
            facts = [f" {json.dumps(name)}: {json.dumps(fact)}" for name, fact in summary.as_json().items()]
            given.record.write_text("{\n" + ",\n".join(facts) + "\n}\n")
        kept = kept and summary.holds
    sys.stdout.write(compared(summaries))
    return not kept


def compared(summaries: Sequence[Summary]) -> str:
    """Return how soon jobs of killed workers ran again on each store, and how that compares with the first."""
    lines = [f"{'running again after a kill':28} p50      p90      p90 / {summaries[0].store}"]
    first = percentile(summaries[0].again, 0.9)
    for one in summaries:
        p50, p90 = (percentile(one.again, share) for share in (0.5, 0.9))
        lines.append(f"{one.store:28} {p50:4.1f} s   {p90:4.1f} s   {p90 / first if first else 0:.2f}")
    return "\n".join(lines) + "\n"


def told(summary: Summary) -> str:
    lines = [
        f"{summary.store}: {summary.acknowledged:,} jobs acknowledged, {summary.attempts:,} attempts begun"
    ]
    if summary.messages:
        lines.append(
            f"{summary.messages:>9,}  messages to be delivered, {summary.doubles:,} arrived once more"
        )
    lines += [f"{number:>9,}  {name}" for name, number in (summary.blows | summary.events).items()]
    for name, waits in (("back in line", summary.back), ("running again", summary.again)):
        p50, p90, p99, longest = (percentile(waits, share) for share in (0.5, 0.9, 0.99, 1))
        lines.append(f"jobs of killed workers {name}: {len(waits):,}; lease {summary.lease_seconds:g} s")
        lines.append(
            f"           after the kill p50 {p50:.1f} s, p90 {p90:.1f} s, p99 {p99:.1f} s, longest {longest:.1f} s"
        )
    for name in ("lost", "second_ends", "stuck", "broken"):
        found: list[str] = getattr(summary, name)
        lines += [f"{len(found):>9,}  {name.replace('_', ' ')}", *(f"           {what}" for what in found)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
