"""The pace of work on many jobs: a canary first, then a ramp, and a stop when too many of them fail again. Pure.

    canary ──all have ended, few enough failed──► ramp ──full rate──► steady ──no job is left──► watching
       └───────────────────── too many failed again ───────────────────┴──► stopped

A pace is what a person asked for, and a course is what has happened so far. Both are stored with their operation. Each
function takes them and the time, and returns what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

#: The last jobs that have ended, of which only a share may have failed again.
WINDOW = 50
#: How many jobs may have been moved and not ended. While their outcome is unknown, no more follow.
MOST_UNENDED = 500
#: How long one rate of a ramp lasts before it doubles.
STEP = timedelta(minutes=1)
#: How often jobs that were moved are looked at while nothing else is to be done.
WATCH_EVERY = timedelta(seconds=1)
#: How many seconds' worth of jobs are moved at a time.
_BURST = 0.25
#: How much of the time that was missed is made up for.
_CREDIT = timedelta(seconds=1)


class Phase(StrEnum):
    """Where a paced operation stands."""

    CANARY = "canary"  #: the first jobs run, and the others wait for their outcome
    RAMP = "ramp"  #: the rate grows
    STEADY = "steady"  #: at the full rate
    WATCHING = "watching"  #: all jobs were moved, and some have not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast jobs are moved, and when to stop.

    Attributes:
        stop_above: Stop when more than this share of the last `WINDOW` jobs that ended have failed again.
        canary: This many go first. The others wait until they have ended.
        ramp_from: The rate after the canary, in jobs a second. It doubles every `STEP` until it reaches *rate*.
        rate: The full rate, in jobs a second. None: as fast as jobs can be moved.
    """

    stop_above: float
    canary: int = 0
    ramp_from: float | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What a paced operation has done so far."""

    moved: int = 0
    ended: int = 0  #: of those that were moved
    failed: int = 0  #: of those that ended
    recent: str = ""  #: the last `WINDOW` that ended, oldest first: "1" failed again, "0" did not
    rate: float | None = None  #: the rate of the ramp now
    grown_at: datetime | None = None  #: when the ramp began, or its rate grew last
    too_many: str | None = None  #: why no more jobs are moved

    @property
    def unended(self) -> int:
        return self.moved - self.ended


def observe(pace: Pace, course: Course, outcomes: Iterable[bool]) -> Course:
    """Return the course after more jobs have ended. Each outcome says whether the job has failed again."""
    for failed in outcomes:
        in_canary = course.ended < pace.canary
        course = replace(
            course,
            ended=course.ended + 1,
            failed=course.failed + failed,
            recent=(course.recent + "01"[failed])[-WINDOW:],
        )
        if course.too_many is None:
            course = replace(course, too_many=_verdict(pace, course, in_canary=in_canary))
    return course


def _verdict(pace: Pace, course: Course, *, in_canary: bool) -> str | None:
    """Return why to stop, or None. A bound that can no longer be kept need not wait for the other jobs."""
    if in_canary:
        failed, most, of = course.failed, pace.canary, f"the canary of {pace.canary}"
    else:
        failed, most, of = course.recent.count("1"), WINDOW, f"the last {len(course.recent)} that ended"
    if failed <= pace.stop_above * most:
        return None
    return f"{failed} of {of} failed again; at most {pace.stop_above:.0%} may"


def phase(pace: Pace, course: Course, *, is_last: bool) -> Phase:
    """Return where an operation stands. *is_last* says that no job is left to be moved."""
    if is_last:
        return Phase.WATCHING
    if course.ended < pace.canary:
        return Phase.CANARY
    if pace.ramp_from is not None and (course.rate is None or course.rate < (pace.rate or 0)):
        return Phase.RAMP
    return Phase.STEADY


def grow(pace: Pace, course: Course, now: datetime) -> Course:
    """Return the course with its rate at the time *now*.

    It doubles once however long the last call is ago, so that a ramp whose processes were down goes on where it was.
    """
    if pace.ramp_from is None or pace.rate is None or course.ended < pace.canary:
        return course
    if course.rate is None or course.grown_at is None:
        return replace(course, rate=pace.ramp_from, grown_at=now)
    if course.rate >= pace.rate or now < course.grown_at + STEP:
        return course
    return replace(course, rate=min(course.rate * 2, pace.rate), grown_at=now)


def current_rate(pace: Pace, course: Course) -> float | None:
    """Return how many jobs a second may be moved now. None: as many as can be."""
    return pace.rate if course.rate is None else course.rate


def batch(rate: float | None, most: int) -> int:
    """Return how many jobs to move at a time at this rate, at most *most*."""
    return most if rate is None else max(1, min(most, int(rate * _BURST)))


def allowed(pace: Pace, course: Course, most: int) -> int:
    """Return how many jobs may be moved now, at most *most*. 0: wait until some of the moved ones have ended."""
    if course.too_many is not None:
        return 0
    if course.ended < pace.canary:
        return max(0, min(most, pace.canary - course.moved))
    return max(0, min(batch(current_rate(pace, course), most), MOST_UNENDED - course.unended))


def due_after(moved: int, rate: float | None, *, due: datetime | None, now: datetime) -> datetime:
    """Return when the next jobs may be moved.

    Args:
        moved: How many were moved just now.
        rate: How many may be moved a second. None: as many as can be.
        due: When these were due. Those that came late by less than `_CREDIT` do not delay the next ones, so the rate is kept on
            average although processes look only now and then.
        now: The time.
    """
    if rate is None:
        return now
    start = now if due is None else max(due, now - _CREDIT)
    return start + timedelta(seconds=moved / rate)


def duration(jobs: int, *, rate: float | None, ramp_from: float | None = None) -> timedelta | None:
    """Return how long it takes to move this many jobs at a rate, without the wait for a canary. None: no rate is set."""
    if rate is None:
        return None
    spent, left, now = timedelta(), float(jobs), rate if ramp_from is None else ramp_from
    while now < rate and left > now * STEP.total_seconds():
        spent, left = spent + STEP, left - now * STEP.total_seconds()
        now *= 2
    return spent + timedelta(seconds=left / min(now, rate))
