"""Rates, limits and quotas as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.resilience.limits import Limit, Limits, OwnerPolicy, Quota, Rate


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [
        ("100/min", 100, 60),
        ("100 / minute", 100, 60),
        ("10/s", 10, 1),
        ("10/sec", 10, 1),
        ("5/10s", 5, 10),
        ("7/h", 7, 3600),
        ("1/day", 1, 86_400),
        ("3/1h30m", 3, 5400),
    ],
)
def test_a_rate_is_a_count_and_a_time(text: str, count: int, seconds: int) -> None:  # E26
    assert Rate.read(text) == Rate(count, timedelta(seconds=seconds))


@given(st.integers(1, 10**9 - 1), st.integers(1, 10**6))
def test_a_rate_is_spelt_as_it_is_read(count: int, seconds: int) -> None:
    rate = Rate(count, timedelta(seconds=seconds))
    assert Rate.read(str(rate)) == Rate.read(rate) == rate


@pytest.mark.parametrize(
    "value", ["", "100", "/min", "0/min", "-1/s", "1.5/s", "1/0s", "1/10ms", "1/parsec", 5, None, True]
)
def test_a_rate_that_makes_no_sense_is_told(value: Any) -> None:  # E26
    with pytest.raises(UsageError, match="write a count and a time"):
        Rate.read(value)


def test_a_share_may_not_be_more_than_the_whole() -> None:  # E26
    assert Limits(concurrency=5, rate="60/min", per_owner=Limit(concurrency=5, rate="1/s")).concurrency == 5
    with pytest.raises(UsageError, match=r"per_owner\.concurrency is above concurrency"):
        Limits(concurrency=5, per_owner=Limit(concurrency=6))
    with pytest.raises(UsageError, match=r"per_key\.rate is above rate"):
        Limits(rate="60/min", per_key=Limit(rate="2/s"))
    with pytest.raises(UsageError, match="per_owner is 5"):
        Limits(per_owner=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3"])
def test_a_concurrency_is_a_count(value: Any) -> None:  # E26
    with pytest.raises(UsageError, match="concurrency is"):
        Limit(concurrency=value)


def test_a_quota_of_a_day_fits_into_that_of_a_month() -> None:  # E18
    assert Quota(per_day=0).per_day == 0
    assert Quota(manual_retries_per_day=2, manual_retries_per_month=2).limits_manual_retries
    assert not Quota(per_day=2).limits_manual_retries
    for bad in (
        {"per_day": 5, "per_month": 4},
        {"cost_per_day": 5, "cost_per_month": 4.5},
        {"manual_retries_per_day": 5, "manual_retries_per_month": 4},
        {"per_day": -1},
        {"manual_retries_per_day": 1.5},
    ):
        with pytest.raises(UsageError):
            Quota(**bad)


@pytest.mark.parametrize("weight", [0, -1, 1001, "2", None])
def test_a_weight_is_a_number_above_nothing(weight: Any) -> None:  # E25
    with pytest.raises(UsageError, match="weight is"):
        OwnerPolicy(weight=weight)
