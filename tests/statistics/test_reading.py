"""What can be asked of statistics, and what is answered."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import UsageError
from holdfast.statistics.metrics import DAY, HOUR, MINUTE, OTHER, Metric
from holdfast.statistics.reading import (
    MOST_LINES,
    NAMES,
    FigureRow,
    TimeRange,
    breakdown_of,
    metric_named,
    overview_of,
    series_of,
    time_range,
)
from holdfast.values.histogram import bucket_of

NOW = datetime(2026, 5, 4, 10, 30, 20, tzinfo=UTC)
AT = NOW.replace(second=0)
RANGE = TimeRange(since=AT, until=AT + timedelta(minutes=3), step=MINUTE)


@pytest.mark.parametrize(
    ("since", "step"),
    [
        ("1h", MINUTE),
        ("6h", MINUTE),
        ("12h", HOUR),
        ("14d", HOUR),
        ("80d", HOUR),
        ("1w", HOUR),
        ("200d", DAY),
    ],
)
def test_the_shortest_step_that_has_few_periods_is_chosen(since: str, step: object) -> None:  # E68a
    assert time_range(since, None, None, NOW).step == step


def test_a_range_is_widened_to_whole_periods() -> None:  # E68a
    found = time_range("2026-05-04T10:00:30Z", "2026-05-04T12:10:30 02:00", "minute", NOW)
    assert (found.since, found.until) == (NOW.replace(minute=0, second=0), NOW.replace(minute=11, second=0))
    assert len(list(found.periods())) == 11


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"since": "soon"}, "since: 'soon' is not a duration"),
        ({"since": "2026-05-04Tea"}, "write a duration such as 1h, or a moment such as"),
        ({"since": datetime(2026, 5, 4)}, "give it a time zone"),  # noqa: DTZ001
        ({"since": "1h", "until": "2h"}, "is not before until .* swap them"),
        (
            {"since": "3d", "step": "minute"},
            "figures of a minute are kept for 2d; begin later, or choose a longer step",
        ),
        ({"since": "1h", "step": "week"}, "step is 'week'; it is minute, hour or day"),
        ({"since": "40h", "until": "0s", "step": "minutes"}, "it is minute, hour or day"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(asked: dict[str, Any], error: str) -> None:  # E68a
    with pytest.raises(UsageError, match=error):
        time_range(**{"until": None, "step": None, "now": NOW, **asked})


def test_a_range_of_too_many_periods_is_refused() -> None:  # E68a
    with pytest.raises(UsageError, match="more than 3,000; choose a longer step or a shorter range"):
        time_range("48h", NOW + timedelta(hours=48), "minute", NOW)


def test_every_metric_has_a_name_and_others_are_refused() -> None:  # E68a
    assert metric_named("completed") == (Metric.completed, None)
    assert metric_named("waited_p95") == (Metric.waited, 0.95)
    assert len({metric_named(name) for name in NAMES}) == len(NAMES)
    with pytest.raises(UsageError, match="there is no metric 'speed'; there are enqueued, started"):
        metric_named("speed")


def test_a_period_without_events_counts_nothing_and_has_no_percentile() -> None:  # E68a
    rows = [FigureRow(AT, "", Metric.completed, 0, 4.0)]
    [line] = series_of("completed", rows, RANGE).lines
    assert list(line.values) == [4, 0, 0]
    rows = [FigureRow(AT + MINUTE.span, "", Metric.ran, bucket_of(1000), 2.0)]
    before, found, after = series_of("ran_p50", rows, RANGE).lines[0].values
    assert (before, after) == (None, None)
    assert found == pytest.approx(1000, rel=0.15)


def test_lines_beyond_the_largest_are_added_up() -> None:  # E68a
    rows = [
        FigureRow(AT, f"q{number:02}", Metric.enqueued, 0, 100.0 - number) for number in range(MOST_LINES + 3)
    ]
    lines = {line.name: line.values[0] for line in series_of("enqueued", rows, RANGE).lines}
    assert len(lines) == MOST_LINES + 1
    assert lines[OTHER.queue] == 80 + 79 + 78
    rows = [row._replace(metric=Metric.oldest) for row in rows]
    assert series_of("oldest", rows, RANGE).lines[-1].values == (80, None, None)  # the highest


def test_an_overview_adds_up_its_range_and_shows_the_newest_samples() -> None:  # E68a
    rows = [
        FigureRow(AT, "", Metric.completed, 0, 3.0),
        FigureRow(AT + MINUTE.span, "", Metric.completed, 0, 2.0),
        FigureRow(AT, "", Metric.succeeded_at, 1, 4.0),
        FigureRow(AT, "", Metric.succeeded_at, 2, 1.0),
        FigureRow(AT, "", Metric.cost_retries, 0, 0.1),
        FigureRow(AT, "", Metric.cost_retries, 0, 0.2),
        FigureRow(AT, "", Metric.backlog, 0, 9.0),
        FigureRow(AT + MINUTE.span, "", Metric.backlog, 0, 5.0),
    ]
    found = overview_of(rows, RANGE, timedelta(seconds=2))
    assert (found.counts["completed"], found.counts["failed"]) == (5, 0)
    assert (found.succeeded_at, found.cost_retries, found.samples) == ({1: 4, 2: 1}, 0.3, {"backlog": 5})
    assert found.waited == (None, None, None)


def test_the_busiest_come_first() -> None:  # E68a
    rows = [FigureRow(AT, "calm", Metric.failed, 0, 1.0), FigureRow(AT, "busy", Metric.completed, 0, 7.0)]
    assert [row.name for row in breakdown_of(rows)] == ["busy", "calm"]
