"""The forecast, from what a store has counted in its walks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.jobs.forecast import ForecastRow, Scheduled, make_forecast

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def test_the_walks_of_a_store_are_added_up() -> None:  # E68
    rows = [
        ForecastRow(0, 3, "gateway", 0, 2, NOW + 3.5 * MINUTE),
        ForecastRow(1, 3, "gateway", 5, 0, NOW + 3.2 * MINUTE),
        ForecastRow(1, 1, "", 1, 0, NOW + 1.5 * MINUTE),
    ]
    found = make_forecast(NOW, HOUR, MINUTE, 100, rows)
    assert found.scheduled == [
        Scheduled(NOW + MINUTE, "", 1, 0),
        Scheduled(NOW + 3 * MINUTE, "gateway", 5, 2),
    ]
    assert (found.until, found.is_capped) == (NOW + HOUR, False)


def test_it_ends_where_the_first_walk_has_ended() -> None:  # E68
    rows = [
        ForecastRow(0, 3, "", 0, 2, NOW + 3.5 * MINUTE),
        ForecastRow(0, 50, "", 0, 1, NOW + 50 * MINUTE),
        ForecastRow(1, 1, "", 4, 0, NOW + 1.5 * MINUTE),
        ForecastRow(1, 7, "", 6, 0, NOW + 7.5 * MINUTE),
    ]
    found = make_forecast(NOW, HOUR, MINUTE, 10, rows)
    assert (found.until, found.is_capped) == (NOW + 7.5 * MINUTE, True)
    assert [one.at for one in found.scheduled] == [NOW + n * MINUTE for n in (1, 3, 7)]
