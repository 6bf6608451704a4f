"""`holdfast stats`: show what happened in a range, from the statistics that the store keeps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli.command import Cli, command
from holdfast.cli.options import PLAIN

if TYPE_CHECKING:
    from holdfast.statistics.reading import BreakdownRow, Overview, Percentiles, StatisticSeries

stats = typer.Typer(**(PLAIN | {"no_args_is_help": False}))

SinceOption = Annotated[
    str,
    typer.Option("--since", help="Where the range begins: 1h, 2d, or a moment such as 2026-05-04T10:00:00Z."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Where it ends; by default now.")]
ByOption = Annotated[str | None, typer.Option("--by", help="A row for each queue, task, dependency or code.")]
MetricOption = Annotated[
    str | None,
    typer.Option("--metric", help="One metric over time, such as completed, waited_p95 or backlog."),
]
StepOption = Annotated[str | None, typer.Option("--step", help="With --metric: minute, hour or day.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="Only this queue.")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only this task.")]
DependencyOption = Annotated[str | None, typer.Option("--dependency", help="Only this dependency.")]


@command(stats)
def show_stats(
    cli: Cli,
    since: SinceOption = "1h",
    until: UntilOption = None,
    by: ByOption = None,
    metric: MetricOption = None,
    step: StepOption = None,
    queue: QueueOption = None,
    task: TaskOption = None,
    dependency: DependencyOption = None,
) -> None:
    """Show what happened: how many jobs, how long they waited and ran, what they cost. With --metric show one metric over time."""
    where: dict[str, Any] = {
        "since": since, "until": until, "queue": queue, "task": task, "dependency": dependency,
    }  # fmt: skip
    if metric is not None:
        _show_series(cli, cli.ask(lambda app: app.stats.series(metric, step=step, by=by, **where)))
    elif by is not None:
        _show_breakdown(cli, by, cli.ask(lambda app: app.stats.breakdown(by, **where)))
    else:
        _show_overview(cli, cli.ask(lambda app: app.stats.overview(**where)))


def _show_overview(cli: Cli, found: Overview) -> None:
    if cli.as_json:
        cli.facts(_view(found) | {"lag_ms": found.lag.total_seconds() * 1000})
        return
    from holdfast.cli.tables import heading, show_facts

    show_facts({"since": f"{found.since:%Y-%m-%d %H:%M} UTC", "until": f"{found.until:%Y-%m-%d %H:%M} UTC"})
    heading("Jobs")
    show_facts({name.replace("_", " "): f"{count:,}" for name, count in found.counts.items()})
    heading("Times (p50, p95, p99)")
    show_facts({"waited": _times(found.waited), "ran": _times(found.ran), "took": _times(found.took)})
    heading("Attempts")
    show_facts(
        {f"completed at attempt {number}": f"{count:,}" for number, count in found.succeeded_at.items()}
        | {"cost of first attempts": f"{found.cost_first:g}", "cost of retries": f"{found.cost_retries:g}"}
    )
    if found.samples:
        heading("Newest samples")
        show_facts({name: f"{value:g}" for name, value in found.samples.items()})


def _show_breakdown(cli: Cli, by: str, rows: list[BreakdownRow]) -> None:
    cli.table(
        {"by": by, "rows": [_view(row) for row in rows]},
        [by, "enqueued", "completed", "retried", "failed", "waited p95", "ran p95", "cost", "of it retries"],
        (
            (
                row.name or "(none)",
                *(f"{row.counts[name]:,}" for name in ("enqueued", "completed", "retried", "failed")),
                _time(row.waited.p95),
                _time(row.ran.p95),
                f"{row.cost_first + row.cost_retries:g}",
                f"{row.cost_retries:g}",
            )
            for row in rows
        ),
        empty="Nothing happened in this range.",
    )


def _show_series(cli: Cli, found: StatisticSeries) -> None:
    names = [line.name or found.metric for line in found.lines]
    cli.table(
        _view(found),
        [found.step, *names],
        (
            (f"{at:%Y-%m-%d %H:%M}", *(None if value is None else f"{value:,.6g}" for value in values))
            for at, *values in zip(found.at, *(line.values for line in found.lines), strict=True)
        )
        if names
        else (),
        empty="Nothing happened in this range.",
    )


def _view(report: Overview | BreakdownRow | StatisticSeries) -> dict[str, Any]:
    """Return a report for JSON, with percentiles by name."""
    shown = {name: value for name, value in asdict(report).items() if name != "lag"}
    return shown | {name: shown[name]._asdict() for name in ("waited", "ran", "took") if name in shown}


def _times(found: Percentiles) -> str | None:
    return None if found.p50 is None else ", ".join(_texts(found))


def _texts(found: Iterable[float | None]) -> list[str]:
    return [_time(one) or "" for one in found]


def _time(milliseconds: float | None) -> str | None:
    """Return a duration with three digits, in the unit that suits it."""
    if milliseconds is None:
        return None
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:,.3g} m"
