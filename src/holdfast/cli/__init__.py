"""The command line. This file is all that `holdfast --help` needs: a command's module is imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from holdfast import gc_tuning

#: command → where it is ("module:attribute") and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("holdfast.cli.worker:up", "Make the database ready; run a worker, duties and relay."),
    "worker": ("holdfast.cli.worker:worker", "Run jobs until told to stop."),
    "scheduler": ("holdfast.cli.scheduler:scheduler", "Do the duties, and no job."),
    "relay": ("holdfast.cli.outbox:relay", "Bring messages of the outbox to their targets."),
    "serve": ("holdfast.cli.serve:serve", "Answer the HTTP API."),
    "migrate": ("holdfast.cli.migrate:migrate", "Bring the database's schema up to date."),
    "jobs": (
        "holdfast.cli.jobs:jobs",
        "Look at jobs; retry and cancel them; reclaim those that are stuck.",
    ),
    "dead": ("holdfast.cli.dead:dead", "Look at dead letters; redrive and discard them."),
    "events": ("holdfast.cli.events:events", "Print what happened, or follow it."),
    "explain": ("holdfast.cli.explain:explain", "Say why a job is not running."),
    "queues": ("holdfast.cli.queues:queues", "How queues stand; pause and resume them."),
    "lanes": ("holdfast.cli.lanes:lanes", "What waits in each lane, what holds and limits it."),
    "breakers": ("holdfast.cli.breakers:breakers", "How dependencies stand; open or close a breaker."),
    "schedules": ("holdfast.cli.schedules:schedules", "When schedules tick; pause and resume one."),
    "keys": ("holdfast.cli.keys:keys", "Keys of the HTTP API: make, rotate and revoke them."),
    "operations": ("holdfast.cli.operations:operations", "Work on many jobs at once: how it stands."),
    "webhooks": ("holdfast.cli.webhooks:webhooks", "Who is told of what happens: make, test, enable."),
    "outbox": ("holdfast.cli.outbox:outbox", "Messages for others: look, replay and park them."),
    "credits": ("holdfast.cli.credits:credits", "Accounts and their credits: give, look, check."),
    "workers": ("holdfast.cli.workers:workers", "List the workers that live."),
    "doctor": ("holdfast.cli.doctor:doctor", "Check the database and say what is wrong."),
    "bench": ("holdfast.cli.bench:bench", "Measure this store on this machine."),
    "demo": ("holdfast.cli.demo:demo", "Show what becomes of three jobs, in a few seconds."),
    "simulate": ("holdfast.cli.simulate:simulate", "Play an outage against retry policies."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. What goes wrong becomes one line and a code (`holdfast.cli.exit_codes`)."""
    args = list(sys.argv[1:] if argv is None else argv)
    if "_HOLDFAST_COMPLETE" in os.environ or args[:1] in (["--install-completion"], ["--show-completion"]):
        from holdfast.cli.loading import complete

        return complete(args)
    if not args or args[0] in ("--help", "-h", "help"):
        print(help_text())
        return 0 if args else 2
    if args[0] in ("--version", "-V"):
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    if argv is None:
        gc_tuning.raise_threshold()
    from holdfast.cli.loading import call

    return call(args[0], args[1:])


def help_text() -> str:
    from holdfast.cli.plugins import plugin_names

    lines = ["Usage: holdfast COMMAND [ARGUMENTS]", "", "Durable jobs for Python.", "", "Commands:"]
    lines += [f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()]
    added = plugin_names()
    if added:
        lines += ["", "Added by installed packages:"]
        lines += [f"  {name:<10} from {package}" for name, package in added.items()]
    lines += [
        "",
        "Options:",
        "  --help     also after a command: holdfast jobs list --help",
        "  --version",
        "  --install-completion, --show-completion   for your shell",
        "",
        "The database is HOLDFAST_DATABASE_URL, else sqlite:///holdfast.db; --url or --app names another.",
    ]
    return "\n".join(lines)
