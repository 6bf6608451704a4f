"""Curves, jitters and the cap."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.resilience.backoff import (
    LONGEST,
    Backoff,
    Curve,
    Jitter,
    JitterSpec,
    additive,
    decorrelated,
    equal,
    exponential,
    fixed,
    full,
    jitter_of,
    none,
    polynomial,
    proportional,
    table,
)
from holdfast.resilience.policy import CONVERTER, CONVERTER_OLD, GRADING, REPORTS, SCREENSHOTS, Retry

NOTHING = timedelta()
YEARS = timedelta(days=36_500)
spans = st.timedeltas(min_value=NOTHING, max_value=YEARS)
chances = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 20) | st.integers(1, 10**18)
curves: st.SearchStrategy[Curve] = st.one_of(
    st.builds(exponential, spans, st.floats(1, 1e300)),
    st.builds(polynomial, spans, st.floats(0, 1e300)),
    st.builds(fixed, spans),
    st.builds(table, st.lists(spans, min_size=1, max_size=5)),
)
jitters: st.SearchStrategy[Jitter] = st.one_of(
    st.builds(additive, spans),
    st.builds(proportional, st.floats(0, 1)),
    st.sampled_from([full, equal, decorrelated, none]),
)


def second(number: float) -> timedelta:
    return timedelta(seconds=number)


@given(curves, jitters, spans, attempts, chances, spans)
def test_a_delay_is_never_negative_and_never_above_the_cap(
    curve: Curve, jitter: Jitter, cap: timedelta, attempt: int, chance: float, previous: timedelta
) -> None:  # E11
    delay = Backoff(curve, jitter, cap).delay(attempt, chance, min(previous, cap))
    assert NOTHING <= delay <= cap


@given(curves, jitters, attempts, chances)
def test_the_same_question_has_the_same_answer(
    curve: Curve, jitter: Jitter, attempt: int, chance: float
) -> None:  # E11
    backoff = Backoff(curve, jitter)
    assert backoff.delay(attempt, chance) == backoff.delay(attempt, chance)


@given(st.one_of(st.builds(exponential, spans, st.floats(1, 1e300)), st.builds(polynomial, spans)), attempts)
def test_a_curve_never_shrinks(curve: Curve, attempt: int) -> None:  # E11
    assert curve(attempt) <= curve(attempt + 1)


def test_each_curve_by_example() -> None:  # E11
    def first(curve: Curve, number: int = 4) -> list[float]:
        return [curve(attempt).total_seconds() for attempt in range(1, number + 1)]

    assert first(exponential("5s")) == [5, 10, 20, 40]
    assert first(exponential("1s", factor=3)) == [1, 3, 9, 27]
    assert first(polynomial("2s")) == [2, 8, 18, 32]
    assert first(polynomial("2s", power=1)) == [2, 4, 6, 8]
    assert first(fixed("7s")) == [7, 7, 7, 7]
    assert first(table(["5s", "25s", "125s"])) == [5, 25, 125, 125]


@pytest.mark.parametrize("factor", [1e8, 1e300])
def test_a_huge_factor_saturates(factor: float) -> None:  # E11
    assert Backoff(exponential("1s", factor)).delay(10**9, 0.5) == LONGEST
    assert Backoff(polynomial("1s", factor)).delay(10**9, 0.5) == LONGEST
    assert Backoff(exponential(0, factor)).delay(10**9, 0.5) == NOTHING


def test_an_attempt_below_one_counts_as_the_first() -> None:
    assert Backoff(exponential("5s")).delay(0, 0.0) == second(5)
    assert Backoff(table(["1s", "2s"])).delay(-3, 0.0) == second(1)


@given(spans, chances, spans)
def test_the_range_of_each_jitter(delay: timedelta, chance: float, previous: timedelta) -> None:  # E11
    tick = timedelta(microseconds=1)
    assert delay <= additive("5s")(delay, chance, previous) <= delay + second(5)
    low, high = delay * 0.8, delay * 1.2
    assert low - tick <= proportional(0.2)(delay, chance, previous) <= high + tick
    assert NOTHING <= full(delay, chance, previous) <= delay
    assert delay / 2 - tick <= equal(delay, chance, previous) <= delay + tick
    assert delay <= decorrelated(delay, chance, previous) <= max(delay, (previous or delay) * 3) + tick
    assert none(delay, chance, previous) == delay


def test_each_jitter_at_its_ends() -> None:  # E11
    ten, before = second(10), second(20)
    assert [additive("4s")(ten, c, before) for c in (0, 0.5, 1)] == [second(n) for n in (10, 12, 14)]
    assert [proportional(0.2)(ten, c, before) for c in (0, 0.5, 1)] == [second(n) for n in (8, 10, 12)]
    assert [full(ten, c, before) for c in (0, 0.5, 1)] == [second(n) for n in (0, 5, 10)]
    assert [equal(ten, c, before) for c in (0, 0.5, 1)] == [second(n) for n in (5, 7.5, 10)]
    assert [decorrelated(ten, c, before) for c in (0, 0.5, 1)] == [second(n) for n in (10, 35, 60)]
    assert [decorrelated(ten, c, NOTHING) for c in (0, 0.5, 1)] == [second(n) for n in (10, 20, 30)]


@pytest.mark.parametrize(
    ("spec", "delay"),
    [
        ("full", 5),
        ("equal", 7.5),
        ("decorrelated", 35),
        ("none", 10),
        (None, 10),
        ("20%", 10),
        ("±20%", 10),
        ("5s", 12.5),
        (5, 12.5),
        (timedelta(seconds=5), 12.5),
        (lambda delay, chance, previous: previous, 20),
    ],
)
def test_a_jitter_is_read_from_what_people_write(spec: JitterSpec, delay: float) -> None:  # E11
    assert jitter_of(spec)(second(10), 0.5, second(20)) == second(delay)


@pytest.mark.parametrize("spec", ["", "%", "x%", "120%", "-5%", "nan%", "sometimes", "-1s", -1])
def test_a_jitter_that_makes_no_sense_is_a_usage_error(spec: JitterSpec) -> None:
    with pytest.raises(UsageError):
        jitter_of(spec)


def test_curves_that_make_no_sense_are_usage_errors() -> None:
    for factor in (0.5, 0, -2, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="factor"):
            exponential("1s", factor)
    for power in (-1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="power"):
            polynomial("1s", power)
    with pytest.raises(UsageError, match="at least one"):
        table([])
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError, match="between 0 and 1"):
            proportional(share)


def test_a_cap_of_nothing_is_meant() -> None:
    assert Backoff.of(fixed("5s"), cap=0).delay(1, 0.5) == NOTHING
    assert Backoff.of(fixed("5h")).delay(1, 0.5) == LONGEST
    assert Backoff.of(fixed("5h"), "5s", cap="6h").delay(1, 0.2) == timedelta(hours=5, seconds=1)


def schedule(policy: Retry, chance: float) -> list[float]:
    """The wait after each failure that is retried at all."""
    return [policy.backoff.delay(n, chance).total_seconds() for n in range(1, policy.max_attempts)]


def test_the_converters_schedule() -> None:  # E11
    assert CONVERTER.max_attempts == 3
    assert schedule(CONVERTER, 0.0) == [5, 10]
    assert schedule(CONVERTER, 0.5) == [7.5, 12.5]
    assert schedule(CONVERTER, 1.0) == [10, 15]
    assert CONVERTER.attempts_by_code == {"IO_ERROR": 2}  # C4: a failed write is retried once


def test_the_older_converters_schedule() -> None:  # E11
    assert schedule(CONVERTER_OLD, 0.5) == [5, 15, 45]
    assert schedule(CONVERTER_OLD, 0.0) == [4, 12, 36]
    assert schedule(CONVERTER_OLD, 1.0) == [6, 18, 54]


def test_the_reports_schedule() -> None:  # E11
    assert REPORTS.max_attempts == 4
    assert schedule(REPORTS, 0.5) == [30, 120, 480]
    assert schedule(REPORTS, 0.0) == [24, 96, 384]
    assert schedule(REPORTS, 1.0) == [36, 144, 576]


def test_the_gradings_schedule() -> None:  # E11
    assert GRADING.max_attempts == 4
    assert schedule(GRADING, 0.0) == [2, 4, 8]
    assert schedule(GRADING, 1.0) == [3, 5, 9]
    assert GRADING.backoff.delay(8, 1.0) == second(257)
    assert GRADING.backoff.delay(9, 1.0) == GRADING.backoff.delay(10**6, 0.3) == second(300)


def test_the_screenshots_schedule() -> None:  # E11
    assert SCREENSHOTS.max_attempts == 4
    assert schedule(SCREENSHOTS, 0.0) == schedule(SCREENSHOTS, 1.0) == [5, 25, 125]
