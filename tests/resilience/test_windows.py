"""Windows for retries: weekdays, times that pass midnight, nights on which the clocks are changed, and the ramp."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.jobs.verdict import Bury, Failure, RetryAfter, Verdict
from holdfast.resilience.policy import Retry, judge_failure
from holdfast.resilience.windows import Window, Windows

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
QUARTER = 15 * MINUTE
#: Zones whose clocks are changed by an hour, by half an hour, at midnight, in the south, and never.
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "UTC",
]
BUSINESS = Window(days="mon-fri", start="08:00", end="18:00", zone="Europe/Berlin")
NIGHTS = Window(days="mon-fri", start="18:00", end="08:00", zone="Europe/Berlin")

times = st.integers(0, 95).map(lambda quarter: f"{quarter // 4:02}:{quarter % 4 * 15:02}")
days = st.sampled_from(["mon-sun", "mon-fri", "sat,sun", "sun", "fri-mon", "wed"])
#: Two years of moments on the quarter of an hour, most of them near a night on which clocks are changed.
CHANGES = [
    datetime(2024, *day, tzinfo=UTC)
    for day in ((3, 10), (3, 31), (4, 7), (4, 26), (9, 8), (10, 6), (10, 27), (11, 1), (11, 3))
]
moments = st.one_of(
    st.builds(
        lambda change, quarters: change + quarters * QUARTER,
        st.sampled_from(CHANGES),
        st.integers(-200, 300),
    ),
    st.integers(0, 70_000).map(lambda quarters: datetime(2024, 1, 1, tzinfo=UTC) + quarters * QUARTER),
)


def berlin(text: str, fold: int = 0) -> datetime:
    """A moment by the clocks of Berlin: "2024-07-01 18:00"."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).astimezone(UTC)


@st.composite
def window(draw: st.DrawFn) -> Window:
    start, end = draw(times), draw(times)
    assume(start != end)
    return Window(days=draw(days), start=start, end=end, zone=draw(st.sampled_from(ZONES)))


@st.composite
def windows(draw: st.DrawFn) -> Windows:
    try:
        return Windows(
            allow=draw(st.lists(window(), max_size=2)), deny=draw(st.lists(window(), min_size=1, max_size=2))
        )
    except UsageError:
        assume(False)
        raise


# -- open or not ------------------------------------------------------------------------------------------------------
def test_no_retries_in_business_hours() -> None:  # E16
    closed = Windows(deny=[BUSINESS])
    assert closed.open_at(berlin("2024-07-01 07:59"))
    assert not closed.open_at(berlin("2024-07-01 08:00"))  # a Monday
    assert not closed.open_at(berlin("2024-07-01 17:59"))
    assert closed.open_at(berlin("2024-07-01 18:00"))
    assert closed.open_at(berlin("2024-07-06 12:00"))  # a Saturday
    assert closed.next_opening(berlin("2024-07-01 09:00")) == berlin("2024-07-01 18:00")
    assert closed.next_closing(berlin("2024-07-05 18:00")) == berlin("2024-07-08 08:00")


def test_a_window_that_passes_midnight_belongs_to_the_day_it_begins_on() -> None:  # E16
    nights = Windows(allow=[NIGHTS])
    assert nights.open_at(berlin("2024-07-06 07:59"))  # Saturday morning: Friday's night
    assert not nights.open_at(berlin("2024-07-06 08:00"))
    assert not nights.open_at(berlin("2024-07-08 07:59"))  # Monday morning: Sunday has none
    assert nights.next_opening(berlin("2024-07-06 08:00")) == berlin("2024-07-08 18:00")
    assert nights.next_opening(berlin("2024-07-03 03:00")) == berlin("2024-07-03 03:00")


def test_deny_wins_over_allow() -> None:  # E16
    both = Windows(allow=[NIGHTS], deny=[Window(start="22:00", end="23:00", zone="Europe/Berlin")])
    assert both.open_at(berlin("2024-07-01 21:59"))
    assert not both.open_at(berlin("2024-07-01 22:30"))
    assert both.next_opening(berlin("2024-07-01 22:30")) == berlin("2024-07-01 23:00")
    assert both.next_closing(berlin("2024-07-01 20:00")) == berlin("2024-07-01 22:00")


def test_without_any_window_retries_may_always_start() -> None:
    always = Windows()
    assert always.open_at(berlin("2024-07-01 12:00"))
    assert always.next_closing(berlin("2024-07-01 12:00")) is None


def test_windows_of_several_zones_are_each_read_by_their_own_clocks() -> None:  # E16
    both = Windows(deny=[BUSINESS, Window(start="09:00", end="17:00", zone="America/New_York")])
    # Berlin closes its offices at 18:00, when it is noon in New York.
    assert both.next_opening(berlin("2024-07-01 12:00")) == berlin("2024-07-01 23:00")


# -- nights on which the clocks are changed ---------------------------------------------------------------------------
def test_a_start_that_is_left_out_is_the_moment_of_the_change() -> None:  # E16
    window = Windows(allow=[Window(start="02:30", end="05:00", zone="Europe/Berlin")])
    assert window.next_opening(berlin("2024-03-31 01:00")) == berlin("2024-03-31 03:00")
    assert window.next_opening(berlin("2024-03-30 01:00")) == berlin("2024-03-30 02:30")


def test_an_end_that_is_left_out_is_the_moment_of_the_change() -> None:  # E16
    window = Windows(allow=[Window(start="01:00", end="02:30", zone="Europe/Berlin")])
    assert window.next_closing(berlin("2024-03-31 01:30")) == berlin("2024-03-31 03:00")


def test_a_window_that_is_left_out_as_a_whole_does_not_come_that_night() -> None:  # E16
    window = Windows(allow=[Window(start="02:15", end="02:45", zone="Europe/Berlin")])
    assert window.next_opening(berlin("2024-03-30 12:00")) == berlin("2024-04-01 02:15")


def test_a_window_opens_at_the_first_and_closes_at_the_last_showing_of_a_time() -> None:  # E16
    window = Windows(allow=[Window(start="02:15", end="02:45", zone="Europe/Berlin")])
    opening = window.next_opening(berlin("2024-10-27 00:00"))
    assert opening == berlin("2024-10-27 02:15", fold=0)
    assert window.next_closing(opening) == berlin("2024-10-27 02:45", fold=1)
    assert window.open_at(
        berlin("2024-10-27 02:50", fold=0)
    )  # in between: it opens once in a night, not twice


@given(window(), moments)
def test_a_window_holds_every_moment_at_which_the_clock_shows_a_time_of_it(
    window: Window, moment: datetime
) -> None:  # E16
    zone = window._zone
    wall = moment.astimezone(zone)
    start, end = (time.fromisoformat(str(text)) for text in (window.start, window.end))
    if start < end:
        shown, begun = start <= wall.time() < end, wall.date()
    else:
        shown = wall.time() >= start or wall.time() < end
        begun = wall.date() if wall.time() >= start else wall.date() - DAY
    shown = shown and begun.weekday() in window._days
    if shown:
        assert window.holds(moment)
    elif not changed_near(wall):
        assert not window.holds(moment)


def changed_near(wall: datetime) -> bool:
    return (wall - 2 * DAY).utcoffset() != (wall + 2 * DAY).utcoffset()


@settings(max_examples=60, deadline=None)
@given(windows(), moments)
def test_the_next_opening_is_the_first_moment_that_is_open(windows: Windows, now: datetime) -> None:  # E16
    opening = windows.next_opening(now)
    assert opening is not None
    assert opening >= now
    assert windows.open_at(opening)
    moment = now
    while moment < min(opening, now + 9 * DAY):
        assert not windows.open_at(moment)
        moment += QUARTER
    if opening > now:
        assert not windows.open_at(opening - timedelta(microseconds=1))


@settings(max_examples=60, deadline=None)
@given(windows(), moments, st.floats(0, 1), st.none() | st.integers(0, 2000))
def test_a_moved_retry_starts_in_the_open_and_never_earlier_than_it_was_due(
    windows: Windows, due: datetime, chance: float, left: int | None
) -> None:  # E16
    latest = None if left is None else due + left * MINUTE
    moved = windows.retry_at(due, chance, latest)
    opening = windows.next_opening(due)
    assert opening is not None
    assert windows.open_at(moved)
    assert opening <= moved <= max(opening, due) + 5 * MINUTE
    if windows.open_at(due):
        assert moved == due
    if latest is not None and opening <= latest:
        assert moved <= latest


def test_the_occurrence_of_a_day_is_asked_by_its_date() -> None:
    assert BUSINESS.occurrence(date(2024, 7, 6)) is None
    assert BUSINESS.occurrence(date(2024, 7, 5)) == (berlin("2024-07-05 08:00"), berlin("2024-07-05 18:00"))


# -- the judgement ----------------------------------------------------------------------------------------------------
BOOM = Failure("BOOM", "It went wrong.")


def judge(now: datetime, *, chance: float = 0.0, **limits: Any) -> Verdict:
    policy = Retry(
        5,
        base="10s",
        jitter="none",
        windows=Windows(deny=[BUSINESS], ramp="10m"),
        max_elapsed=limits.pop("max_elapsed", None),
    )
    return judge_failure(BOOM, policy, attempt=1, max_attempts=5, chance=chance, now=now, **limits)


def test_a_retry_that_falls_into_a_closed_window_waits_for_the_opening() -> None:  # E16 E9
    assert judge(berlin("2024-07-01 07:00")) == RetryAfter(timedelta(seconds=10), BOOM)
    assert judge(berlin("2024-07-01 07:59:55")) == RetryAfter(10 * HOUR + timedelta(seconds=5), BOOM)
    assert judge(berlin("2024-07-01 12:00")) == RetryAfter(6 * HOUR, BOOM)


def test_retries_that_waited_for_an_opening_are_spread_over_the_ramp() -> None:  # E16
    now = berlin("2024-07-01 12:00")
    delays = [judge(now, chance=number / 10) for number in range(10)]
    assert delays == [RetryAfter(6 * HOUR + number * MINUTE, BOOM) for number in range(10)]


def test_a_ramp_ends_with_a_short_opening() -> None:  # E16
    gap = Windows(
        deny=[
            Window(start="08:00", end="12:00", zone="Europe/Berlin"),
            Window(start="12:02", end="18:00", zone="Europe/Berlin"),
        ]
    )
    now = berlin("2024-07-01 09:00")
    assert gap.retry_at(now, 0.5) == berlin("2024-07-01 12:01")
    assert gap.retry_at(now, 1.0) == berlin("2024-07-01 12:00")  # never at the closing itself


def test_an_opening_after_the_deadline_fails_now_as_timeout() -> None:  # E15 E16
    now = berlin("2024-07-01 12:00")
    verdict = judge(now, until_deadline=6 * HOUR - MINUTE)
    assert isinstance(verdict, Bury)
    assert verdict.failure.code == "TIMEOUT"
    assert "BOOM" in verdict.failure.detail


def test_a_ramp_does_not_carry_a_retry_past_its_deadline() -> None:  # E15 E16
    now = berlin("2024-07-01 12:00")
    assert judge(now, chance=0.5, until_deadline=6 * HOUR + 2 * MINUTE) == RetryAfter(6 * HOUR + MINUTE, BOOM)
    assert judge(now, chance=0.9, until_deadline=6 * HOUR) == RetryAfter(6 * HOUR, BOOM)  # equal is on time


def test_a_wait_for_an_opening_counts_as_elapsed() -> None:  # E10 E16
    now = berlin("2024-07-01 12:00")
    assert judge(now, max_elapsed="5h", elapsed=MINUTE) == Bury(BOOM)
    assert judge(now, max_elapsed="6h2m", elapsed=MINUTE, chance=1.0) == RetryAfter(6 * HOUR + MINUTE, BOOM)


def test_a_policy_with_windows_must_be_told_the_time() -> None:
    policy = Retry(3, windows=Windows(deny=[BUSINESS]))
    for now in (None, datetime(2024, 7, 1)):  # noqa: DTZ001
        with pytest.raises(UsageError, match="aware datetime"):
            judge_failure(BOOM, policy, attempt=1, max_attempts=3, chance=0.5, now=now)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"days": "mon-fry"}, "days is 'mon-fry'; write names and ranges of mon, tue"),
        ({"days": ""}, "days is ''"),
        ({"days": "1-5"}, "days is '1-5'"),
        ({"start": "25:00"}, "start is '25:00'; it is a time of day"),
        ({"start": "8"}, "start is '8'"),
        ({"start": 8}, "start is '8'"),
        ({"end": "24:01"}, "end is '24:01'"),
        ({"end": "12:60"}, "end is '12:60'"),
        ({"start": "24:00"}, 'start is "24:00"; the first time of a day is "00:00"'),
        ({"start": "08:00", "end": "08:00"}, "a whole day is"),
        (
            {"zone": "Europe/Berlim"},
            "zone is 'Europe/Berlim', which is not a time zone; did you mean Europe/Berlin",
        ),
        ({"zone": "europe/berlin "}, "Europe/Berlin"),
        ({"zone": "Nowhere"}, "write an IANA name"),
        ({"zone": "Europe"}, "zone is 'Europe'"),
        ({"zone": "../../etc/passwd"}, "write an IANA name"),
        ({"zone": ""}, "zone is ''"),
        ({"zone": 3}, "zone is '3'"),
    ],
)
def test_a_window_that_makes_no_sense_is_told_in_one_line(given: dict[str, Any], told: str) -> None:  # E16
    with pytest.raises(UsageError) as refused:
        Window(**given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"deny": [Window()]}, "never open"),
        ({"allow": [BUSINESS], "deny": [Window(days="mon-fri", zone="Europe/Berlin")]}, "never open"),
        ({"allow": BUSINESS}, "list of Window"),
        ({"deny": ["mon-fri"]}, "list of Window"),
        ({"deny": [BUSINESS], "ramp": "soon"}, "'soon' is not a duration"),
    ],
)
def test_windows_that_make_no_sense_are_told_in_one_line(given: dict[str, Any], told: str) -> None:  # E16
    with pytest.raises(UsageError, match=told):
        Windows(**given)


def test_windows_that_open_only_in_summer_are_accepted() -> None:
    """One hour of Berlin, denied by the clocks of UTC: in winter they are the same hour, in summer they are not."""
    summer = Windows(
        allow=[Window(start="18:00", end="19:00", zone="Europe/Berlin")],
        deny=[Window(start="17:00", end="18:00", zone="UTC")],
    )
    assert summer.next_opening(datetime(2024, 1, 15, tzinfo=UTC)) == berlin("2024-03-31 18:00")


def test_windows_are_only_taken_as_windows() -> None:
    with pytest.raises(UsageError, match="Windows"):
        Retry(windows="mon-fri")  # type: ignore[arg-type]


def test_days_and_times_are_read_as_people_write_them() -> None:
    assert Window(days="Monday - Friday")._days == frozenset(range(5))
    assert Window(days=["sat", "sun"]) == Window(days="sat,sun")
    assert Window(days="fri-mon")._days == {4, 5, 6, 0}
    assert Window(start=time(8), end=time(9, 30)).occurrence(date(2024, 7, 1)) == (
        datetime(2024, 7, 1, 8, tzinfo=UTC),
        datetime(2024, 7, 1, 9, 30, tzinfo=UTC),
    )
