"""Operator commands: `holdfast grading dlq list|recover ID|discard ID`, `status ID`, `outbox`, `alarms`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast import HoldfastError, UsageError
from holdfast.logging import configure
from systems.grading import dlq
from systems.grading.logs import silence_drivers
from systems.grading.settings import Settings
from systems.grading.tasks import Grading
from systems.grading.views import show, show_message
from systems.grading.worker.ledger import Ledger


def _alarms(*, clear: bool) -> int:
    """Print the alarms of this machine's workers. Return 1 if there are any: monitors check the exit code."""
    file = Settings.read(os.environ).ledger
    if isinstance(file, Path) and not file.exists():
        raise UsageError(
            "this ledger does not exist; set LEDGER to the ledger of the workers, on their machine"
        )
    with contextlib.closing(Ledger(file)) as ledger:
        alarms = ledger.alarms()
        shown = [one._asdict() | {"at": datetime.fromtimestamp(one.at, UTC).isoformat()} for one in alarms]
        print(json.dumps(shown, indent=2))
        if clear:
            ledger.clear_alarms()
    return int(bool(alarms) and not clear)


async def _run(options: argparse.Namespace, grading: Grading) -> Any:
    async with grading.app as app:
        match options.command, options.action:
            case "dlq", "list":
                return [msgspec.to_builtins(one) for one in await dlq.list_dead(grading, limit=options.limit)]
            case "dlq", "recover":
                return show(await dlq.recover(grading, options.id, by="cli"))
            case "dlq", "discard":
                return {"discarded": await dlq.discard(grading, options.id, by="cli")}
            case "status", _:
                return show(await app.jobs.get(options.id), await app.jobs.late_results(options.id))
            case _:
                return [show_message(one) for one in await app.outbox.list(limit=options.limit)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="holdfast grading", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    letters = commands.add_parser("dlq", help="dead letters of the workers")
    letters.add_argument("action", choices=["list", "recover", "discard"])
    letters.add_argument("id", nargs="?", default="", help="a request id")
    status = commands.add_parser("status", help="show one submission")
    status.add_argument("id")
    outbox = commands.add_parser("outbox", help="show the messages of the outbox")
    alarms = commands.add_parser(
        "alarms", help="show what the workers of this machine could not send to the broker"
    )
    alarms.add_argument("--clear", action="store_true", help="delete the alarms after showing them")
    for one in (letters, outbox):
        one.add_argument("--limit", type=int, default=50)
    for one in (status, outbox):
        one.set_defaults(action="")
    options = parser.parse_args(arguments)
    if options.command == "dlq" and options.action == "recover" and not options.id:
        parser.error("recover needs a request id; `dlq list` shows them")
    try:
        configure(keep=True)
        if options.command == "alarms":
            return _alarms(clear=options.clear)
        silence_drivers()
        from systems.grading.app import grading

        print(json.dumps(asyncio.run(_run(options, grading)), indent=2, ensure_ascii=False))
    except (HoldfastError, ValueError) as error:
        print(f"grading: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
