"""`holdfast reports stats`: print figures on the reports in the database that DATABASE_URL names (P6)."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import sys
import time
from pathlib import Path

from holdfast import HoldfastError, UsageError
from systems.reports.records import open_records
from systems.reports.settings import Settings
from systems.reports.stats import Stats, take_stats

_LINES = (
    ("reports", "{0.reports:,} started: {0.succeeded:,} succeeded, {0.failed:,} failed"),
    ("retry rate", "{0.retry_rate:.1%} ({0.retries:,} retries)"),
    ("final failures", "{0.final_failure_rate:.1%}"),
    ("time to success", "{0.mean_seconds_to_success:.1f} s mean, {0.p95_seconds_to_success:.1f} s p95"),
    ("schema failures", "{0.schema_failure_share:.1%}, {0.captures:,} captures"),
    ("model", "{0.calls:,} calls, {0.tokens_in:,} tokens in, {0.tokens_out:,} out"),
    (
        "cost",
        "{0.cost:.4f} in total, {0.cost_per_success:.6f} per success, {0.cost_of_retries:.4f} for repeated calls",
    ),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="holdfast reports", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("stats", help="retry rate, failures, times, captures and cost")
    command.add_argument("--hours", type=float, default=0.0, help="how many hours back to read; 0 for all")
    command.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        settings = Settings.read(os.environ)
        _, is_file, path = settings.database_url.partition("sqlite:///")
        if is_file and not Path(path).exists():
            raise UsageError("there is no reports database here")
        since = time.time() - options.hours * 3600 if options.hours > 0 else 0.0
        stats = asyncio.run(_take(settings.database_url, since))
    except (HoldfastError, OSError, sqlite3.Error) as error:
        reason = str(error) if isinstance(error, HoldfastError) else "the database cannot be read"
        print(f"reports: {reason}; set DATABASE_URL to the reports database", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(stats.as_json()))
        return 0
    for name, line in _LINES:
        print(f"{name:<16} {line.format(stats)}")
    for code, number in sorted(stats.failed_by_code.items()):
        print(f"  {code:<20} {number:,}")
    return 0


async def _take(url: str, since: float) -> Stats:
    async with open_records(url) as records:
        return await take_stats(records, since=since)


if __name__ == "__main__":
    sys.exit(main())
