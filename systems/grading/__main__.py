"""`holdfast grading dlq list | recover ID | discard ID`, `status ID`, `outbox`, `alarms`: the desk of those who run grading."""

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
from holdfast.logs import configure
from systems.grading import dlq
from systems.grading.logs import hush_drivers
from systems.grading.settings import Settings
from systems.grading.tasks import Grading
from systems.grading.views import show, show_message
from systems.grading.worker.ledger import Ledger


def _alarms(*, clear: bool) -> int:
    """Print the alarms of this machine's workers. Return 1 while there are any, so that a monitor can check the exit code."""
    file = Settings.read(os.environ).ledger
    if isinstance(file, Path) and not file.exists():
        raise UsageError("there is no ledger here; set LEDGER to that of the workers, on their machine")
    with contextlib.closing(Ledger(file)) as ledger:
        found = ledger.alarms()
        told = [one._asdict() | {"at": datetime.fromtimestamp(one.at, UTC).isoformat()} for one in found]
        print(json.dumps(told, indent=2))
        if clear:
            ledger.clear_alarms()
    return int(bool(found) and not clear)


async def _do(given: argparse.Namespace, grading: Grading) -> Any:
    async with grading.app as app:
        match given.what, given.action:
            case "dlq", "list":
                return [msgspec.to_builtins(one) for one in await dlq.list_dead(grading, limit=given.limit)]
            case "dlq", "recover":
                return show(await dlq.recover(grading, given.id, by="cli"))
            case "dlq", "discard":
                return {"discarded": await dlq.discard(grading, given.id, by="cli")}
            case "status", _:
                return show(await app.job(given.id), await app.late_results(given.id))
            case _:
                return [show_message(one) for one in await app.messages(limit=given.limit)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="holdfast grading", description=__doc__)
    whats = parser.add_subparsers(dest="what", required=True)
    letters = whats.add_parser("dlq", help="dead letters of workers")
    letters.add_argument("action", choices=["list", "recover", "discard"])
    letters.add_argument("id", nargs="?", default="", help="a request id")
    status = whats.add_parser("status", help="one submission")
    status.add_argument("id")
    outbox = whats.add_parser("outbox", help="messages on their way to the broker")
    alarms = whats.add_parser("alarms", help="what the workers of this machine could not tell the broker")
    alarms.add_argument("--clear", action="store_true", help="forget them once they are shown")
    for one in (letters, outbox):
        one.add_argument("--limit", type=int, default=50)
    for one in (status, outbox):
        one.set_defaults(action="")
    given = parser.parse_args(arguments)
    if given.what == "dlq" and given.action == "recover" and not given.id:
        parser.error("recover needs the id of a request; `dlq list` shows them")
    try:
        configure(keep=True)
        if given.what == "alarms":
            return _alarms(clear=given.clear)
        hush_drivers()
        from systems.grading.app import grading

        print(json.dumps(asyncio.run(_do(given, grading)), indent=2, ensure_ascii=False))
    except (HoldfastError, ValueError) as error:
        print(f"grading: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
