"""Folding: what needs no database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdfast.errors import UsageError
from holdfast.statistics.counting import Counted, capped, read_counts, spread
from holdfast.statistics.folding import folds
from holdfast.statistics.metrics import DAY, HOUR, MINUTE, OTHER, Figure, Metric, SeriesKey
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.values.histogram import BOUNDS, bucket_of, percentile

AT = datetime(2026, 5, 4, 10, 59, tzinfo=UTC)
MAIL = SeriesKey("default", "mail")


def test_the_memory_store_says_that_it_keeps_none() -> None:  # E68a
    with pytest.raises(UsageError, match="the memory store keeps no statistics; use sqlite:///FILE"):
        folds(MemoryStore(ManualClock()))


def test_a_minute_adds_to_its_hour_and_its_day() -> None:  # E68a
    counted = Counted(
        {
            (AT, MAIL, Metric.enqueued, 0): 2.0,
            (AT + timedelta(minutes=1), MAIL, Metric.enqueued, 0): 3.0,
        },
        2,
        2,
    )
    assert spread(counted) == {
        Figure(MINUTE, AT, MAIL, Metric.enqueued): 2,
        Figure(MINUTE, AT + timedelta(minutes=1), MAIL, Metric.enqueued): 3,
        Figure(HOUR, AT.replace(minute=0), MAIL, Metric.enqueued): 2,
        Figure(HOUR, AT.replace(hour=11, minute=0), MAIL, Metric.enqueued): 3,
        Figure(DAY, AT.replace(hour=0, minute=0), MAIL, Metric.enqueued): 5,
    }


def test_a_rebuild_leaves_periods_alone_that_it_covers_in_part() -> None:  # E68a
    counted = Counted({(AT, MAIL, Metric.enqueued, 0): 2.0}, 1, 1)
    assert set(spread(counted, AT)) == {Figure(MINUTE, AT, MAIL, Metric.enqueued)}
    assert not spread(counted, AT + timedelta(seconds=1))


def test_the_series_that_are_present_stay_and_the_rest_is_counted_together() -> None:  # E68a
    names = [SeriesKey(f"q{number}", "t") for number in range(5)]
    figures = {Figure(MINUTE, AT, name, Metric.enqueued): 1.0 for name in names}
    figures[Figure(MINUTE, AT, names[3], Metric.backlog)] = 7.0
    figures[Figure(MINUTE, AT, names[2], Metric.backlog)] = 9.0
    found = capped(figures, {(MINUTE, AT): {names[4]}}, 2)
    assert found == {
        Figure(MINUTE, AT, names[4], Metric.enqueued): 1,
        Figure(MINUTE, AT, names[0], Metric.enqueued): 1,
        Figure(MINUTE, AT, OTHER, Metric.enqueued): 3,
        Figure(MINUTE, AT, OTHER, Metric.backlog): 9,
    }


def test_a_read_says_how_far_it_came() -> None:  # E68a
    assert read_counts([(0, 77, "", "", "", 0, "", 0, 5, 0.0)]) == Counted({}, 5, 77)  # type: ignore[list-item]


# -- histograms ---------------------------------------------------------------------------------------------------------
def test_the_bounds_of_buckets_grow_by_a_fifth() -> None:  # E68a
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert all(high / low < 1.26 for low, high in pairwise(BOUNDS[8:]))
    assert BOUNDS[-1] == 2**31
    assert (bucket_of(-5), bucket_of(0), bucket_of(1), bucket_of(2**40)) == (0, 0, 1, len(BOUNDS))


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_percentile_is_off_by_a_tenth_at_most(share: float) -> None:  # E68a
    times = [round(10 * 1.01**n) for n in range(1000)]
    counts: dict[int, float] = {}
    for time in times:
        counts[bucket_of(time)] = counts.get(bucket_of(time), 0) + 1
    found = percentile(counts, share)
    assert found is not None
    assert found == pytest.approx(times[int(share * 1000)], rel=0.1)


def test_merged_histograms_are_those_of_all_times() -> None:  # E68a
    assert percentile({}, 0.5) is None
    assert percentile({0: 4}, 1) == 1
    one, other = {bucket_of(100): 1.0}, {bucket_of(100): 1.0, bucket_of(9000): 2.0}
    both = {bucket: one.get(bucket, 0) + count for bucket, count in other.items()}
    assert percentile(both, 0.5) == BOUNDS[bucket_of(100)]
    assert percentile(both, 0.99) == pytest.approx(9500, rel=0.1)
