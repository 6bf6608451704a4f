"""The number of jobs a worker runs at once, where it may vary."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, UsageError
from holdfast.worker.slots import IDLE, Slots


def run(slots: Slots, rounds: int, seconds: float, task: str = "t", start: float = 0.0) -> float:
    """Rounds of a second in which all slots are used and each attempt takes so long."""
    now = start
    for _ in range(rounds):
        count = slots.count
        for _ in range(count):
            slots.started(now)
        now += max(seconds, 1.1)
        for _ in range(count):
            slots.ended(task, seconds, now)
    return now


def test_a_fixed_number_stays() -> None:  # E26
    slots = Slots(10, None, 0.0)
    run(slots, 20, 1.0)
    assert slots.count == 10


def test_it_grows_to_the_most_while_all_are_used_and_nothing_gets_slower() -> None:  # E26
    slots = Slots(32, 4, 0.0)
    assert slots.count == 4
    run(slots, 60, 0.5)
    assert slots.count == 32


def test_it_shrinks_when_attempts_take_longer_than_usual_and_not_below_the_least() -> None:  # E26
    slots = Slots(32, 4, 0.0)
    now = run(slots, 60, 0.5)
    run(slots, 30, 2.0, start=now)
    assert 4 <= slots.count < 16


def test_a_task_that_always_takes_long_is_not_slow() -> None:  # E26
    slots = Slots(32, 4, 0.0)
    now = 0.0
    for _ in range(60):
        count = slots.count
        for _ in range(count):
            slots.started(now)
        now += 1.1
        for place in range(count):
            slots.ended("long" if place % 2 else "short", 5.0 if place % 2 else 0.1, now)
    assert slots.count == 32


def test_it_begins_again_at_the_least_after_a_while_without_work() -> None:  # E26
    slots = Slots(32, 4, 0.0)
    now = run(slots, 60, 0.5)
    slots.idle(now)
    slots.idle(now + IDLE / 2)
    slots.started(now + IDLE / 2)  # one job comes: the time without work begins anew
    slots.ended("t", 0.5, now + IDLE / 2 + 0.5)
    slots.idle(now + IDLE)
    assert slots.count == 32
    slots.idle(now + 2 * IDLE)
    assert slots.count == 4
    run(slots, 60, 0.5, start=now + 3 * IDLE)
    assert slots.count == 32


def test_bounds_that_contradict_each_other_are_refused() -> None:  # E26
    with pytest.raises(UsageError, match="min_concurrency is 20, above concurrency"):
        Holdfast("memory://", concurrency=10, min_concurrency=20)
