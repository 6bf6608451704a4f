"""The command line. A command's module is imported when the command is called, so that `holdfast --help` is fast."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from holdfast import gc_tuning

#: Each command: its place ("module:attribute") and its line in the help.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("holdfast.cli.worker:up", "Prepare the database and run a worker with everything."),
    "worker": ("holdfast.cli.worker:worker", "Run jobs."),
    "scheduler": ("holdfast.cli.scheduler:scheduler", "Run maintenance, but no jobs."),
    "relay": ("holdfast.cli.outbox:relay", "Deliver outbox messages."),
    "serve": ("holdfast.cli.serve:serve", "Serve the HTTP API."),
    "migrate": ("holdfast.cli.migrate:migrate", "Update the database schema."),
    "enqueue": ("holdfast.cli.enqueue:enqueue", "Enqueue a job."),
    "tasks": ("holdfast.cli.tasks:tasks", "List the tasks of an app and their policies."),
    "jobs": ("holdfast.cli.jobs:jobs", "List, retry and cancel jobs."),
    "dead": ("holdfast.cli.dead:dead", "List, export, redrive and discard dead letters."),
    "events": ("holdfast.cli.events:events", "Print events, and follow new ones."),
    "explain": ("holdfast.cli.explain:explain", "Explain why a job is not running."),
    "queues": ("holdfast.cli.queues:queues", "List queues; pause and resume them."),
    "lanes": ("holdfast.cli.lanes:lanes", "List lanes, what holds them and what limits them."),
    "breakers": ("holdfast.cli.breakers:breakers", "List dependencies; open, close and try their breakers."),
    "policies": ("holdfast.cli.policies:policies", "Show the policies in force; override them."),
    "schedules": ("holdfast.cli.schedules:schedules", "List schedules; run, pause, resume and forget them."),
    "owners": ("holdfast.cli.owners:owners", "Show the limits of owners and what they have used."),
    "keys": ("holdfast.cli.keys:keys", "Create, rotate and revoke keys of the HTTP API."),
    "operations": ("holdfast.cli.operations:operations", "Show and cancel work on many jobs."),
    "webhooks": ("holdfast.cli.webhooks:webhooks", "Create, test, replay and remove webhooks."),
    "outbox": ("holdfast.cli.outbox:outbox", "List, replay, park and discard outbox messages."),
    "workers": ("holdfast.cli.workers:workers", "List running workers."),
    "stats": ("holdfast.cli.stats:stats", "Show what happened: counts, times, costs."),
    "settings": ("holdfast.cli.settings:settings", "Print the settings in force."),
    "doctor": ("holdfast.cli.doctor:doctor", "Check the database and report problems."),
    "bench": ("holdfast.cli.bench:bench", "Measure this store on this machine."),
    "demo": ("holdfast.cli.demo:demo", "Show what happens to three jobs."),
    "simulate": ("holdfast.cli.simulate:simulate", "Simulate outages with retry policies."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. An error is printed in one line; see `holdfast.cli.exit_codes`."""
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
        "  --help     before or after a command: holdfast jobs list --help",
        "  --version",
        "  --install-completion, --show-completion   for your shell",
        "",
        "The database is HOLDFAST_DATABASE_URL, else sqlite:///holdfast.db; --url or --app selects another.",
    ]
    return "\n".join(lines)
