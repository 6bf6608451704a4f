"""The adaptive limit: a worker beside a service that can do only so much."""

from __future__ import annotations

import math
import random
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.resilience.limiter import Limiter, LimiterPolicy
from holdfast.resilience.outcome import Outcome

OK, FAILED, THROTTLED = Outcome.OK, Outcome.FAILED, Outcome.THROTTLED


class Busy:
    """A worker that always has work, and a service that answers *seconds* late for each *capacity* of calls under way."""

    def __init__(self, limiter: Limiter, *, capacity: int = 10, seconds: float = 0.1) -> None:
        self.limiter, self.capacity, self.seconds = limiter, capacity, seconds
        self.now = 0.0

    def run(self, seconds: float, *, outcome: Outcome = OK, demand: int = 10**6) -> Limiter:
        """Turns of calls that all begin and end together."""
        end = self.now + seconds
        while self.now < end:
            calls = max(1, min(self.limiter.limit, demand))
            latency = self.seconds * max(1.0, calls / self.capacity)
            for _ in range(calls):
                self.limiter.started(self.now)
            self.now += latency
            for _ in range(calls):
                self.limiter.ended(latency, outcome, self.now)
        return self.limiter


def busy(**service: Any) -> Busy:
    return Busy(Limiter(LimiterPolicy(), 0.0), **service)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(list(Outcome)), st.floats(0, 100), st.floats(0, 10)),
        max_size=300,
    ),
    st.integers(1, 5),
    st.integers(5, 50),
    st.integers(1, 1000),
)
def test_a_limit_stays_within_its_bounds_whatever_happens(
    calls: list[tuple[bool, Outcome, float, float]], least: int, most: int, start: int
) -> None:  # E23
    limiter = Limiter(LimiterPolicy(least=least, most=most, start=start), 0.0)
    now = 0.0
    for starts, outcome, latency, passes in calls:
        now += passes
        if starts:
            limiter.started(now)
        else:
            limiter.ended(latency, outcome, now)
        assert least <= limiter.limit <= most
        assert 0 <= limiter.room <= limiter.limit
        assert limiter.in_flight >= 0


def test_it_starts_at_twenty_or_where_the_others_are() -> None:  # E23
    assert Limiter(LimiterPolicy(), 0.0).limit == 20
    assert Limiter(LimiterPolicy(), 0.0, 7.6).limit == 7
    assert Limiter(LimiterPolicy(), 0.0, 0.0).limit == 1


def test_it_grows_while_it_binds_and_answers_come_as_at_rest() -> None:  # E23
    assert busy(capacity=200).run(60).limit > 100


def test_it_does_not_grow_while_nobody_needs_it() -> None:  # E23
    assert busy(capacity=200).run(60, demand=5).limit == 20


def test_it_settles_where_the_service_is_used_up_and_not_far_above() -> None:  # E23
    worker = busy(capacity=40)
    worker.run(60)
    found = {worker.run(1).limit for _ in range(60)}
    assert min(found) >= 28
    assert max(found) <= 80


def test_it_shrinks_when_the_service_becomes_slower_and_grows_back() -> None:  # E23
    worker = busy(capacity=40)
    worker.run(60)
    worker.capacity = 4
    slow = worker.run(30).limit
    assert slow <= 10
    worker.capacity = 40
    assert worker.run(60).limit >= 28


@pytest.mark.parametrize(("outcome", "at_most"), [(FAILED, 1), (THROTTLED, 1)])
def test_it_shrinks_to_one_when_nothing_works(outcome: Outcome, at_most: int) -> None:  # E23
    assert busy().run(30, outcome=outcome).limit <= at_most


def test_a_few_failures_do_no_harm_and_many_do() -> None:  # E23
    for every, shrinks in ((15, False), (5, True)):
        limiter = Limiter(LimiterPolicy(), 0.0)
        for number in range(2000):
            limiter.started(number / 100)
            limiter.ended(0.01, FAILED if number % every == 0 else OK, number / 100)
        assert (limiter.limit < 20) is shrinks


def test_one_odd_answer_is_not_a_trend() -> None:  # E23
    for outcome, latency in ((FAILED, 5.0), (OK, 0.7)):
        limiter = busy(capacity=100).run(10, demand=5)
        limiter.started(11.5)
        limiter.started(11.5)
        limiter.ended(latency, outcome, 12.5)
        limiter.ended(0.1, OK, 12.6)
        assert limiter.limit == 20


def test_what_began_under_a_former_limit_is_not_held_against_the_new_one() -> None:  # E23
    """After a cut only the longest calls are still under way; their ends would cut again, and again."""
    limiter = Limiter(LimiterPolicy(), 0.0, at_rest=0.1)
    for _ in range(60):
        limiter.started(0.0)
    for _ in range(6):
        limiter.ended(0.005, THROTTLED, 2.0)
    assert limiter.limit == 14
    for number in range(50):
        limiter.ended(5.0 + number / 10, OK, 5.0 + number / 10)
    assert limiter.limit == 14
    assert limiter.at_rest == pytest.approx(0.1)


def test_calls_that_tell_nothing_change_nothing() -> None:  # E23
    limiter = busy().run(60, outcome=Outcome.UNCOUNTED)
    assert (limiter.limit, limiter.at_rest) == (20, None)


def test_a_long_overload_does_not_pass_for_the_usual() -> None:  # E23
    """Others keep the service slow for an hour: what it takes at rest must not follow while we add to it."""
    limiter = Limiter(LimiterPolicy(least=2), 0.0, at_rest=0.1)
    now = 0.0
    for _ in range(3600):
        for _ in range(3):
            limiter.started(now)
        now += 1.0
        for _ in range(3):
            limiter.ended(1.0, OK, now)
    assert limiter.at_rest == pytest.approx(0.1)
    assert limiter.limit == 2


def test_a_service_that_became_slower_for_good_is_learnt_anew() -> None:  # E23
    worker = busy(capacity=40)
    worker.run(60)
    worker.seconds = 0.5
    worker.run(20)
    assert worker.run(300).limit >= 20
    assert worker.limiter.at_rest == pytest.approx(0.5, rel=0.5)


def test_a_service_that_became_faster_is_learnt_soon() -> None:  # E23
    worker = busy(capacity=40)
    worker.run(60)
    worker.seconds = 0.02
    worker.run(300)
    assert worker.limiter.at_rest == pytest.approx(0.02, rel=0.2)
    assert worker.limiter.limit <= 80


@pytest.mark.parametrize(("workers", "limit"), [(1, 5), (2, 2), (4, 1), (100, 1)])
def test_after_an_outage_the_fleet_begins_with_five_and_keeps_what_it_knows(
    workers: int, limit: int
) -> None:  # E22
    worker = busy(capacity=40)
    worker.run(60)
    at_rest = worker.limiter.at_rest
    worker.limiter.started(worker.now)
    worker.limiter.restart(1 / workers, worker.now)
    assert (worker.limiter.limit, worker.limiter.at_rest, worker.limiter.in_flight) == (limit, at_rest, 1)


def test_the_ramp_climbs_only_as_far_as_latency_allows() -> None:  # E22
    worker = busy(capacity=40)
    worker.run(60)
    worker.limiter.restart(1.0, worker.now)
    worker.capacity = 8
    worker.run(60)
    assert max(worker.run(1).limit for _ in range(60)) <= 17


@pytest.mark.parametrize("seconds", [0.1, 60.0])
def test_a_worker_that_begins_in_a_crowd_finds_out(seconds: float) -> None:  # E23
    """What it learnt first was learnt with four times too many calls under way."""
    worker = busy(capacity=5, seconds=seconds)
    worker.run(seconds * 5000)
    assert worker.limiter.at_rest == pytest.approx(seconds, rel=0.3)
    assert worker.limiter.limit <= 12


@pytest.mark.parametrize("sigma", [0.3, 1.0, 1.5])
@pytest.mark.parametrize("seconds", [0.1, 30.0])
def test_a_healthy_service_whose_answers_vary_widely_is_not_starved(
    sigma: float, seconds: float
) -> None:  # E23
    """Log-normal latencies, sixty calls wanted at once, nothing ever queued: the limit must let them be."""
    chance = random.Random(7)
    limiter = Limiter(LimiterPolicy(), 0.0)
    running: list[tuple[float, float]] = []
    now, begun, refused = 0.0, 0, 0
    mean = math.exp(sigma * sigma / 2)
    while begun < 40_000:
        while running and running[0][0] <= now:
            end, began = heappop(running)
            limiter.ended(end - began, OK, end)
        if limiter.room:
            limiter.started(now)
            heappush(running, (now + seconds * math.exp(chance.gauss(0, sigma)) / mean, now))
        elif begun > 20_000:
            refused += 1
        begun += 1
        now += seconds / 60 * 2 * chance.random()
    assert refused / 20_000 < 0.01


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"start": 0}, "start is 0; it is a whole number, 1 to 100000"),
        ({"least": 0}, "least is 0"),
        ({"least": 5, "most": 4}, "most is 4; it must not be below least (5)"),
        ({"ramp_from": 0}, "ramp_from is 0"),
        ({"max_failures": 0}, "max_failures is 0; it is a share of calls"),
        ({"max_latency": 1.0}, "max_latency is 1.0; it is a number, 1.1 to 100"),
        ({"max_latency": math.nan}, "max_latency is nan"),
        ({"most": True}, "most is True"),
    ],
)
def test_a_knob_that_makes_no_sense_is_told_in_one_line(knobs: dict[str, Any], told: str) -> None:  # E23
    with pytest.raises(UsageError) as caught:
        LimiterPolicy(**knobs)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
