"""Ticks of schedules: cron by the clocks of a zone, intervals, missed ticks, and schedulers whose clocks differ."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.jobs.schedule import (
    MOST_MISSED,
    ON_TIME,
    Cron,
    Every,
    Missed,
    Schedule,
    When,
    describe,
    due,
    tick_id,
)
from holdfast.tasks.task import checked_id

BERLIN = ZoneInfo("Europe/Berlin")
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=seconds) for seconds in (1, 60, 3600, 86_400))
START = datetime(2026, 1, 1, tzinfo=UTC)
ANYTHING: Any = "5m"
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Cairo",
    "America/Santiago",
    "UTC",
]
#: Nights on which the clocks of one of them are changed.
CHANGES = [
    datetime(2024, *day, tzinfo=UTC)
    for day in ((3, 10), (3, 31), (4, 6), (4, 7), (4, 25), (9, 8), (10, 6), (10, 27), (10, 31), (11, 3))
]
moments = st.builds(
    lambda change, minutes: change + minutes * MINUTE, st.sampled_from(CHANGES), st.integers(-3000, 3000)
)


def berlin(text: str, fold: int = 0) -> datetime:
    """A moment by the clocks of Berlin."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold).astimezone(UTC)


def scheduled(when: When, missed: Missed = "once") -> Schedule:
    return Schedule(name="nightly", task="report", when=when, missed=missed)


# -- cron -------------------------------------------------------------------------------------------------------------
def test_a_cron_goes_by_the_clocks_of_its_zone() -> None:  # E39
    cron = Cron("0 7 * * mon-fri", zone="Europe/Berlin")
    assert cron.next_after(berlin("2024-07-05 06:59:59")) == berlin("2024-07-05 07:00")
    assert cron.next_after(berlin("2024-07-05 07:00")) == berlin("2024-07-08 07:00")  # over the weekend
    assert cron.next_after(berlin("2024-01-08 00:00")) == datetime(2024, 1, 8, 6, tzinfo=UTC)
    assert cron.next_after(berlin("2024-07-08 00:00")) == datetime(2024, 7, 8, 5, tzinfo=UTC)


def test_a_tick_is_after_the_moment_and_up_to_the_end() -> None:  # E39
    cron = Cron("*/10 * * * *")
    assert cron.ticks_between(START, START + 30 * MINUTE) == [
        START + number * 10 * MINUTE for number in (1, 2, 3)
    ]
    assert cron.next_after(START - timedelta(microseconds=1)) == START
    assert cron.ticks_between(START, START) == []
    assert cron.ticks_between(START, START - HOUR) == []


def test_a_time_that_is_left_out_runs_once_when_the_clocks_have_been_changed() -> None:  # E39
    assert Cron("30 2 * * *", "Europe/Berlin").ticks_between(
        berlin("2024-03-30 12:00"), berlin("2024-04-01 12:00")
    ) == [berlin("2024-03-31 03:00"), berlin("2024-04-01 02:30")]
    # Several times of one gap are one run; so is one that falls on the moment of the change anyway.
    for expression in ("0,15,30 2 * * *", "*/20 2 * * *", "0,30 2,3 * * *"):
        ticks = Cron(expression, "Europe/Berlin").ticks_between(
            berlin("2024-03-31 01:00"), berlin("2024-03-31 03:10")
        )
        assert ticks == [berlin("2024-03-31 03:00")], expression


def test_a_time_that_is_shown_twice_runs_once_at_its_first_showing() -> None:  # E39
    for expression in ("30 2 * * *", "30 */2 * * *"):
        ticks = Cron(expression, "Europe/Berlin").ticks_between(
            berlin("2024-10-27 01:00"), berlin("2024-10-27 03:30")
        )
        assert ticks == [berlin("2024-10-27 02:30", fold=0)], expression


def test_a_cron_of_every_hour_goes_by_elapsed_time() -> None:  # E39
    for expression in ("17 * * * *", "17 0-23 * * *", "@hourly"):
        for night in ("2024-03-31", "2024-10-27"):
            begin = berlin(f"{night} 00:00")
            ticks = Cron(expression, "Europe/Berlin").ticks_between(begin, begin + 6 * HOUR)
            assert len(ticks) == 6
            assert {later - earlier for earlier, later in pairwise(ticks)} == {HOUR}


def test_midnight_itself_may_be_left_out() -> None:  # E39
    """In Cairo the clocks go from 24:00 to 01:00."""
    cairo = ZoneInfo("Africa/Cairo")
    before = datetime(2024, 4, 25, 12, tzinfo=cairo)
    changed = datetime(2024, 4, 26, 1, tzinfo=cairo).astimezone(UTC)
    assert Cron("0 0 * * *", "Africa/Cairo").next_after(before) == changed
    assert Cron("0 * * * fri", "Africa/Cairo").next_after(before) == changed


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["0", "30", "*/15", "5,35", "59"]),
    st.sampled_from(["*", "2", "0", "1-3", "*/2", "23,0", "3"]),
    st.sampled_from(["*", "sun", "mon-fri", "sun#1"]),
    st.sampled_from(ZONES),
    moments,
)
@example("30", "2", "*", "Europe/Berlin", berlin("2024-03-31 00:00"))
@example("30", "2", "*", "Europe/Berlin", berlin("2024-10-27 02:40", fold=1))
@example("30", "*", "*", "Europe/Berlin", berlin("2024-10-27 02:40", fold=0))
@example("30", "*", "*", "Australia/Lord_Howe", datetime(2024, 4, 6, 14, 45, tzinfo=UTC))
def test_every_tick_is_one_that_the_clocks_show_and_none_is_left_out(
    minute: str, hour: str, weekday: str, zone: str, after: datetime
) -> None:  # E39
    cron = Cron(f"{minute} {hour} * * {weekday}", zone)
    until = after + 2 * DAY
    assert cron.ticks_between(after, until, most=10_000) == by_watching(cron, after, until)


def by_watching(cron: Cron, after: datetime, until: datetime) -> list[datetime]:
    """The ticks as somebody finds them who looks at the clock every minute: what the promise says, and no arithmetic."""
    fields = CronSim(cron.expression, START)
    ticks: list[datetime] = []
    zone = ZoneInfo(cron.zone)
    every_hour = cron._every_hour

    def matches(wall: datetime) -> bool:
        return wall.minute in fields.minutes and wall.hour in fields.hours and fields.match_day(wall.date())

    moment = (after - 2 * HOUR).replace(second=0, microsecond=0)
    highest = (moment - 6 * HOUR).astimezone(zone).replace(tzinfo=None)
    while moment <= until:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if every_hour:
            hit = matches(wall)
        else:
            # By the wall clock: a time counts when it is reached for the first time, and so do those jumped over.
            hit = False
            while highest < wall:
                highest += MINUTE
                hit = matches(highest) or hit
        if hit and after < moment <= until:
            ticks.append(moment)
        moment += MINUTE
    return ticks


@settings(deadline=None)
@given(
    st.sampled_from(
        [Cron("*/7 * * * *"), Cron("0 3 * * sun", "Europe/Berlin"), Cron("0 0 1 * *"), Every("90s")]
    ),
    moments,
    st.integers(0, 40_000),
    st.integers(1, 120),
)
def test_the_newest_ticks_of_a_long_absence_are_the_end_of_all_ticks(
    when: Cron | Every, after: datetime, minutes: int, most: int
) -> None:  # E39
    until = after + minutes * MINUTE
    everything = when.ticks_between(after, until, most=10**6)
    assert when.ticks_between(after, until, most) == everything[-most:]
    walked: list[datetime] = []
    tick = when.next_after(after)
    while tick is not None and tick <= until and len(walked) < 300:
        walked.append(tick)
        tick = when.next_after(tick)
    assert walked == everything[:300]


def test_years_of_absence_are_passed_over_quickly() -> None:
    newest = Cron("* * * * *").ticks_between(START - 20 * 365 * DAY, START, 3)
    assert newest == [START - 2 * MINUTE, START - MINUTE, START]
    assert len(Cron("0 0 29 2 *").ticks_between(START - 20 * 366 * DAY, START)) == 5


# -- intervals --------------------------------------------------------------------------------------------------------
def test_an_interval_is_aligned_to_the_epoch_or_to_its_anchor() -> None:  # E39
    assert Every("5m").next_after(START + 7 * MINUTE) == START + 10 * MINUTE
    anchored = Every("5m", anchor=START + MINUTE)
    assert anchored.next_after(START + 7 * MINUTE) == START + 11 * MINUTE
    assert anchored.next_after(START - 7 * MINUTE) == START - 4 * MINUTE
    assert Every(timedelta(hours=6)).next_after(START + SECOND) == START + 6 * HOUR


def test_an_interval_takes_no_notice_of_changed_clocks() -> None:  # E39
    begin = berlin("2024-10-26 12:00")
    ticks = Every("1h").ticks_between(begin, begin + DAY)
    assert len(ticks) == 24


# -- missed ticks -----------------------------------------------------------------------------------------------------
def test_a_new_schedule_has_missed_nothing() -> None:  # E39
    for missed in ("skip", "once", "all"):
        assert due(scheduled(Every("1m"), missed), None, START) == []


def test_a_tick_is_due_from_its_moment_on_and_only_until_it_was_seen_to() -> None:  # E39
    for missed in ("skip", "once", "all"):
        every = scheduled(Every("1m"), missed)
        assert due(every, START, START + MINUTE - SECOND) == []
        assert due(every, START, START + MINUTE) == [START + MINUTE]
        assert due(every, START + MINUTE, START + MINUTE + SECOND) == []


def test_each_rule_for_missed_ticks() -> None:  # E39
    away = START + 5 * HOUR + 30 * MINUTE
    hourly = Cron("0 * * * *")
    assert due(scheduled(hourly, "skip"), START, away) == []
    assert due(scheduled(hourly, "once"), START, away) == [START + 5 * HOUR]
    assert due(scheduled(hourly, "all"), START, away) == [START + number * HOUR for number in range(1, 6)]


def test_a_tick_that_is_seen_a_little_late_was_not_missed() -> None:  # E39
    tick = START + HOUR
    hourly = scheduled(Cron("0 * * * *"), "skip")
    assert due(hourly, START, tick + ON_TIME - SECOND) == [tick]
    assert due(hourly, START, tick + ON_TIME + SECOND) == []


def test_making_up_for_all_has_a_bound() -> None:  # E39
    ticks = due(scheduled(Every("1s"), "all"), START, START + DAY)
    assert len(ticks) == MOST_MISSED
    assert ticks[-1] == START + DAY


@given(
    st.sampled_from(["skip", "once", "all"]),
    st.sampled_from([Every("7s"), Every("1h"), Cron("* * * * *"), Cron("30 2 * * *", "Europe/Berlin")]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400)), min_size=1, max_size=40),
)
def test_schedulers_with_different_clocks_enqueue_every_tick_once(
    missed: Missed, when: When, looks: list[tuple[int, int]]
) -> None:  # E39 E7
    """Three schedulers, one 2 s early, one 2 s late, look in any order at one shared row."""
    schedule = scheduled(when, missed)
    now = berlin("2024-03-31 01:50")
    row, version, enqueued = now, 0, []
    for who, pause in looks:
        now += pause * SECOND
        shown = now + (who - 1) * 2 * SECOND
        read, seen = row, version
        ticks = due(schedule, read, shown)
        if ticks and version == seen:  # the compare-and-set of the store
            row, version = max(read, shown), version + 1
            enqueued += [tick_id(schedule.name, tick) for tick in ticks]
            assert all(read < tick <= shown for tick in ticks)
    assert len(enqueued) == len(set(enqueued))


def test_schedulers_that_do_not_know_of_each_other_make_the_same_jobs() -> None:  # E39
    """Without the store's row even: the id says that it is the same job."""
    every = scheduled(Cron("*/5 * * * *"), "all")
    ids: list[set[str]] = []
    for skew in (-2 * SECOND, timedelta(), 2 * SECOND):
        made, last = set(), START
        for minute in range(121):
            now = START + minute * MINUTE + 30 * SECOND + skew
            made |= {str(tick_id(every.name, tick)) for tick in due(every, last, now)}
            last = now
        ids.append(made)
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == 24


# -- ids --------------------------------------------------------------------------------------------------------------
def test_the_id_of_a_tick_is_the_same_everywhere_and_like_all_others() -> None:  # E39
    tick = berlin("2024-03-31 03:00")
    made = tick_id("nightly", tick)
    assert (
        made == "018e9205-3a80-73f6-93af-d3ece26ff09e"
    )  # for ever: an upgrade must not enqueue a tick again
    assert UUID(made).version == 7
    assert made == tick_id("nightly", tick.astimezone(BERLIN))
    assert checked_id(made) == made
    assert UUID(made).variant == UUID(int=2**63).variant
    assert UUID(made).int >> 80 == int(tick.timestamp() * 1000)


@given(st.text(max_size=20), st.text(max_size=20), moments, moments)
def test_the_ids_of_different_ticks_differ(
    one: str, other: str, tick: datetime, later: datetime
) -> None:  # E39
    assert (tick_id(one, tick) == tick_id(other, later)) == ((one, tick) == (other, later))


def test_ids_grow_with_time() -> None:
    ids = [tick_id("nightly", START + number * SECOND) for number in range(100)]
    assert ids == sorted(ids)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("", "five fields"),
        ("0 7 * *", "five fields"),
        ("0 0 7 * * *", "five fields"),
        ("61 * * * *", "bad minute"),
        ("0 25 * * *", "bad hour"),
        ("0 0 32 * *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * fry", "bad day-of-week"),
        ("0 0 * * mon-", "bad day-of-week"),
        ("*/0 * * * *", "bad minute"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("@never", "five fields"),
        (None, "five fields"),
        ("0 0 31 2,4 */100", "cron"),
    ],
)
def test_a_cron_that_makes_no_sense_is_told_in_one_line(expression: Any, told: str) -> None:  # E39
    with pytest.raises(UsageError) as refused:
        Cron(expression)
    line = str(refused.value)
    assert told in line
    assert "e.g." in line or "never" in line
    assert "\n" not in line
    assert len(line) < 250


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Cron("0 7 * * *", zone="Europe/Berlim"), "did you mean Europe/Berlin"),
        (lambda: Every("soon"), "'soon' is not a duration"),
        (lambda: Every("500ms"), "the shortest interval is 1s"),
        (lambda: Every(0), "the shortest interval is 1s"),
        (lambda: Every("5m", anchor=datetime(2026, 1, 1)), "anchor has no time zone"),  # noqa: DTZ001
        (
            lambda: Schedule(name="a", task="a", when=Every("5m"), missed=ANYTHING),
            "missed is '5m'; it is one of skip, once, all",
        ),
        (lambda: Schedule(name="a", task="a", when=ANYTHING), r"write Cron\(…\) or Every\(…\)"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_told_in_one_line(make: Any, told: str) -> None:  # E39
    with pytest.raises(UsageError, match=told):
        make()


def test_shorthands_and_names_are_understood() -> None:
    assert Cron("@daily").next_after(START) == START + DAY
    assert Cron("0 0 L * *").next_after(START) == datetime(2026, 1, 31, tzinfo=UTC)
    assert Cron("0 0 * * mon#1").next_after(START) == datetime(2026, 1, 5, tzinfo=UTC)
    assert Cron("0 0 1 jan *").next_after(START) == datetime(2027, 1, 1, tzinfo=UTC)


def test_a_schedule_has_a_short_name_for_its_times() -> None:
    assert describe(Cron("0 7 * * *", "Europe/Berlin")) == "0 7 * * * Europe/Berlin"
    assert describe(Cron("@daily")) == "@daily"
    assert describe(Every(300)) == "every 5m"
