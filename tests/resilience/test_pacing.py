"""The pace of work on many jobs: a canary, a ramp, and a stop when too many fail again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.resilience.pacing import (
    MOST_UNENDED,
    STEP,
    WINDOW,
    Course,
    Pace,
    Phase,
    allowed,
    current_rate,
    due_after,
    duration,
    grow,
    observe,
    phase,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
paces = st.builds(
    lambda stop, canary, start, factor: Pace(
        stop_above=stop, canary=canary, ramp_from=start, rate=start * factor
    ),
    st.floats(0, 1),
    st.integers(0, 20),
    st.floats(0.001, 10),
    st.floats(1, 1000),
)
outcomes = st.lists(st.booleans(), max_size=200)


def test_a_canary_that_ends_well_lets_the_others_go() -> None:  # E32
    pace, course = Pace(stop_above=0.2, canary=5), Course()
    assert allowed(pace, course, 50) == 5
    course = replace(course, moved=5)
    assert (allowed(pace, course, 50), phase(pace, course, is_last=False)) == (0, Phase.CANARY)
    course = observe(pace, course, [False, True, False, False])
    assert allowed(pace, course, 50) == 0  # one has not ended
    course = observe(pace, course, [False])
    assert course.too_many is None  # one of five is not above a fifth
    assert (allowed(pace, course, 50), phase(pace, course, is_last=False)) == (50, Phase.STEADY)


def test_a_canary_stops_as_soon_as_its_bound_cannot_be_kept() -> None:  # E32
    pace = Pace(stop_above=0.2, canary=5)
    course = observe(pace, Course(moved=5), [True, True])
    assert course.too_many == "2 of the canary of 5 failed again; at most 20% may"
    assert allowed(pace, course, 50) == 0


def test_it_stops_when_more_than_the_share_of_the_last_fifty_failed_again() -> None:  # E32
    pace, course = Pace(stop_above=0.2), Course(moved=500)
    course = observe(pace, course, [False] * 100 + [True] * 10)
    assert course.too_many is None
    course = observe(pace, course, [True])
    assert course.too_many == "11 of the last 50 that ended failed again; at most 20% may"
    assert (course.ended, course.failed) == (111, 11)


def test_failures_that_the_window_has_passed_are_forgiven() -> None:  # E32
    pace = Pace(stop_above=0.2)
    course = observe(pace, Course(moved=500), ([True] * 10 + [False] * 40) * 5)
    assert course.too_many is None


@given(paces, outcomes)
def test_however_many_fail_no_more_than_the_bound_are_seen_before_it_stops(  # E32
    pace: Pace, ends: list[bool]
) -> None:
    course = Course(moved=len(ends))
    for failed in ends:
        course = observe(pace, course, [failed])
        if course.too_many is not None:
            break
        in_canary = course.ended <= pace.canary
        assert (course.failed if in_canary else course.recent.count("1")) <= pace.stop_above * (
            pace.canary if in_canary else WINDOW
        )
    assert len(course.recent) <= WINDOW
    assert not (course.too_many and allowed(pace, course, 50))


@given(paces, outcomes, st.lists(st.integers(1, 10), max_size=200))
def test_it_decides_alike_however_the_outcomes_come_together(  # E32
    pace: Pace, ends: list[bool], pieces: list[int]
) -> None:
    course, left = Course(moved=len(ends)), list(ends)
    for size in pieces:
        course, left = observe(pace, course, left[:size]), left[size:]
    assert observe(pace, course, left) == observe(pace, Course(moved=len(ends)), ends)


@given(paces, st.lists(st.floats(0, 1000), max_size=50))
def test_a_rate_grows_to_its_end_and_at_most_doubles_in_a_minute(  # E32
    pace: Pace, passes: list[float]
) -> None:
    course, now = Course(moved=pace.canary, ended=pace.canary), NOW
    assert pace.ramp_from is not None
    assert pace.rate is not None
    for seconds in passes:
        now += timedelta(seconds=seconds)
        before, course = course, grow(pace, course, now)
        assert course.rate is not None
        if before.rate is None:
            assert course.rate == pace.ramp_from
        elif course.rate != before.rate:
            assert before.rate < course.rate <= min(2 * before.rate, pace.rate)
            assert before.grown_at is not None
            assert now - before.grown_at >= STEP
        assert course.rate <= pace.rate


def test_a_ramp_whose_processes_were_down_goes_on_where_it_was() -> None:  # E32
    pace = Pace(stop_above=0.2, ramp_from=1, rate=100)
    course = grow(pace, grow(pace, Course(), NOW), NOW + timedelta(days=3))
    assert current_rate(pace, course) == 2
    assert phase(pace, course, is_last=False) is Phase.RAMP


def test_the_ramp_waits_for_the_canary() -> None:  # E32
    pace = Pace(stop_above=0.2, canary=2, ramp_from=1, rate=100)
    assert grow(pace, Course(moved=2, ended=1), NOW).rate is None
    assert grow(pace, Course(moved=2, ended=2), NOW).rate == 1


def test_no_more_jobs_follow_while_the_outcome_of_many_is_unknown() -> None:  # E32
    pace = Pace(stop_above=0.2)
    assert allowed(pace, Course(moved=MOST_UNENDED - 1), 50) == 1
    assert allowed(pace, Course(moved=MOST_UNENDED), 50) == 0
    assert allowed(pace, Course(moved=MOST_UNENDED, ended=7), 50) == 7


@given(
    st.floats(0.001, 1000), st.lists(st.tuples(st.floats(0, 20), st.integers(1, 50)), min_size=1, max_size=50)
)
def test_a_rate_is_kept_on_average_and_what_was_missed_is_not_made_up_for(  # E32
    rate: float, looks: list[tuple[float, int]]
) -> None:
    now, due, moved, began = NOW, None, 0, None
    for passes, jobs in looks:
        now += timedelta(seconds=passes)
        if due is not None and now < due:
            now = due
        began = began or now
        due = due_after(jobs, rate, due=due, now=now)
        moved += jobs
        assert moved <= rate * ((due - began) / SECOND + 1) + 1
        assert due >= now - SECOND + timedelta(seconds=jobs / rate) - timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("jobs", "rate", "ramp_from", "seconds"),
    [
        (100, None, None, None),
        (100, 10, None, 10),
        (0, 10, 1, 0),
        (60, 4, 1, 60),
        (60 + 120 + 240, 4, 1, 180),
        (60 + 60 * 1.5, 1.5, 1, 120),
    ],
)
def test_how_long_it_takes_is_the_sum_of_its_steps(  # E32
    jobs: int, rate: float | None, ramp_from: float | None, seconds: float | None
) -> None:
    found = duration(jobs, rate=rate, ramp_from=ramp_from)
    assert found == (None if seconds is None else timedelta(seconds=seconds))
