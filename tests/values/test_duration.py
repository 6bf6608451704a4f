"""Durations as people write them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.values.duration import Duration, duration, format_duration, optional

CENTURY = timedelta(days=36_500)
spans = st.timedeltas(min_value=timedelta(), max_value=CENTURY)


@given(spans)
def test_what_is_spelled_can_be_read(span: timedelta) -> None:
    assert duration(format_duration(span)) == span


@given(spans)
def test_a_timedelta_is_itself(span: timedelta) -> None:
    assert duration(span) == span


@given(st.text(max_size=20) | st.from_regex(r"\A[0-9. ]{0,8}(us|ms|s|m|h|d|w|y)?[0-9 smhd]{0,6}\Z"))
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    try:
        span = duration(text)
    except UsageError:
        return
    assert timedelta() <= span <= CENTURY


@given(st.floats() | st.integers() | st.booleans() | st.none() | st.binary())
def test_anything_else_is_a_duration_or_a_usage_error(value: Any) -> None:
    try:
        span = duration(value)
    except UsageError:
        return
    assert timedelta() <= span <= CENTURY


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        (" 30 s ", 30),
        ("250ms", 0.25),
        ("7us", 0.000007),
        ("1.5h", 5400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1w2d3h4m5s6ms7us", 604_800 + 172_800 + 10_800 + 240 + 5.006007),
        ("90", 90),
        ("0.5", 0.5),
        ("0s", 0),
        (90, 90),
        (0.25, 0.25),
        (0, 0),
    ],
)
def test_every_way_to_write_one(written: Duration, seconds: float) -> None:
    assert duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "s",
        "soon",
        "-5s",
        "+5s",
        "5 s 3",
        "1 30m",
        "1. 5s",
        "5x",
        "5S",
        "1h30",
        "30s!",
        "1e3s",
        ".5s",
        "5.s",
        "٣s",
        "٣",
        "1h\n",
        "NaN",
        "inf",
        "9" * 13,
        "9" * 70 + "s",
        "5200w2000w",
        "99999999999999999999w",
        -1,
        -0.001,
        3.2e9,
        1e300,
        float("nan"),
        float("inf"),
        True,
        False,
        None,
        b"5s",
        [5],
        timedelta(seconds=-1),
        timedelta.max,
    ],
)
def test_every_bad_input_is_a_usage_error_that_shows_it(written: Any) -> None:
    with pytest.raises(UsageError) as refused:
        duration(written)
    assert repr(written) in str(refused.value)


def test_none_is_no_duration() -> None:
    assert optional(None) is None
    assert optional("1m") == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("span", "spelled"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=8, microseconds=1), "8d1us"),
        (timedelta(milliseconds=1500), "1s500ms"),
    ],
)
def test_a_spelling_is_short(span: timedelta, spelled: str) -> None:
    assert format_duration(span) == spelled


_LONG: dict[str, str | int] = {
    "digits": "1" * 200_000, "units": "1s" * 100_000, "spaces": " " * 200_000, "numbers": "1 " * 100_000,
    "an int": 10**5000, "a negative int": -(10**5000),
}  # fmt: skip


@pytest.mark.parametrize("name", _LONG)
def test_a_value_of_any_length_is_refused_in_one_short_sentence(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        duration(_LONG[name])
    assert "a duration" in str(refused.value)
    assert len(str(refused.value)) < 200
