"""One worker's guard: limiter, breaker and budget together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.resilience.breaker import Breaker, BreakerPolicy, BreakerState
from holdfast.resilience.budget import BudgetPolicy
from holdfast.resilience.guard import UNLIMITED, CallPermit, DependencyGuard, DependencyPolicy
from holdfast.resilience.limiter import LimiterPolicy
from holdfast.resilience.outcome import Outcome

NOW = datetime(2026, 3, 1, tzinfo=UTC)
OK, FAILED = Outcome.OK, Outcome.FAILED
OPEN = Breaker(BreakerState.OPEN, 1, NOW, NOW, NOW + timedelta(seconds=30))
HALF_OPEN = replace(OPEN, state=BreakerState.HALF_OPEN, version=2)
CLOSED = replace(OPEN, state=BreakerState.CLOSED, version=3, retry_at=None)
NOTHING = DependencyPolicy(breaker=None, limiter=None, budget=None)


def guard(policy: DependencyPolicy | None = None, workers: int = 4) -> DependencyGuard:
    return DependencyGuard(policy or DependencyPolicy(), 0.0, workers=workers)


def call(one: DependencyGuard, outcome: Outcome, now: float, times: int = 1) -> None:
    for _ in range(times):
        one.end(one.begin(now), outcome, now)


def test_without_any_mechanism_everything_may_begin() -> None:  # E23
    free = guard(NOTHING)
    assert free.room(0.0) == UNLIMITED
    call(free, FAILED, 0.0, times=1000)
    assert (free.room(0.0), free.vote(0.0)) == (UNLIMITED, False)


def test_the_room_is_what_the_limiter_leaves() -> None:  # E23
    one = guard()
    calls = [one.begin(0.0) for _ in range(20)]
    assert one.room(0.0) == 0
    one.end(calls[0], OK, 0.1)
    assert one.room(0.1) == 1


def test_a_worker_that_sees_only_failures_stops_at_once_and_votes() -> None:  # E20
    one = guard()
    call(one, FAILED, 1.0, times=9)
    assert one.room(1.0) > 0
    assert not one.vote(1.0)
    call(one, FAILED, 1.0)
    assert (one.room(1.0), one.vote(1.0), one.is_caller(1.0)) == (0, True, True)


def test_a_bad_node_tries_again_by_itself_and_comes_back() -> None:  # E20, E22
    one = guard()
    call(one, FAILED, 1.0, times=10)
    assert one.room(30.9) == 0
    assert one.room(31.0) == 3
    trials = [one.begin(31.0) for _ in range(3)]
    assert one.room(31.0) == 0
    one.end(trials[0], OK, 31.5)
    assert one.vote(31.5)
    one.end(trials[1], OK, 31.5)
    assert not one.vote(31.5)
    assert one.limiter is not None
    assert one.limiter.limit == 1  # its share of five: the ramp
    one.end(trials[2], FAILED, 36.0)
    assert not one.vote(36.0)


def test_another_policy_begins_with_what_is_known_and_judges_no_call_of_before() -> None:  # E10 E20
    one = guard(DependencyPolicy(limiter=LimiterPolicy(start=40), budget=BudgetPolicy(capacity=400)))
    before = one.begin(0.0)
    call(one, FAILED, 0.0, times=10)
    assert one.budget is not None
    assert one.budget.take(14, 0.0)  # of 100, its share
    assert one.vote(0.0)
    slow = BreakerPolicy(min_calls=1, threshold=1.0, slow_after="1s", cooldown="1m")
    one.adopt(
        DependencyPolicy(
            breaker=slow, limiter=LimiterPolicy(least=50), budget=BudgetPolicy(capacity=40, floor="1s")
        ),
        1.0,
    )
    assert (one.vote(1.0), one.room(1.0), one.slow_after) == (False, 49, timedelta(seconds=1))
    assert one.budget.tokens == pytest.approx(8.6)
    assert one.budget.take(14, 5.0)  # its floor is four seconds, and counts from now
    after = one.begin(2.0)
    one.end(before, FAILED, 2.0)
    assert not one.vote(2.0)
    assert one.room(2.0) == 49
    one.end(after, FAILED, 2.0)
    assert one.vote(2.0)
    one.adopt(NOTHING, 3.0)
    assert (one.room(3.0), one.vote(3.0)) == (UNLIMITED, False)
    later = one.begin(3.0)
    one.adopt(DependencyPolicy(breaker=slow), 4.0)
    one.end(later, FAILED, 4.0)
    assert (one.room(4.0), one.vote(4.0)) == (20, False)


def test_a_bad_node_stays_away_longer_each_time() -> None:  # E22
    one = guard(DependencyPolicy(breaker=BreakerPolicy(max_cooldown="5m")))
    call(one, FAILED, 0.0, times=10)
    for began, wait in ((0.0, 30.0), (30.0, 60.0), (90.0, 120.0)):
        assert one.room(began + wait - 0.1) == 0
        assert one.room(began + wait) > 0
        call(one, FAILED, began + wait, times=2)


def test_a_trial_that_hangs_gives_way_to_the_next() -> None:  # E22
    one = guard()
    call(one, FAILED, 0.0, times=10)
    assert one.room(30.0) == 3
    for _ in range(3):
        one.begin(30.0)
    assert one.room(59.9) == 0
    assert one.room(60.0) > 0


def test_calls_that_hang_make_a_vote_without_ending() -> None:  # E20
    one = guard(DependencyPolicy(breaker=BreakerPolicy(slow_after="5s")))
    for _ in range(10):
        one.begin(0.0)
    assert not one.vote(4.0)
    assert one.vote(5.5)


def test_an_open_breaker_of_the_fleet_stops_the_worker_and_its_own_is_forgotten() -> None:  # E20
    one = guard()
    call(one, FAILED, 1.0, times=10)
    one.update_shared(OPEN, 4, 2.0)
    assert (one.room(1e6), one.vote(1e6)) == (0, False)
    one.update_shared(HALF_OPEN, 4, 32.0)
    assert one.room(32.0) == 0


def test_closing_begins_the_ramp_and_a_clean_slate() -> None:  # E22
    one = guard()
    late = [one.begin(0.0) for _ in range(10)]
    one.update_shared(OPEN, 4, 2.0)
    one.update_shared(CLOSED, 4, 40.0)
    assert one.limiter is not None
    assert one.limiter.limit == 1
    for began in late:
        one.end(began, FAILED, 41.0)
    assert not one.vote(41.0)
    assert one.room(41.0) == 1


def test_news_that_is_older_than_what_is_known_is_not_believed() -> None:  # E20
    one = guard()
    one.update_shared(CLOSED, 4, 40.0)
    one.update_shared(OPEN, 4, 41.0)
    assert one.shared == CLOSED


def test_a_worker_that_calls_no_more_is_no_caller() -> None:  # E20
    one = guard()
    assert not one.is_caller(0.0)
    call(one, OK, 5.0)
    assert one.is_caller(65.0)
    assert not one.is_caller(65.1)


def test_a_success_pays_into_the_budget_and_a_retry_gets_its_cost_back() -> None:  # E17
    one = guard(workers=1)
    assert one.budget is not None
    assert one.budget.take(14, 0.0)
    one.end(one.begin(0.0, paid=14), OK, 0.1)
    assert one.budget.tokens == 500
    assert one.budget.take(14, 0.0)
    one.end(one.begin(0.0, paid=14), FAILED, 0.1)
    one.end(one.begin(0.0), OK, 0.1)
    assert one.budget.tokens == 487


def test_the_share_of_the_budget_follows_the_fleet() -> None:  # E17
    one = guard(workers=4)
    assert one.budget is not None
    assert one.budget.capacity == 125
    one.update_shared(Breaker(), 10, 1.0)
    assert one.budget.capacity == 50


def test_a_new_worker_begins_where_the_others_are() -> None:  # E23
    one = DependencyGuard(DependencyPolicy(), 0.0, workers=3, start=6.5, at_rest=0.2)
    assert one.limiter is not None
    assert one.room(0.0) == 6
    assert one.limiter.at_rest == pytest.approx(0.2)


policies = st.builds(
    DependencyPolicy,
    breaker=st.sampled_from([None, BreakerPolicy(), BreakerPolicy(window="20s", slow_after="2s")]),
    limiter=st.sampled_from([None, LimiterPolicy(), LimiterPolicy(start=3, most=5)]),
    budget=st.sampled_from([None, BudgetPolicy()]),
)


@settings(deadline=None)
@given(
    policies,
    st.lists(st.tuples(st.integers(0, 9), st.floats(0, 20), st.sampled_from(list(Outcome))), max_size=150),
)
def test_room_is_never_exceeded_and_is_never_gone_for_good(
    policy: DependencyPolicy, played: list[tuple[int, float, Outcome]]
) -> None:  # E20, E22, E23
    one = guard(policy)
    running: list[CallPermit] = []
    now = 0.0
    for number, passes, outcome in played:
        now += passes
        if number < 6:
            room = one.room(now)
            running += [one.begin(now) for _ in range(min(room, number))]
            assert one.room(now) <= max(0, room)
        elif running:
            one.end(running.pop(number % len(running)), outcome, now)
    for began in running:
        one.end(began, Outcome.UNCOUNTED, now)
    assert one.room(now + 301.0) > 0


@pytest.mark.parametrize("name", ["breaker", "limiter", "budget"])
def test_a_policy_that_is_none_is_told_at_once(name: str) -> None:  # E20 E23 E17
    wrong: Any = {name: {"threshold": 0.5}}
    with pytest.raises(UsageError, match=rf"^{name} is .*; it is a \w+Policy, or None to switch it off$"):
        DependencyPolicy(**wrong)


def test_a_call_that_is_handed_over_is_slow_by_its_own_time() -> None:  # E20
    policy = BreakerPolicy(window=1, min_calls=1, slow_after="2s", cooldown="1h")
    one = guard(DependencyPolicy(breaker=policy))
    leave = one.begin(0.0)
    call = one.hand_over(leave, 1.0)  # its handler did something else before
    assert not one.vote(2.5)
    assert one.vote(3.5)
    one.end(call, OK, 3.6)
    assert one.calls == 1


def test_a_trial_that_goes_well_is_told_also_among_nothing_but_successes() -> None:  # E22
    one = guard(
        DependencyPolicy(breaker=BreakerPolicy(window=2, min_calls=2, trials_to_close=3), budget=None)
    )
    call(one, FAILED, 0.0, times=2)
    assert one.vote(0.0)
    later = 100.0
    for _ in range(3):
        assert one.room(later) > 0
        one.answered(one.begin(later), later)
    assert not one.vote(later)


@given(
    steps=st.lists(st.tuples(st.sampled_from([OK, OK, OK, FAILED]), st.floats(0.0, 40.0)), max_size=40),
    window=st.sampled_from([2, 3, 20]),
    budget=st.sampled_from([None, BudgetPolicy()]),
)
@settings(max_examples=60)
def test_a_success_is_the_same_however_it_is_told(
    steps: list[tuple[Outcome, float]], window: int, budget: BudgetPolicy | None
) -> None:  # E20 E23
    policy = DependencyPolicy(
        breaker=BreakerPolicy(window=window, min_calls=2, trials_to_close=3), budget=budget
    )
    long, short = guard(policy), guard(policy)
    now = 0.0
    for outcome, passed in steps:
        now += passed
        assert long.room(now) == short.room(now)
        if not long.room(now):
            continue
        one, other = long.begin(now), short.begin(now)
        now += 0.01
        long.end(one, outcome, now)
        if outcome is OK:
            short.answered(other, now)
        else:
            short.end(other, outcome, now)
        assert one.outcome is other.outcome
        assert (long.own, long.vote(now), long.calls) == (short.own, short.vote(now), short.calls)
        if long.budget is not None and short.budget is not None:
            assert long.budget.tokens == short.budget.tokens
