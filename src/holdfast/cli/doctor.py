"""`holdfast doctor`: check the database, and report each problem with its remedy."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.exit_codes import OK, PROBLEMS
from holdfast.cli.options import PLAIN
from holdfast.cli.views import print_json

if TYPE_CHECKING:  # help must not wait for the engine to be imported
    from holdfast.app import Holdfast
    from holdfast.engine.lane_store import DependencyState
    from holdfast.health.judgement import Check
    from holdfast.jobs.job import Expired, Lane, StuckJob, WorkerRow
    from holdfast.jobs.lanes import Held

doctor = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

STUCK_SHOWN = 100
LONG_TRANSACTION = 300.0  #: seconds


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: str  #: ok, warning, problem
    text: str


@command(doctor)
def examine(cli: Cli) -> int:
    """Check the database, and with --app also the app's tasks. The exit code is 1 if there are problems."""

    async def look(known: Holdfast) -> tuple[list[Finding], dict[str, Any], dict[str, int]]:
        from holdfast.health.diagnostics import Diagnostics

        diagnostics = Diagnostics(known.runtime)
        health, depths = await diagnostics.store_facts(), await diagnostics.depths()
        workers = await known.queues.workers()
        findings = [
            *store_findings(health),
            *invariant_findings(await diagnostics.violations()),
            *lease_findings(await diagnostics.expired(STUCK_SHOWN)),
            *stuck_findings(await known.jobs.stuck(limit=STUCK_SHOWN)),
            *lane_findings(depths, set(known.tasks) if cli.app else None),
            *worker_findings(depths, workers),
            *waiting_findings(workers),
            *pause_findings(await known.queues.holds()),
            *breaker_findings(await known.breakers.list()),
            *extension_findings(await known.runtime.extensions.health()),
        ]
        return findings, health, await known.jobs.counts()

    findings, health, counts = cli.ask(look)
    sick = any(finding.level == "problem" for finding in findings)
    if cli.as_json:
        print_json(
            {"ok": not sick, "findings": [asdict(f) for f in findings], "store": health, "counts": counts}
        )
    else:
        from holdfast.cli.tables import heading, show_facts, show_table

        show_table(["", "check", "finding"], [(f.level, f.check, f.text) for f in findings], empty="")
        heading("Store")
        show_facts(health)
        heading("Jobs")
        show_facts({state: f"{count:,}" for state, count in counts.items()})
    return PROBLEMS if sick else OK


def extension_findings(checks: list[Check]) -> list[Finding]:
    levels = {"pass": "ok", "warn": "warning", "fail": "problem"}
    return [Finding(check.name, levels[check.level], check.text) for check in checks]


def store_findings(health: dict[str, Any]) -> list[Finding]:
    schema = f"schema {health['schema']}" if "schema" in health else "the schema is of this version"
    found = [Finding("store", "ok", f"{health.get('store', 'the store')} answers; {schema}")]
    if health.get("store") == "sqlite":
        from holdfast.stores.sqlite.versions import caution

        if (why := caution(str(health.get("version", "0")))) is not None:
            found.append(Finding("sqlite", "warning", why))
    if health.get("integrity", "ok") != "ok":
        found.append(
            Finding("integrity", "problem", f"the file is damaged: {health['integrity']}; restore a backup")
        )
    if health.get("durable") is False and health.get("store") != "memory":
        found.append(Finding("durability", "problem", "a commit may be lost when the machine stops"))
    if offset := health.get("event_offset"):
        found.append(
            Finding(
                "events",
                "ok",
                f"the database was restored from a dump: event numbers are raised by {offset:,}, so that new ones come last",
            )
        )
    if (held := health.get("oldest_transaction_s") or 0) > LONG_TRANSACTION:
        found.append(
            Finding(
                "transactions",
                "warning",
                f"a transaction has been open for {held:.0f} s: rows that are done with cannot be cleaned away, and"
                " readers of events may have to wait for it;"
                " find it in pg_stat_activity and end it",
            )
        )
    return found


def invariant_findings(violations: list[str]) -> list[Finding]:
    return [Finding("invariants", "problem", text) for text in violations] or [
        Finding("invariants", "ok", "every job's parts agree")
    ]


def lease_findings(stuck: list[Expired]) -> list[Finding]:
    if not stuck:
        return [Finding("leases", "ok", "no lease has run out")]
    shown = ", ".join(lost.lease.job_id for lost in stuck[:3])
    many = f"{len(stuck)}{'+' if len(stuck) == STUCK_SHOWN else ''}"
    return [
        Finding(
            "leases",
            "problem",
            f"{many} jobs whose worker was lost wait to be reclaimed ({shown}…): no process runs maintenance",
        )
    ]


def stuck_findings(stuck: list[StuckJob]) -> list[Finding]:
    """Return findings about stuck attempts. Only the tasks of an app say when an attempt is stuck."""
    if not stuck:
        return []
    shown = ", ".join(one.id for one in stuck[:3])
    many = f"{len(stuck)}{'+' if len(stuck) == STUCK_SHOWN else ''}"
    return [
        Finding(
            "stuck",
            "warning",
            f"{many} attempts run longer than their task's stuck_after ({shown}…): look at their workers, cancel them,"
            ' or set stuck_action="retry"',
        )
    ]


def lane_findings(lanes: dict[Lane, int], tasks: set[str] | None) -> list[Finding]:
    waiting = sum(lanes.values())
    if tasks is None:
        return [
            Finding("tasks", "ok", f"{waiting:,} jobs wait; pass --app to compare their tasks with an app's")
        ]
    unknown = [
        Finding(
            "tasks",
            "problem",
            f"{count:,} jobs wait in queue {lane.queue!r} for task {lane.task!r}, which this app does not have:"
            " run a worker that has it, or cancel them",
        )
        for lane, count in sorted(lanes.items())
        if count and lane.task not in tasks
    ]
    return unknown or [Finding("tasks", "ok", f"{waiting:,} jobs wait, all for tasks of this app")]


def worker_findings(lanes: dict[Lane, int], workers: list[WorkerRow]) -> list[Finding]:
    waiting: dict[str, int] = {}
    for lane, count in lanes.items():
        if count:
            waiting[lane.queue] = waiting.get(lane.queue, 0) + count
    left = {queue: n for queue, n in waiting.items() if not any(worker.serves(queue) for worker in workers)}
    return [
        Finding(
            "workers",
            "warning",
            f"{count:,} jobs wait in queue {queue!r} and no live worker serves it:"
            " start `holdfast worker`, or one with this queue in --queues",
        )
        for queue, count in sorted(left.items())
    ] or [Finding("workers", "ok", f"{len(workers)} live, every queue with jobs is served")]


def waiting_findings(workers: list[WorkerRow]) -> list[Finding]:
    """Return findings about workers whose slots are all taken by handlers that wait for queued jobs."""
    level = (
        "problem" if all(worker.waiting for worker in workers) else "warning"
    )  # otherwise another worker may serve them
    return [
        Finding(
            "waiting",
            level,
            f"all slots of worker {worker.name} ({worker.waiting}) are held by handlers that wait for queued jobs: raise"
            " --concurrency, give the jobs that are waited for a queue and a worker of their own, or raise Snooze"
            " until they are done",
        )
        for worker in workers
        if worker.waiting
    ]


def pause_findings(holds: list[Held]) -> list[Finding]:
    return [
        Finding(
            "pauses",
            "warning",
            f"{held.scope} is held {_until(held)} by {held.by}{f' ({held.reason})' if held.reason else ''}:"
            " what it covers does not start; `holdfast queues resume` ends a pause",
        )
        for held in holds
    ] or [Finding("pauses", "ok", "nothing is paused")]


def _until(held: Held) -> str:
    return "until it is resumed" if held.until is None else f"until {held.until:%Y-%m-%d %H:%M:%S} UTC"


def breaker_findings(dependency_states: list[DependencyState]) -> list[Finding]:
    return [
        Finding(
            "breakers",
            "warning",
            f"the breaker of {state.dependency.label} is {state.breaker.state}: jobs that call it wait;"
            " `holdfast breakers` says since when, and when it is tried again",
        )
        for state in dependency_states
        if state.breaker.state != "closed"
    ] or [Finding("breakers", "ok", f"{len(dependency_states)} dependencies, none is stopped")]
