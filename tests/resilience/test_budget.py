"""The retry budget: who pays, who gets back, who waits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.jobs.codes import ErrorClass
from holdfast.resilience.budget import LONGEST_WAIT, Budget, BudgetPolicy

POLICY = BudgetPolicy()


def taken(budget: Budget, cost: int, now: float, *, urgent: bool = False) -> int:
    """How many retries go through at one moment."""
    count = 0
    while budget.take(cost, now, urgent=urgent):
        count += 1
    return count


moves = st.one_of(
    st.tuples(st.just("take"), st.integers(1, 600), st.booleans()),
    st.tuples(st.just("succeed"), st.integers(0, 600), st.booleans()),
    st.tuples(st.just("resize"), st.integers(0, 200), st.booleans()),
)


@settings(deadline=None)
@given(st.lists(st.tuples(moves, st.floats(0, 30)), max_size=200), st.integers(1, 100), st.floats(0, 0.9))
def test_tokens_stay_within_the_share_whatever_happens(
    played: list[tuple[tuple[str, int, bool], float]], workers: int, reserve: float
) -> None:  # E17
    budget = Budget(BudgetPolicy(reserve=reserve), 0.0, workers=workers)
    now = 0.0
    for (move, amount, urgent), passes in played:
        now += passes
        match move:
            case "take":
                budget.take(amount, now, urgent=urgent)
            case "succeed":
                budget.succeeded(amount)
            case "resize":
                budget.resize(amount)
        assert -1e-9 <= budget.tokens <= budget.capacity + 1e-9
        assert 10 <= budget.wait(0.5).total_seconds() <= 20 * LONGEST_WAIT


def test_a_retry_costs_by_what_it_follows() -> None:  # E17
    costs = {
        one: POLICY.cost_of(one) for one in (ErrorClass.TRANSIENT, ErrorClass.UNKNOWN, ErrorClass.THROTTLED)
    }
    assert costs == {ErrorClass.TRANSIENT: 14, ErrorClass.UNKNOWN: 14, ErrorClass.THROTTLED: 5}


def test_a_full_budget_pays_for_so_many_retries_and_then_refuses() -> None:  # E17
    assert taken(Budget(POLICY, 0.0), 14, 0.0) == 400 // 14  # the last fifth is kept
    assert taken(Budget(POLICY, 0.0), 5, 0.0) == 400 // 5


def test_the_last_fifth_is_for_urgent_jobs() -> None:  # E17
    budget = Budget(POLICY, 0.0)
    taken(budget, 14, 0.0)
    assert budget.take(14, 0.0, urgent=True)
    assert not budget.take(14, 0.0)


def test_a_retry_that_succeeds_gets_its_cost_back_and_a_first_try_brings_one() -> None:  # E17
    budget = Budget(POLICY, 0.0)
    for _ in range(1000):
        assert budget.take(14, 0.0)
        budget.succeeded(14)
    assert budget.tokens == 500
    taken(budget, 14, 0.0)
    left = budget.tokens
    budget.succeeded()
    assert budget.tokens == left + 1


def test_one_retry_each_ten_seconds_always_goes_through() -> None:  # E17
    budget = Budget(POLICY, 0.0)
    taken(budget, 14, 0.0)
    through = [now for now in range(1, 101) if budget.take(14, float(now))]
    assert through == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


def test_the_floor_of_the_lane_is_shared_by_the_workers() -> None:  # E17
    fleet = [Budget(POLICY, 0.0, workers=4) for _ in range(4)]
    for budget in fleet:
        taken(budget, 14, 0.0)
    through = sum(budget.take(14, float(now)) for now in range(1, 401) for budget in fleet)
    assert through == 40


def test_the_floor_that_succeeds_opens_the_way_for_more() -> None:  # E17
    """After an outage the budget is empty and all work is retries: they must not go one each ten seconds."""
    budget = Budget(BudgetPolicy(reserve=0.0), 0.0)
    taken(budget, 14, 0.0)
    budget.tokens = 0.0
    under_way, done, now = 0, 0, 0.0
    while done < 1000 and now < 600:
        now += 1.0
        for _ in range(under_way):
            budget.succeeded(14)
        done += under_way
        under_way = taken(budget, 14, now)
    assert done >= 1000


def test_a_large_fleet_can_still_retry() -> None:  # E17
    budget = Budget(POLICY, 0.0, workers=100)
    assert budget.capacity == 5
    assert taken(budget, 14, 0.0) >= 1


def test_the_capacity_is_split_among_the_workers_and_follows_their_number() -> None:  # E17
    budget = Budget(POLICY, 0.0, workers=4)
    assert (budget.capacity, budget.tokens) == (125, 125)
    taken(budget, 14, 0.0)
    part = budget.tokens / budget.capacity
    budget.resize(2)
    assert budget.capacity == 250
    assert budget.tokens / budget.capacity == pytest.approx(part)
    budget.resize(0)
    assert budget.capacity == 500


def test_a_put_off_is_spread_and_grows_with_the_crowd() -> None:  # E17
    budget = Budget(POLICY, 0.0)
    assert budget.wait(0.0).total_seconds() == 10
    assert budget.wait(0.999).total_seconds() == pytest.approx(20, rel=0.01)
    taken(budget, 14, 0.0)
    for _ in range(1000):
        assert not budget.take(14, 0.0)
    crowded = budget.wait(0.0)
    assert crowded.total_seconds() == pytest.approx(10 * LONGEST_WAIT)
    budget.succeeded(400)
    budget.take(14, 0.0)
    assert budget.wait(0.0) < crowded


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"capacity": 0}, "capacity is 0; it is a whole number, 1 to 1000000000"),
        ({"capacity": 10}, "capacity is 10; it must pay for one retry (14) at least"),
        ({"cost": 0}, "cost is 0"),
        ({"throttled_cost": -1}, "throttled_cost is -1"),
        ({"reserve": 1.0}, "reserve is 1.0; it is a number, 0 to 0.9"),
        ({"floor": "0s"}, "floor is '0s'; it is a duration, 10ms to 1d"),
        ({"floor": "often"}, "floor: 'often' is not a duration"),
    ],
)
def test_a_knob_that_makes_no_sense_is_told_in_one_line(knobs: dict[str, Any], told: str) -> None:  # E17
    with pytest.raises(UsageError) as caught:
        BudgetPolicy(**knobs)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
