"""`/stats`: what happened, in minutes, hours and days. Keys of owners are refused, because figures are not kept by owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from holdfast.engine.access import Action
from holdfast.server.responses import answer
from holdfast.server.routing import allows, app_of, router
from holdfast.server.types import Moment, ResponseModel, Span, Word
from holdfast.statistics.metrics import STEPS
from holdfast.statistics.reading import DIMENSIONS, NAMES

_AT = "A duration before now, such as 1h, or a moment such as 2026-05-04T10:00:00Z."
Since = Annotated[Span | Moment, Query(description=f"Where the range begins. {_AT}")]
Until = Annotated[Span | Moment | None, Query(description=f"Where it ends; by default now. {_AT}")]
Only = Annotated[Word | None, Query(description="Only this one.")]


def _one_of(names: Iterable[str], description: str) -> Any:
    """Return a parameter that is one of *names*, which `app.stats` checks."""
    return Query(description=description, json_schema_extra={"enum": list(names)})


By = Annotated[str, _one_of(DIMENSIONS, "What to split by.")]
MaybeBy = Annotated[SkipJsonSchema[None] | str, _one_of(DIMENSIONS, "What to split by.")]
MaybeStep = Annotated[
    SkipJsonSchema[None] | str,
    _one_of((step.name for step in STEPS), "By default the shortest with few periods."),
]
MetricName = Annotated[str, _one_of(NAMES, "What to read; percentiles are in milliseconds.")]


class PercentilesView(ResponseModel):
    p50: float | None = Field(description="In milliseconds; null where nothing was counted.")
    p95: float | None
    p99: float | None


class StatisticsOverview(ResponseModel):
    since: datetime
    until: datetime
    lag_ms: float = Field(description="How old the oldest event is that is not counted yet.")
    counts: dict[str, int] = Field(examples=[{"enqueued": 120, "completed": 118, "failed": 2}])
    cost_first: float = Field(description="What first attempts cost.")
    cost_retries: float = Field(description="What all later attempts cost.")
    succeeded_at: dict[str, int] = Field(description="Completions by the number of the attempt.")
    waited: PercentilesView = Field(description="From when a job was due to its claim.")
    ran: PercentilesView = Field(description="Attempts.")
    took: PercentilesView = Field(description="From the enqueue to the completion.")
    samples: dict[str, float] = Field(
        description="The newest samples: `backlog`, `oldest` (seconds), `workers`, …"
    )


class StatisticLineView(ResponseModel):
    name: str
    values: list[float | None]


class StatisticSeriesView(ResponseModel):
    metric: str
    step: str
    at: list[datetime] = Field(description="When each period began.")
    lines: list[StatisticLineView]


class BreakdownRowView(ResponseModel):
    name: str
    counts: dict[str, int]
    cost_first: float
    cost_retries: float
    waited: PercentilesView
    ran: PercentilesView
    took: PercentilesView


class Breakdown(ResponseModel):
    by: str
    rows: list[BreakdownRowView]


routes = router("statistics")


@routes.get("/stats/overview", response_model=StatisticsOverview, **allows(Action.LOOK))
async def get_overview(
    request: Request,
    since: Since = "1h",
    until: Until = None,
    queue: Only = None,
    task: Only = None,
    dependency: Only = None,
) -> Response:
    """Get what happened in a range, and the newest samples."""
    found = await app_of(request).stats.overview(
        since=since,
        until=until,
        queue=queue,
        task=task,
        dependency=dependency,
    )
    shown = as_dict(found)
    shown["lag_ms"] = shown.pop("lag").total_seconds() * 1000
    return answer(shown)


@routes.get("/stats/series", response_model=StatisticSeriesView, **allows(Action.LOOK))
async def get_series(
    request: Request,
    metric: MetricName,
    since: Since = "1h",
    until: Until = None,
    step: MaybeStep = None,
    by: MaybeBy = None,
    queue: Only = None,
    task: Only = None,
    dependency: Only = None,
    code: Only = None,
) -> Response:
    """Get one metric over time."""
    found = await app_of(request).stats.series(
        metric,
        since=since,
        until=until,
        step=step,
        by=by,
        queue=queue,
        task=task,
        dependency=dependency,
        code=code,
    )
    return answer(as_dict(found))


@routes.get("/stats/breakdown", response_model=Breakdown, **allows(Action.LOOK))
async def get_breakdown(
    request: Request,
    by: By,
    since: Since = "1h",
    until: Until = None,
    queue: Only = None,
    task: Only = None,
    dependency: Only = None,
    code: Only = None,
) -> Response:
    """Get what happened in a range, for each queue, task, dependency or error code."""
    found = await app_of(request).stats.breakdown(
        by,
        since=since,
        until=until,
        queue=queue,
        task=task,
        dependency=dependency,
        code=code,
    )
    return answer({"by": by, "rows": [as_dict(row) for row in found]})


def as_dict(report: Any) -> dict[str, Any]:
    """Return a report as a dictionary, with percentiles by name."""
    shown = asdict(report)
    for name in ("waited", "ran", "took"):
        if name in shown:
            shown[name] = shown[name]._asdict()
    return shown
